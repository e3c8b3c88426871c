//! Kubernetes HTTP semantics as data: what a request asks for, what an object is, how an answer looks on the wire.
//! Nothing here opens a socket, reads a clock or holds a client.

pub mod object;
pub mod resource;
pub mod resource_version;
