//! manager
fn main() {}
