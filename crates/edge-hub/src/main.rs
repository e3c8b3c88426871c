//! edge-hub
fn main() {}
