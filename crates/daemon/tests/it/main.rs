//! What only a whole process shows.
#![allow(clippy::unwrap_used, reason = "a helper of tests is a test, which clippy does not see")]

mod shutdown;
