//! `edge-hub hostnet` on folders of its own, and `edge-hub run` before an API server of its own.
#![cfg(test)]

mod check;
mod crash;
mod enable;
mod hub;
mod node;
mod weird;
