//! `edge-hub hostnet` on folders of its own.
#![cfg(test)]

mod check;
mod crash;
mod enable;
mod node;
mod weird;
