//! Group `raven.openyurt.io`, what hubs report of their tunnels, and what manager and hubs must judge alike.

pub mod cloud;
pub mod gateway;
pub mod selected;
pub mod tunnel_report;
