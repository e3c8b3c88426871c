//! `edge-hub run` against an API server that misbehaves at command.

mod crash;
mod link;
mod sharing;
mod site;
