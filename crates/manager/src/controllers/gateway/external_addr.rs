//! Pure: what becomes of the address for links in raven's ConfigMap. Nothing goes by it: hubs listen at their `--tunnel-address`, and nodes dial
//! what leads there. Who wrote another one is told what is used.

use std::collections::BTreeSet;

use api::names::{PROXY_EXTERNAL_ADDR, PROXY_PORT, RAVEN_AGENT_CONFIG_MAP};
use api::{Endpoint, ExposeType};

use super::ports::{self, External};
use super::verdict::Case;

/// How they are moved.
const REMEDY: &str = "to move them, change their --tunnel-address";

impl Case<'_> {
    /// What is used in place of what the ConfigMap says, if that is something else; of these active `proxies`.
    pub(super) fn external_addr(&self, proxies: &[&Endpoint]) -> Option<String> {
        let said = match self.external {
            _ if proxies.is_empty() => return None,
            External::Unsaid => return None,
            External::Unreadable => format!("has no port in {PROXY_EXTERNAL_ADDR}"),
            External::At(port) => format!("says port {port}"),
        };
        let hubs = proxies.iter().filter_map(|endpoint| self.hubs.get(&endpoint.node_name)?.port);
        let hubs: BTreeSet<u16> = hubs.collect();
        let is_used = |port: u16| self.external == External::At(port);
        let used = match self.gateway.spec.expose_type {
            ExposeType::LoadBalancer => {
                let port = ports::links(self.external.port(), &hubs);
                if is_used(port) {
                    return None;
                }
                format!("the Service leads to {port}, where the hubs listen: {REMEDY}")
            }
            ExposeType::PublicIP | ExposeType::None => {
                if !hubs.is_empty() && hubs.iter().all(|port| is_used(*port)) {
                    return None;
                }
                let at: Vec<String> = hubs.iter().map(u16::to_string).collect();
                let at = if at.is_empty() { String::new() } else { format!(" at {}", at.join(" and ")) };
                format!(
                    "the hubs listen{at} as they were started: {REMEDY}; nodes dial publicIP of spec.endpoints, at publicPort, else port, else \
                     {PROXY_PORT}"
                )
            }
        };
        Some(format!("ConfigMap {RAVEN_AGENT_CONFIG_MAP} {said}, and {used}"))
    }
}
