//! Which links there should be, and what to do about those there are.

pub mod desired;
mod load;
mod of_peers;
pub mod plan;
mod stream_limit;
pub mod table;
mod unreached;
