//! The tunnel on a real cluster: kubectl, Prometheus and metrics-server reach edge nodes behind NAT by name. Each test is named
//! after the assertion (f) or the fault (x) of the tunnel's requirements that it shows.

mod asked;
mod away;
mod balanced;
mod controllers;
mod faults;
mod gateways;
mod held;
mod identity;
mod leader;
mod local_view;
mod monitoring;
mod outwards;
mod proxied;
mod reach;
mod rotation;
mod slow;
mod streams;
mod told;
mod weather;
