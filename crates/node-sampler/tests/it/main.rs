//! The sampler over trees of files that look like a kernel's, in both versions of cgroups, and over this machine's own.
#![allow(clippy::unwrap_used, reason = "a helper of tests is a test, which clippy does not see")]

mod beside;
mod containers;
mod fixture;
mod restart;
mod sampled;
mod tree;
