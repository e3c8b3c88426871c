//! What is looked up when Prometheus asks: the link, the store, and each subscription by its resource.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use crate::{hub::Hub, status::SubscriptionView, tunnel_roles};

/// How many resources have a label of their own; the rest are `other` together.
const RESOURCES: usize = 64;

/// The rest.
const OTHER: &str = "other";

/// Looks at the hub for as long as there is one.
pub struct HubCollector(Weak<Hub>);

impl fmt::Debug for HubCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HubCollector")
    }
}

impl HubCollector {
    /// Reads `hub` at each scrape.
    pub fn new(hub: &Arc<Hub>) -> Self {
        Self(Arc::downgrade(hub))
    }
}

impl Collector for HubCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(hub) = self.0.upgrade() else { return Ok(()) };
        let up = ConstGauge::new(i64::from(hub.upstream.is_up()));
        up.encode(encoder.encode_descriptor(
            "hub_link_up",
            "1 while an API server is connected",
            None,
            MetricType::Gauge,
        )?)?;
        let corrected = hub.filters.view().local_pods.pods.len();
        ConstGauge::new(i64::try_from(corrected).unwrap_or(i64::MAX)).encode(encoder.encode_descriptor(
            "hub_corrected_pods",
            "Pods of the node that are shown where the kubelet says, since the API server does not know it",
            None,
            MetricType::Gauge,
        )?)?;
        // Prometheus asks within the runtime.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let of_tunnel = hub.tunnel.as_ref().map_or(0, |tunnel| tunnel.tasks());
            let tasks = runtime.metrics().num_alive_tasks() + of_tunnel;
            ConstGauge::new(i64::try_from(tasks).unwrap_or(i64::MAX)).encode(encoder.encode_descriptor(
                "hub_tasks",
                "Tasks that have not ended",
                None,
                MetricType::Gauge,
            )?)?;
        }
        ConstCounter::new(hub.subscriptions.crowded_out()).encode(encoder.encode_descriptor(
            "hub_crowded_out",
            "Requests that found no room for a subscription",
            None,
            MetricType::Counter,
        )?)?;
        for (name, help, subscriptions) in [
            (
                "hub_store_unreadable",
                "Subscriptions and documents that could not be read from the disk and were not written since",
                hub.storage.unreadable(),
            ),
            (
                "hub_store_unstored",
                "Subscriptions and documents of which the disk does not take what changes, and a socket that could not be made",
                hub.storage.unstored(),
            ),
        ] {
            let count = i64::try_from(subscriptions.len()).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Gauge,
            )?)?;
        }
        let mut link = encoder.encode_descriptor(
            "hub_link_bytes",
            "Bytes over the link, TLS included",
            None,
            MetricType::Counter,
        )?;
        for (direction, bytes) in ["sent", "received"].into_iter().zip(hub.meters.link().read()) {
            ConstCounter::new(bytes).encode(link.encode_family(&[("direction", direction)])?)?;
        }
        let statistics = hub.storage.statistics();
        for (name, help, bytes) in [
            ("hub_store_given_bytes", "Bytes of keys and bodies given to the store", statistics.given),
            ("hub_store_written_bytes", "Bytes that the store wrote into files", statistics.written),
        ] {
            ConstCounter::new(bytes).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Counter,
            )?)?;
        }
        let views = hub.subscriptions.all().iter().map(|open| SubscriptionView::of(open, &hub)).collect();
        let resources = by_resource(views, RESOURCES);
        let figures: [(&str, &str, Read); 4] = [
            (
                "hub_staleness_seconds",
                "How long ago what is held was last known to be current, at worst; infinite if it never was since the hub began",
                |of| of.age,
            ),
            ("hub_watchers", "Watches that are open", |of| Some(of.watchers)),
            ("hub_objects", "Objects that are held", |of| Some(of.objects)),
            ("hub_subscriptions", "Subscriptions", |of| Some(of.count)),
        ];
        for (name, help, read) in figures {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (resource, of) in &resources {
                let Some(value) = read(of) else { continue };
                ConstGauge::new(value).encode(family.encode_family(&[("resource", resource.as_str())])?)?;
            }
        }
        hub.tunnel.as_ref().map_or(Ok(()), |tunnel| tunnel_roles::encode(tunnel, &mut encoder))
    }
}

/// Takes one figure.
type Read = fn(&OfResource) -> Option<f64>;

/// What the subscriptions of one resource are together.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct OfResource {
    /// `None` if nothing is held; infinite if it was never current in this run.
    age: Option<f64>,
    watchers: f64,
    objects: f64,
    count: f64,
}

/// Sums by resource, of no more than `most` resources.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows floating-point numbers only")]
fn by_resource(views: Vec<SubscriptionView>, most: usize) -> BTreeMap<String, OfResource> {
    let mut resources: BTreeMap<String, OfResource> = BTreeMap::new();
    for view in views {
        let full = resources.len() >= most && !resources.contains_key(&view.resource);
        let of = resources.entry(if full { OTHER.to_owned() } else { view.resource }).or_default();
        let age = view.version.map(|_| view.age_seconds.map_or(f64::INFINITY, |age| age as f64));
        of.age = of.age.into_iter().chain(age).reduce(f64::max);
        of.watchers += view.watchers as f64;
        of.objects += view.objects as f64;
        of.count += 1.0;
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::State;

    fn view(resource: &str, age: Option<u64>, watchers: usize) -> SubscriptionView {
        SubscriptionView {
            resource: resource.to_owned(),
            scope: String::new(),
            owner: "node".to_owned(),
            objects: 3,
            version: Some(1),
            age_seconds: age,
            watchers,
            state: State::Watching,
            reason: None,
            saved_bytes: 0,
        }
    }

    #[test]
    fn labels_are_bounded_and_the_worst_age_counts() {
        let views = vec![
            view("a", Some(3), 1),
            view("a", Some(9), 2),
            view("b", None, 0),
            view("c", Some(1), 4),
            view("d", Some(2), 1),
        ];
        let resources = by_resource(views, 2);
        let labels: Vec<&str> = resources.keys().map(String::as_str).collect();
        assert_eq!(labels, ["a", "b", OTHER]);
        assert_eq!(resources["a"], OfResource { age: Some(9.0), watchers: 3.0, objects: 6.0, count: 2.0 });
        assert_eq!(resources["b"].age, Some(f64::INFINITY), "what was never current is not fresh");
        let nothing = SubscriptionView { version: None, ..view("a", None, 1) };
        assert_eq!(by_resource(vec![nothing], 1)["a"].age, None, "nothing is held that could be old");
        assert_eq!(resources[OTHER], OfResource { age: Some(2.0), watchers: 5.0, objects: 6.0, count: 2.0 });
    }
}
