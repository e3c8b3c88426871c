//! Which links there should be, and what to do about those there are.

pub mod desired;
mod load;
mod of_peers;
pub mod plan;
pub mod table;
mod unreached;
