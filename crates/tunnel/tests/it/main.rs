//! The tunnel over real sockets: what streams do, what faults do to them, what enters and what does not.

// Helpers here are tests themselves: a failure is a panic.
#![allow(clippy::unwrap_used)]

mod audit;
mod away;
mod breaks;
mod crowds;
mod elections;
mod expiry;
mod faults;
mod hops;
mod hostile;
mod load;
mod names;
mod proxied;
mod rotation;
mod soak;
mod streams;
mod unread;
mod ways_in;
mod world;
