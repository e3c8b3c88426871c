//! The ConfigMap by which nodes and standbys find the leader, and which outlives it: `kube-system/isthmus-node-metric`.
//!
//! Before a leader answers anybody it writes here up to which version it may tell; the next begins above that. What it tells stays
//! below, so versions never go back, whatever becomes of clocks and Leases.

use std::collections::BTreeMap;
use std::time::Duration;

use api::labels;
use api::names::{NAMESPACE, NODE_METRIC_CONFIG_MAP};
use api::slo::names::{LEADER, VERSION_CEILING};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use node_report::http::config_map::{CA, EPOCH, SERVER_NAME, SERVERS};
use tokio::time::timeout;

use super::Config;

/// A call that takes longer is given up; the whole of a take-over must fit into a second.
const CALL: Duration = Duration::from_millis(800);

/// How far above what was told, or the clock, a ceiling is: microseconds.
const HEADROOM: u64 = 120_000_000;

/// Name of the port of reports in the Service.
const REPORT_PORT: &str = "report";

/// Why the ConfigMap could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnnounceError {
    #[error("ConfigMap {NAMESPACE}/{NODE_METRIC_CONFIG_MAP}: {0}")]
    Api(#[from] kube::Error),
    #[error("ConfigMap {NAMESPACE}/{NODE_METRIC_CONFIG_MAP}: no answer within {CALL:?}")]
    Timeout(#[from] tokio::time::error::Elapsed),
}

/// What a leader reserved.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    /// Up to here some leader may have told.
    pub(super) floor: u64,
    /// Up to here this one may tell.
    pub(super) ceiling: u64,
    stored: ConfigMap,
}

impl Reservation {
    /// At how many addresses nodes find replicas, as it was last announced.
    pub(super) fn replicas(&self) -> usize {
        let servers = self.stored.data.as_ref().and_then(|data| data.get(SERVERS));
        servers.map_or(0, |servers| servers.split(',').filter(|server| !server.is_empty()).count())
    }

    /// Whether a leader of a later term than `epoch` has announced itself, other than the one at `own`.
    pub(super) fn is_of_a_later(&self, own: &str, epoch: u64) -> bool {
        let text = |key| self.stored.data.as_ref().and_then(|data| data.get(key));
        let announced = text(EPOCH).and_then(|text| text.parse::<u64>().ok());
        announced.is_some_and(|announced| announced > epoch)
            && text(LEADER).is_some_and(|leader| leader != own)
    }
}

fn api(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn ceiling_of(map: &ConfigMap) -> u64 {
    let text = map.data.as_ref().and_then(|data| data.get(VERSION_CEILING));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Reads up to where versions were told, and reserves more: above `told` and the clock. Fails if somebody else writes meanwhile.
pub(super) async fn reserve(
    client: &Client,
    told: u64,
    now_micros: u64,
) -> Result<Reservation, AnnounceError> {
    let api = api(client);
    let found = timeout(CALL, api.get_opt(NODE_METRIC_CONFIG_MAP)).await??;
    let mut map = found.unwrap_or_else(|| ConfigMap {
        metadata: ObjectMeta { name: Some(NODE_METRIC_CONFIG_MAP.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    });
    let floor = ceiling_of(&map);
    let ceiling = floor.max(told).max(now_micros).saturating_add(HEADROOM);
    map.data.get_or_insert_default().insert(VERSION_CEILING.to_owned(), ceiling.to_string());
    let stored = store(&api, &map).await?;
    Ok(Reservation { floor, ceiling, stored })
}

/// Says who leads, and keeps the reservation ahead of what is told. Returns the new one; writes only if something differs.
pub(super) async fn announce(
    client: &Client,
    reservation: &Reservation,
    config: &Config,
    ca: &str,
    (epoch, told): (u64, u64),
    now_micros: u64,
) -> Result<Reservation, AnnounceError> {
    let mut map = reservation.stored.clone();
    let ahead = told.max(now_micros);
    let ceiling = if reservation.ceiling < ahead.saturating_add(HEADROOM / 2) {
        ahead.saturating_add(HEADROOM)
    } else {
        reservation.ceiling
    };
    let servers = if config.servers.is_empty() {
        let mut servers = vec![config.reports_at()];
        for server in replicas(client, config).await.unwrap_or_default() {
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        servers
    } else {
        config.servers.clone()
    };
    let data: BTreeMap<String, String> = [
        (CA, ca.to_owned()),
        (SERVER_NAME, config.server_name()),
        (SERVERS, servers.join(",")),
        (EPOCH, epoch.to_string()),
        (LEADER, config.api_at()),
        (VERSION_CEILING, ceiling.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    if map.data.as_ref() == Some(&data) {
        return Ok(reservation.clone());
    }
    map.data = Some(data);
    let stored = store(&api(client), &map).await?;
    Ok(Reservation { floor: reservation.floor, ceiling, stored })
}

/// Writes the very version that was read, or the first.
async fn store(api: &Api<ConfigMap>, map: &ConfigMap) -> Result<ConfigMap, AnnounceError> {
    let params =
        PostParams { field_manager: Some("isthmus-node-metric".to_owned()), ..PostParams::default() };
    let stored = if map.metadata.resource_version.is_some() {
        timeout(CALL, api.replace(NODE_METRIC_CONFIG_MAP, &params, map)).await??
    } else {
        timeout(CALL, api.create(&params, map)).await??
    };
    Ok(stored)
}

/// Where all replicas take reports, as the Service's endpoints say.
async fn replicas(client: &Client, config: &Config) -> Result<Vec<String>, AnnounceError> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &config.namespace);
    let of_service = ListParams::default().labels(&format!("{}={}", labels::SERVICE_NAME, config.service));
    let mut replicas = Vec::new();
    for slice in timeout(CALL, slices.list(&of_service)).await??.items {
        let named = |port: &k8s_openapi::api::discovery::v1::EndpointPort| {
            (port.name.as_deref() == Some(REPORT_PORT)).then_some(port.port).flatten()
        };
        let Some(port) = slice.ports.iter().flatten().find_map(named) else { continue };
        let Ok(port) = u16::try_from(port) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let address = endpoint.addresses.first();
            replicas.extend(address.map(|host| super::at(host, ([0, 0, 0, 0], port).into())));
        }
    }
    replicas.sort();
    Ok(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_leader_of_a_later_term_has_come_after() {
        let cases = [
            (&[][..], false),
            (&[(EPOCH, "8")][..], false),
            (&[(LEADER, "b")][..], false),
            (&[(EPOCH, "8"), (LEADER, "b")][..], true),
            (&[(EPOCH, "7"), (LEADER, "b")][..], false),
            (&[(EPOCH, "6"), (LEADER, "b")][..], false),
            // Of this replica's own terms the last is the one that it knows.
            (&[(EPOCH, "8"), (LEADER, "a")][..], false),
            (&[(EPOCH, "later"), (LEADER, "b")][..], false),
        ];
        for (data, expected) in cases {
            let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let stored = ConfigMap { data: Some(data), ..ConfigMap::default() };
            let reservation = Reservation { floor: 0, ceiling: 0, stored };
            assert_eq!(reservation.is_of_a_later("a", 7), expected, "{:?}", reservation.stored.data);
        }
    }
}
