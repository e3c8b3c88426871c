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
mod refused;
mod security;
mod sharing;
mod site;
mod slow_line;
mod socket;
mod tunnel;
mod users;
