use std::collections::BTreeMap;
use std::sync::Arc;

use api::slo::freshness::FreshnessState;
use api::slo::kernel::{MemoryEvents, Pressure, RunQueue, Scarcity, Stall, StallShare};
use api::slo::load::LoadStep;
use api::slo::node_metric::{AggregatedUsage, NodeMetricInfo, NodeMetricStatus, NumaUsage};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use node_report::report::{
    Aggregate, HostApplicationUsage, NodeMemoryEvents, Numa, PodMemoryEvents, PressureData, PressureStats,
    Throttling,
};
use node_report::{NodeUsage, PodUsage, Report};

use super::pod::tests::typed;
use super::*;

#[test]
fn amounts_are_written_as_kubernetes_writes_them() {
    let cases = [
        (0, "0"),
        (1, "1"),
        (1_024, "1Ki"),
        (1_536, "1536"),
        (3 << 20, "3Mi"),
        ((1 << 30) + 1_024, "1048577Ki"),
        (1 << 60, "1Ei"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(binary(bytes), expected);
    }
    assert_eq!((cpu(0).0.as_str(), cpu(1_500).0.as_str(), cpu(2_000).0.as_str()), ("0", "1500m", "2"));
    assert_eq!(
        (duration(300), duration(45), duration(5_400)),
        ("5m0s".into(), "45s".into(), "1h30m0s".into())
    );
    assert_eq!(percent_of_ppm(123_456), "12.3");
}

#[test]
fn what_is_absent_stays_absent() {
    let mut json = Vec::new();
    let nothing = (Load::default(), Allocatable::default());
    write(&Reported::default(), &Freshness::default(), nothing, &mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let expected = serde_json::json!({
        "freshness": {"state": "Unknown"},
        "nodeMetric": {"nodeUsage": {}, "systemUsage": {}},
        "summary": {"pods": 0},
    });
    assert_eq!(json, expected);
}

// By the types of the API: what is written by hand must be the same.

pub(super) fn info(usage: &NodeUsage) -> NodeMetricInfo {
    NodeMetricInfo {
        node_usage: resources(usage.usage),
        aggregated_node_usages: usage.aggregates.iter().map(aggregated).collect(),
        system_usage: resources(usage.system),
        aggregated_system_usages: usage.system_aggregates.iter().map(aggregated).collect(),
        numa_usages: usage.numa.iter().map(numa).collect(),
        scarcity: some(Scarcity {
            pressure: usage.pressure.as_ref().map(pressure),
            run_queue: usage.run_queue.map(run_queue),
            throttling: None,
            memory_events: usage.memory_events.map(|events| MemoryEvents {
                oom_kill: number(events.oom_kills),
                major_page_faults: number(events.major_faults),
                allocation_stalls: number(events.alloc_stalls),
                ..MemoryEvents::default()
            }),
        }),
        system_scarcity: some(Scarcity {
            pressure: usage.system_pressure.as_ref().map(pressure),
            run_queue: usage.system_run_queue.map(run_queue),
            ..Scarcity::default()
        }),
    }
}

pub(super) fn aggregated(aggregate: &Aggregate) -> AggregatedUsage {
    let Aggregate { duration_s, avg, p50, p90, p95, p99 } = *aggregate;
    let named = [("avg", avg), ("p50", p50), ("p90", p90), ("p95", p95), ("p99", p99)];
    let usage: BTreeMap<_, _> = named
        .into_iter()
        .filter_map(|(name, usage)| Some((name.to_owned(), resources(Some(usage?)))))
        .collect();
    AggregatedUsage { usage, duration: duration(duration_s) }
}

pub(super) fn numa(numa: &Numa) -> NumaUsage {
    NumaUsage {
        numa_node_id: i32::try_from(numa.id).unwrap_or(i32::MAX),
        node_usage: resources(numa.usage),
        system_usage: resources(numa.system),
    }
}

pub(super) fn pressure(pressure: &report::Pressure) -> Pressure {
    Pressure { cpu: pressure.cpu.map(stall), memory: pressure.memory.map(stall), io: pressure.io.map(stall) }
}

pub(super) fn stall(stats: PressureStats) -> Stall {
    Stall { some: stats.some.map(stall_share), full: stats.full.map(stall_share) }
}

pub(super) fn stall_share(data: PressureData) -> StallShare {
    let percent = |ppm: Option<u32>| ppm.map(|ppm| f64::from(ppm) / 10_000.0);
    StallShare {
        avg10: percent(data.avg10_ppm),
        avg60: percent(data.avg60_ppm),
        avg300: percent(data.avg300_ppm),
        window: percent(data.window_ppm),
        total_microseconds: number(data.total_us),
    }
}

pub(super) fn run_queue(run_queue: report::RunQueue) -> RunQueue {
    RunQueue {
        average_delay_nanoseconds: number(run_queue.delay_ns),
        waiting_milli: number(run_queue.waiting_milli),
    }
}

pub(super) fn number(number: Option<u64>) -> Option<i64> {
    number.map(|number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// Nothing instead of an empty object.
pub(super) fn some(scarcity: Scarcity) -> Option<Scarcity> {
    (scarcity != Scarcity::default()).then_some(scarcity)
}

fn used(cpu_milli: u64, memory_bytes: u64) -> Resources {
    Resources { cpu_milli: Some(cpu_milli), memory_bytes: Some(memory_bytes) }
}

fn stalled(n: u32) -> report::Pressure {
    let data = |n| {
        Some(PressureData {
            avg10_ppm: Some(n),
            avg60_ppm: Some(n * 10),
            avg300_ppm: Some(n * 1_000),
            window_ppm: Some(n * 10_000),
            total_us: Some(u64::from(n) << 40),
        })
    };
    let stats = |n| Some(PressureStats { some: data(n), full: data(n + 1) });
    report::Pressure { cpu: stats(n), memory: stats(n + 2), io: stats(n + 4) }
}

fn whole_pod(n: u32) -> PodUsage {
    let many = u64::from(n);
    PodUsage {
        uid: format!("uid-{n}"),
        namespace: "edge".to_owned(),
        name: format!("pod-{n}"),
        usage: Some(used(1_500 * many, 3 << 20)),
        priority: Some(Priority::Batch.into()),
        qos: Some(Qos::Be.into()),
        pressure: Some(stalled(n)),
        throttling: Some(Throttling {
            periods: Some(many),
            throttled_periods: Some(many + 1),
            throttled_us: Some(many + 2),
        }),
        memory_events: Some(PodMemoryEvents {
            high: Some(1),
            max: Some(2),
            oom: Some(3),
            oom_kills: Some(u64::MAX),
        }),
        io: None,
        run_queue: Some(report::RunQueue { delay_ns: Some(many), waiting_milli: Some(many + 1) }),
    }
}

fn whole_node() -> NodeUsage {
    let aggregate = Aggregate {
        duration_s: 300,
        avg: Some(used(10, 20)),
        p50: Some(used(1, 2)),
        p90: Some(used(3, 4)),
        p95: Some(used(5, 6)),
        p99: Some(used(7, 8)),
    };
    let numa = |id| Numa { id, usage: Some(used(1, 2)), system: Some(used(3, 4)) };
    NodeUsage {
        aggregate_duration_s: 60,
        usage: Some(used(1_234, 5 << 30)),
        aggregates: vec![aggregate],
        system: Some(used(100, 1 << 30)),
        system_aggregates: vec![aggregate],
        prod_reclaimable: Some(used(11, 12)),
        prod_peak: Some(used(13, 14)),
        pressure: Some(stalled(7)),
        run_queue: Some(report::RunQueue { delay_ns: Some(15), waiting_milli: Some(16) }),
        memory_events: Some(NodeMemoryEvents {
            alloc_stalls: Some(17),
            major_faults: Some(18),
            oom_kills: Some(19),
        }),
        io: None,
        capacity: Some(used(4_000, 8 << 30)),
        numa: vec![numa(0), numa(1)],
        host_applications: vec![HostApplicationUsage {
            name: "nginx".to_owned(),
            usage: Some(used(20, 21)),
            priority: Some(Priority::Prod.into()),
            qos: Some(Qos::Ls.into()),
        }],
        system_pressure: Some(stalled(20)),
        system_run_queue: Some(report::RunQueue { delay_ns: Some(22), waiting_milli: Some(23) }),
    }
}

#[test]
fn parts_of_a_node_are_what_the_types_say() {
    let window = |avg| Aggregate { duration_s: 45, avg, ..Aggregate::default() };
    let half = Resources { cpu_milli: None, memory_bytes: Some(0) };
    let nodes = [
        NodeUsage::default(),
        NodeUsage {
            usage: Some(half),
            aggregates: vec![window(None), window(Some(half))],
            numa: vec![Numa { id: u32::MAX, usage: None, system: Some(half) }],
            pressure: Some(report::Pressure::default()),
            system_run_queue: Some(report::RunQueue { delay_ns: Some(u64::MAX), waiting_milli: None }),
            ..NodeUsage::default()
        },
        NodeUsage {
            system_aggregates: vec![window(Some(Resources::default()))],
            memory_events: Some(NodeMemoryEvents::default()),
            system_pressure: Some(report::Pressure {
                io: Some(PressureStats::default()),
                ..Default::default()
            }),
            ..NodeUsage::default()
        },
        whole_node(),
    ];
    for usage in nodes {
        let mut written = Vec::new();
        node::write(&usage, &mut written);
        assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&info(&usage)).unwrap());
    }
}

#[test]
fn a_whole_status_is_what_the_types_say() {
    let report = Report {
        node: "n1".to_owned(),
        usage: Some(whole_node()),
        pods: (1..4).map(whole_pod).collect(),
        ..Report::default()
    };
    let mut reported: Option<Arc<Reported>> = None;
    Reported::take(&mut reported, 1, report);
    let reported = reported.expect("a full report is taken");
    let at = Timestamp::new(1_790_000_000, 0).unwrap();
    let freshness = Freshness {
        state: FreshnessState::Fresh,
        received_time: Some(Time(at)),
        age_seconds: Some(0),
        sampled_time: Some(MicroTime(at)),
    };
    let load = Load { cpu: Some(LoadStep { level: 1, at_least: 50 }), ..Load::default() };
    let allocatable = Allocatable { cpu_milli: 4_000, memory_bytes: 8 << 30 };

    let usage = reported.usage();
    let expected = NodeMetricStatus {
        update_time: freshness.received_time.clone(),
        node_metric: Some(info(usage)),
        pods_metric: reported.pods().map(typed).collect(),
        host_application_metric: usage.host_applications.iter().map(host_application).collect(),
        prod_reclaimable_metric: usage.prod_reclaimable.map(predicted),
        prod_peak_metric: usage.prod_peak.map(predicted),
        freshness: Some(freshness.clone()),
        load: Some(load),
        summary: Some(summary(&reported, allocatable)),
    };
    let mut written = Vec::new();
    write(&reported, &freshness, (load, allocatable), &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&expected).unwrap());
    // Each pod has all that a pod can have.
    let pod = &serde_json::to_value(&expected).unwrap()["podsMetric"][2];
    let members = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(members(pod), ["name", "namespace", "podUsage", "priority", "qos", "scarcity"]);
    assert_eq!(members(&pod["scarcity"]), ["memoryEvents", "pressure", "runQueue", "throttling"]);
    let node = &serde_json::to_value(&expected).unwrap()["nodeMetric"];
    assert_eq!(members(&node["systemScarcity"]), ["pressure", "runQueue"]);
}
