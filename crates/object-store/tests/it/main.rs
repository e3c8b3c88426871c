//! The store against a model of it, on a disk that fails, tears and forgets, and on the real one.
#![cfg(test)]

mod blobs;
mod crash_matrix;
mod kill;
mod list;
mod model;
mod open;
mod random;
mod removal;
mod script;
mod seldom;
mod sim_disk;
