//! Kubernetes HTTP semantics as data: what a request asks for, what an object is, how an answer looks on the wire.
//! Nothing here opens a socket, reads a clock or holds a client.

pub mod accept;
pub mod age;
pub mod continue_token;
pub mod deadline;
pub mod edit;
pub mod field_selector;
pub mod frame;
mod json;
pub mod label_selector;
pub mod list_options;
pub mod names;
pub mod object;
mod protobuf;
mod query;
pub mod quoting;
pub mod request;
pub mod resource;
pub mod resource_version;
pub mod selectable_field;
pub mod selector_requirements;
pub mod status;
pub mod transcode;
