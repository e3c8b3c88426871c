//! `edge-hub run` against an API server that misbehaves at command.

mod crash;
mod epoch;
mod identity;
mod link;
mod lists;
mod local_pods;
mod offline;
mod properties;
mod security;
mod sharing;
mod site;
