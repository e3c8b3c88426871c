//! The cache against an independent model, over random histories.

mod client;
mod history;
mod model;
mod world;
