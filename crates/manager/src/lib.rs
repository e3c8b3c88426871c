//! manager

pub mod leader;
