//! What can be answered without a link beside objects: discovery, tokens, tables; and what is done with writes.

pub(crate) mod coding;
mod collected;
pub mod discover;
pub mod documents;
pub mod local_pods;
pub mod node_lease;
pub mod node_tokens;
pub mod tables;
mod tee;
