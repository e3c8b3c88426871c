//! Group `slo.koordinator.sh`: what nodes use and how they fare. Served by the manager from memory, never installed as a CRD.

pub mod device;
pub mod freshness;
pub mod kernel;
pub mod load;
pub mod names;
pub mod node_metric;
