//! Integration tests of the manager.

#[cfg(test)]
mod chart;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod webhook;
