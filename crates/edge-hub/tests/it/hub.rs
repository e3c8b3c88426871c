//! `edge-hub run` against an API server that misbehaves at command.

mod black_hole;
mod configuration;
mod crash;
mod differential;
mod epoch;
mod identity;
mod link;
mod lists;
mod local_pods;
mod newer;
mod node_metric;
mod node_tokens;
mod offline;
mod properties;
mod redefined;
mod refused;
mod restart;
mod security;
mod sharing;
mod simulation;
mod site;
mod slow_line;
mod socket;
mod tunnel;
mod users;
