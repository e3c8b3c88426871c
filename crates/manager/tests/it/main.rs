//! Integration tests of the manager.

#[cfg(test)]
mod chart;
#[cfg(test)]
mod dashboard;
#[cfg(test)]
mod events;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod hub_identity;
#[cfg(test)]
mod process;
#[cfg(test)]
mod webhook;
