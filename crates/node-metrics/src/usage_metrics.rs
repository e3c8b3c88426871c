//! What nodes use, as Prometheus sees it: sums over the cluster and how many nodes are at which step, so the number of series is bounded;
//! a series a node only where that is asked for. Read from the store when somebody scrapes; nothing is kept between. Only the leader shows
//! them: it has the reports.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::ledger::Stored;
use crate::load;
use crate::record::{Record, Status};
use crate::storage::NodeMetrics;

/// Shows usage while this replica leads.
#[derive(Debug)]
pub struct UsageCollector {
    source: Arc<NodeMetrics>,
    each_node: bool,
}

/// What one node uses, by what it has to give, and shares of the time in which something waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Usage {
    /// Cores and bytes.
    used: [Option<f64>; 2],
    allocatable: [Option<f64>; 2],
    /// CPU, memory, IO.
    pressure: [Option<f64>; 3],
}

const RESOURCES: [&str; 2] = ["cpu", "memory"];
const STALLED: [&str; 3] = ["cpu", "memory", "io"];

// Amounts of a node are far below what a float holds exactly.
#[allow(clippy::cast_precision_loss)]
fn usage(record: &Record) -> Option<Usage> {
    let Status::Reported(reported) = &record.status else { return None };
    let used = reported.usage().usage.unwrap_or_default();
    let cores = |milli: u64| milli as f64 / 1_000.0;
    let known = |amount: u64| (amount > 0).then_some(amount);
    let pressure = reported.usage().pressure.unwrap_or_default();
    let share = |stats: Option<node_report::report::PressureStats>| {
        stats?.some?.window_ppm.map(|ppm| f64::from(ppm) / 1_000_000.0)
    };
    Some(Usage {
        used: [used.cpu_milli.map(cores), used.memory_bytes.map(|bytes| bytes as f64)],
        allocatable: [
            known(record.allocatable.cpu_milli).map(cores),
            known(record.allocatable.memory_bytes).map(|bytes| bytes as f64),
        ],
        pressure: [pressure.cpu, pressure.memory, pressure.io].map(share),
    })
}

impl UsageCollector {
    /// Of this store; `each_node`: with a series a node.
    pub fn new(source: Arc<NodeMetrics>, each_node: bool) -> Self {
        Self { source, each_node }
    }

