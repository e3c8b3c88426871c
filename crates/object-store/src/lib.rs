//! a crash-safe store of API objects and their recent history.
