use api::slo::freshness::Freshness;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use node_report::report::{
    Aggregate, HostApplicationUsage, Io, MAX_AGGREGATES, MAX_APPLICATIONS, MAX_NUMA, MAX_PODS, MAX_TEXT,
    Numa, PodMemoryEvents, Pressure, PressureData, PressureStats, RunQueue, Throttling,
};
use node_report::{NodeUsage, PodUsage, Report, Resources};

use super::*;
use crate::freshness::Now;
use crate::store::{NodeFacts, Settings, Store};

const VERSION: &str = "slo.koordinator.sh/v1beta1";
const MOST: Option<u64> = Some(u64::MAX);
const RESOURCES: Option<Resources> = Some(Resources { cpu_milli: MOST, memory_bytes: MOST });

const DATA: PressureData = PressureData {
    avg10_ppm: Some(u32::MAX),
    avg60_ppm: Some(u32::MAX),
    avg300_ppm: Some(u32::MAX),
    window_ppm: Some(u32::MAX),
    total_us: MOST,
};
const STATS: Option<PressureStats> = Some(PressureStats { some: Some(DATA), full: Some(DATA) });
const PRESSURE: Option<Pressure> = Some(Pressure { cpu: STATS, memory: STATS, io: STATS });

fn now() -> Now {
    Now { steady: std::time::Duration::ZERO, wall: jiff::Timestamp::new(1_790_000_000, 0).unwrap() }
}

/// A store that leads over one node, `n`.
fn leading() -> Store {
    let mut store = Store::new(Settings::default());
    store.node_applied(now(), NodeFacts::alive("n"));
    store.nodes_listed(now(), &["n".into()].into());
    store.promote(now(), 0);
    store
}

/// What a follower reads of the object.
fn copied(store: &Store) -> Result<store::Copied, MalformedFrame> {
    let mut out = BytesMut::new();
    Frame::record(store.ledger().get("n").unwrap(), VERSION).unwrap().put(&mut out);
    Frame::take(&mut out)?.and_then(|frame| frame.record).unwrap().into_record()
}

/// All that is checked is as long as it may be.
fn longest() -> Report {
    let text = |number: usize| format!("{number:\u{1}>MAX_TEXT$}");
    let run_queue = Some(RunQueue { delay_ns: MOST, waiting_milli: MOST });
    let pod = |number: usize| PodUsage {
        uid: text(number),
        namespace: text(number),
        name: text(number),
        usage: RESOURCES,
        priority: Some(-1),
        qos: Some(-1),
        pressure: PRESSURE,
        throttling: Some(Throttling { periods: MOST, throttled_periods: MOST, throttled_us: MOST }),
        memory_events: Some(PodMemoryEvents { high: MOST, max: MOST, oom: MOST, oom_kills: MOST }),
        io: Some(Io {
            read_bytes_per_s: MOST,
            write_bytes_per_s: MOST,
            reads_milli_per_s: MOST,
            writes_milli_per_s: MOST,
        }),
        run_queue,
    };
    let host = |number: usize| HostApplicationUsage {
        name: text(number),
        usage: RESOURCES,
        priority: Some(-1),
        qos: Some(-1),
    };
    let aggregate = Aggregate {
        duration_s: u32::MAX,
        avg: RESOURCES,
        p50: RESOURCES,
        p90: RESOURCES,
        p95: RESOURCES,
        p99: RESOURCES,
    };
    let usage = NodeUsage {
        usage: RESOURCES,
        aggregates: vec![aggregate; MAX_AGGREGATES],
        system_aggregates: vec![aggregate; MAX_AGGREGATES],
        numa: vec![Numa { id: u32::MAX, usage: RESOURCES, system: RESOURCES }; MAX_NUMA],
        host_applications: (0..MAX_APPLICATIONS).map(host).collect(),
        pressure: PRESSURE,
        system_pressure: PRESSURE,
        run_queue,
        ..NodeUsage::default()
    };
    Report {
        node: "n".to_owned(),
        usage: Some(usage),
        pods: (0..MAX_PODS).map(pod).collect(),
        ..Report::default()
    }
}

#[test]
fn the_longest_report_beside_the_longest_head_can_be_copied() {
    let mut store = leading();
    let report = longest();
    assert_eq!(report.check(), Ok(()));
    store.report(now(), report);
    let before = Arc::clone(store.ledger().get("n").unwrap());
    let label = "x".repeat(store::MOST_WRITTEN.0 - 2_000);
    let mut draft: serde_json::Value =
        serde_json::from_slice(record::object(&before, VERSION, |_| {}).unwrap().body()).unwrap();
    draft["metadata"]["annotations"] = serde_json::json!({ "a": label });
    let draft = draft.as_object().unwrap();
    store.write(now(), &"n".into(), Some(before.version), draft, VERSION).unwrap();
    let copied = copied(&store).unwrap();
    let stored = &store.ledger().get("n").unwrap().value;
    assert_eq!(copied.record.metadata, stored.metadata);
    let (Status::Reported(copied), Status::Reported(stored)) = (&copied.record.status, &stored.status) else {
        panic!("not as it was reported");
    };
    assert_eq!(copied, stored);
}

#[test]
fn a_moment_in_a_year_that_has_no_form_stops_no_follower() {
    let sampled_time = jiff::Timestamp::from_millisecond(-220_000_000_000_000).ok().map(MicroTime);
    let freshness = Freshness { sampled_time, ..Freshness::default() };
    let text = serde_json::to_vec(&freshness).unwrap();
    assert!(serde_json::from_slice::<Freshness>(&text).is_err(), "what is written so cannot be read");
    // name; milliseconds since 1970; whether that is shown
    for (name, sampled_at_ms, is_shown) in [
        ("year -5001", -220_000_000_000_000, false),
        ("before 1970", -1, false),
        ("the least", i64::MIN, false),
        ("the most", i64::MAX, false),
        ("year 10000", 253_402_300_800_000, false),
        ("a clock that was never set", 0, true),
        ("a clock that is ahead by years", 4_000_000_000_000, true),
    ] {
        let mut store = leading();
        let usage = Some(NodeUsage::default());
        let node = "n".to_owned();
        store.report(now(), Report { node, usage, sampled_at_ms, ..Report::default() });
        let freshness = copied(&store).map(|copied| copied.record.freshness).unwrap();
        assert_eq!(freshness.sampled_time.is_some(), is_shown, "{name}");
    }
}

#[test]
fn what_is_written_cannot_grow_beyond_what_is_copied() {
    let mut store = leading();
    let draft = |annotation: usize, status: usize| {
        let draft = serde_json::json!({
            "metadata": { "name": "n", "annotations": { "a": "x".repeat(annotation) } },
            "spec": {},
            "status": { "podsMetric": [{ "name": "x".repeat(status) }] },
        });
        draft.as_object().unwrap().clone()
    };
    let mut write = |draft| {
        let version = store.ledger().get("n").map(|stored| stored.version);
        let written = store.write(now(), &"n".into(), version, &draft, VERSION);
        written.map(|_| copied(&store).unwrap()).map_err(|error| error.to_string())
    };
    let (head, status) = store::MOST_WRITTEN;
    assert!(write(draft(head - 1_000, status - 1_000)).is_ok());
    let mut long = |draft| write(draft).map(|_| ());
    assert_eq!(long(draft(head, 0)), Err("metadata and spec would be longer than 1048576 bytes".to_owned()));
    assert_eq!(long(draft(0, status)), Err("the status would be longer than 8388608 bytes".to_owned()));
}