    fn encode_all(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if !self.source.is_leading() {
            return Ok(());
        }
        // Pointers are copied, so that reports do not wait for the scrape.
        let (records, steps): (Vec<Arc<Stored<Record>>>, _) = self.source.read(|store| {
            let steps = load::census(store.loads().values().map(|stored| &stored.value.status));
            (store.ledger().values().cloned().collect(), steps)
        });
        let nodes: Vec<(&str, Usage)> =
            records.iter().filter_map(|stored| Some((&*stored.name, usage(&stored.value)?))).collect();
        let total = |figure: fn(&Usage) -> [Option<f64>; 2]| {
            let sum = |at: usize| nodes.iter().filter_map(|(_, usage)| figure(usage)[at]).sum::<f64>();
            RESOURCES.into_iter().zip([sum(0), sum(1)])
        };
        let (used, allocatable) = (total(|usage| usage.used), total(|usage| usage.allocatable));
        let by = |(resource, value)| (vec![("resource", resource)], value);
        family(
            encoder,
            "usage",
            "What all nodes that reported to this leader use: cores, bytes",
            used.map(by),
        )?;
        let help = "What these nodes have to give to pods: cores, bytes";
        family(encoder, "allocatable", help, allocatable.map(by))?;
        let steps: Vec<(&str, String, f64)> = steps
            .into_iter()
            .map(|((figure, at_least), count)| {
                (figure, at_least.to_string(), f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
            })
            .collect();
        let steps = steps.iter().map(|(figure, at_least, count)| {
            (vec![("figure", *figure), ("at_least_percent", at_least.as_str())], *count)
        });
        family(encoder, "load_nodes", "Fresh nodes by the threshold of load that they crossed last", steps)?;
        if !self.each_node {
            return Ok(());
        }
        let each = |values: fn(&Usage) -> [Option<f64>; 2]| {
            nodes.iter().flat_map(move |(node, usage)| {
                let known = move |(resource, value): (&'static str, Option<f64>)| {
                    Some((vec![("node", *node), ("resource", resource)], value?))
                };
                RESOURCES.into_iter().zip(values(usage)).filter_map(known)
            })
        };
        family(encoder, "node_usage", "What a node uses: cores, bytes", each(|usage| usage.used))?;
        let help = "What a node has to give to pods: cores, bytes";
        family(encoder, "node_allocatable", help, each(|usage| usage.allocatable))?;
        let pressure = nodes.iter().flat_map(|(node, usage)| {
            let known = move |(resource, value): (&'static str, Option<f64>)| {
                Some((vec![("node", *node), ("resource", resource)], value?))
            };
            STALLED.into_iter().zip(usage.pressure).filter_map(known)
        });
        let help = "Share of the time in which something on a node waited";
        family(encoder, "node_pressure_ratio", help, pressure)
    }
}

fn family<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (Vec<(&'a str, &'a str)>, f64)>,
) -> fmt::Result {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Collector for UsageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_all(&mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use node_report::report::{Pressure, PressureData, PressureStats};
    use node_report::{NodeUsage, Report, Resources};
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::freshness::Now;
    use crate::metrics::{Metrics, Taken};
    use crate::render::Allocatable;
    use crate::store::{NodeFacts, Settings, Store};

    fn scraped(each_node: bool, leading: bool, nodes: usize) -> String {
        let clock =
            || Now { steady: Duration::from_secs(1), wall: jiff::Timestamp::new(1_790_000_000, 0).unwrap() };
        let source = NodeMetrics::new(Store::new(Settings::default()), "v", clock, move || leading);
        source.change(|store, now| {
            let names: Vec<Arc<str>> = (0..nodes).map(|n| Arc::from(format!("n{n}"))).collect();
            for name in &names {
                store.node_applied(
                    now,
                    NodeFacts {
                        allocatable: Allocatable { cpu_milli: 4_000, memory_bytes: 8 << 30 },
                        ..NodeFacts::alive(name)
                    },
                );
            }
            store.nodes_listed(now, &names.iter().cloned().collect());
            store.promote(now, 0);
            for name in &names {
                let stall = PressureData { window_ppm: Some(250_000), ..PressureData::default() };
                let stats = Some(PressureStats { some: Some(stall), full: None });
                let usage = NodeUsage {
                    usage: Some(Resources { cpu_milli: Some(3_000), memory_bytes: Some(1 << 30) }),
                    pressure: Some(Pressure { cpu: stats, memory: stats, io: None }),
                    ..NodeUsage::default()
                };
                store.report(now, Report { node: name.to_string(), usage: Some(usage), ..Report::default() });
            }
        });
        let mut registry = Registry::with_prefix("isthmus");
        let metrics = Metrics::register(&mut registry);
        metrics.report(Taken::Taken);
        source.read(|store| metrics.show(store));
        registry
            .sub_registry_with_prefix("node_metric")
            .register_collector(Box::new(UsageCollector::new(source, each_node)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn sums_are_bounded_whatever_the_number_of_nodes() {
        let text = scraped(false, true, 50);
        assert!(text.contains("isthmus_node_metric_usage{resource=\"cpu\"} 150.0\n"), "{text}");
        assert!(text.contains("isthmus_node_metric_allocatable{resource=\"cpu\"} 200.0\n"), "{text}");
        let load = "isthmus_node_metric_load_nodes{figure=\"cpu\",at_least_percent=\"65\"} 50.0\n";
        assert!(text.contains(load), "{text}");
        assert!(!text.contains("node=\""), "{text}");
        let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(series(&text), series(&scraped(false, true, 2)));
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let dashboard = include_str!("../../../charts/isthmus/files/dashboard-node-metrics.json");
        let dashboard = serde_json::from_str(dashboard).unwrap();
        let (amiss, expressions) = testkit::dashboard::unanswered(&dashboard, &scraped(true, true, 2));
        assert_eq!(amiss, [""; 0]);
        assert!(expressions > 10, "{expressions}");
    }

    #[test]
    fn nodes_have_series_where_that_is_asked_for_and_standbys_show_nothing() {
        let text = scraped(true, true, 2);
        assert!(
            text.contains("isthmus_node_metric_node_usage{node=\"n1\",resource=\"memory\"} 1073741824.0\n"),
            "{text}"
        );
        assert!(
            text.contains("isthmus_node_metric_node_pressure_ratio{node=\"n0\",resource=\"cpu\"} 0.25\n"),
            "{text}"
        );
        assert!(!text.contains("resource=\"io\""), "what is not known is not zero: {text}");
        assert!(!scraped(true, false, 2).contains("usage"));
    }
}
