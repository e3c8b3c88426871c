use api::slo::kernel::{MemoryEvents, Scarcity, Throttling};
use api::slo::node_metric::PodMetricInfo;
use node_report::report::{PodMemoryEvents, Pressure, PressureData, PressureStats, RunQueue};
use node_report::{Report, Resources};
use proptest::prelude::*;

use super::super::resources as typed_resources;
use super::super::tests::{
    number as signed, pressure as typed_pressure, run_queue as typed_run_queue, some as scarce,
};
use super::*;

/// The same by the types of the API.
pub(in super::super) fn typed(pod: PodUsage) -> PodMetricInfo {
    PodMetricInfo {
        pod_usage: typed_resources(pod.usage),
        priority: pod.priority.and_then(priority).map(str::to_owned),
        qos: pod.qos.and_then(qos).map(str::to_owned),
        extensions: None,
        scarcity: scarce(Scarcity {
            pressure: pod.pressure.map(|pressure| typed_pressure(&pressure.of_pod())),
            run_queue: pod.run_queue.map(typed_run_queue),
            throttling: pod.throttling.map(|throttling| Throttling {
                periods: signed(throttling.periods),
                throttled_periods: signed(throttling.throttled_periods),
                throttled_microseconds: signed(throttling.throttled_us),
            }),
            memory_events: pod.memory_events.map(|events| MemoryEvents {
                high: signed(events.high),
                max: signed(events.max),
                oom: signed(events.oom),
                oom_kill: signed(events.oom_kills),
                ..MemoryEvents::default()
            }),
        }),
        name: pod.name,
        namespace: pod.namespace,
    }
}

// Boxed: as types within types they take more than a test's stack.
fn count() -> BoxedStrategy<Option<u64>> {
    let numbers =
        [any::<u64>().boxed(), (0u64..5_000).boxed(), (0u64..64).prop_map(|bits| 1 << bits).boxed()];
    prop::option::of(prop::strategy::Union::new(numbers)).boxed()
}

fn data() -> BoxedStrategy<Option<PressureData>> {
    let ppm =
        || prop::option::of(prop_oneof![any::<u32>(), 0u32..1_000_001, (0u32..101).prop_map(|p| p * 10_000)]);
    prop::option::of((ppm(), ppm(), ppm(), ppm(), count()).prop_map(
        |(avg10_ppm, avg60_ppm, avg300_ppm, window_ppm, total_us)| PressureData {
            avg10_ppm,
            avg60_ppm,
            avg300_ppm,
            window_ppm,
            total_us,
        },
    ))
    .boxed()
}

fn stats() -> BoxedStrategy<Option<PressureStats>> {
    prop::option::of((data(), data()).prop_map(|(some, full)| PressureStats { some, full })).boxed()
}

fn pod() -> BoxedStrategy<PodUsage> {
    let pressure = prop::option::of((stats(), stats(), stats()).prop_map(|(cpu, memory, io)| Pressure {
        cpu,
        memory,
        io,
    }));
    let usage = prop::option::of(
        (count(), count()).prop_map(|(cpu_milli, memory_bytes)| Resources { cpu_milli, memory_bytes }),
    );
    let throttling = prop::option::of((count(), count(), count()).prop_map(
        |(periods, throttled_periods, throttled_us)| node_report::report::Throttling {
            periods,
            throttled_periods,
            throttled_us,
        },
    ));
    let events = prop::option::of(
        (count(), count(), count(), count()).prop_map(|(high, max, oom, oom_kills)| PodMemoryEvents {
            high,
            max,
            oom,
            oom_kills,
        }),
    );
    let run_queue = prop::option::of(
        (count(), count()).prop_map(|(delay_ns, waiting_milli)| RunQueue { delay_ns, waiting_milli }),
    );
    let class = || prop::option::of(0i32..8);
    (".{0,12}", "[a-z-]{0,12}", usage, class(), class(), pressure, throttling, events, run_queue)
        .prop_map(
            |(name, namespace, usage, priority, qos, pressure, throttling, memory_events, run_queue)| {
                PodUsage {
                    name,
                    namespace,
                    usage,
                    priority,
                    qos,
                    pressure,
                    throttling,
                    memory_events,
                    run_queue,
                    ..PodUsage::default()
                }
            },
        )
        .boxed()
}

proptest! {
    #[test]
    fn written_by_hand_is_what_the_types_say(pods in prop::collection::vec(pod(), 0..4)) {
        let mut written = Vec::new();
        let uid = |(number, pod): (usize, &PodUsage)| PodUsage { uid: format!("{number}"), ..pod.clone() };
        let pods_of_report = pods.iter().enumerate().map(uid).collect();
        let mut reported = None;
        Reported::take(&mut reported, 1, Report { pods: pods_of_report, ..Report::default() });
        write_all(&reported.unwrap(), &mut written);
        let typed: Vec<_> = pods.into_iter().map(typed).collect();
        prop_assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&typed).unwrap());
    }
}

#[test]
fn of_pressure_the_moment_and_the_window_are_told_whatever_a_hub_reports() {
    let line = |ppm: u32, total_us: u64| {
        let data = PressureData {
            avg10_ppm: Some(ppm),
            avg60_ppm: Some(ppm),
            avg300_ppm: Some(ppm),
            window_ppm: Some(ppm * 2),
            total_us: Some(total_us),
        };
        Some(data)
    };
    let pressure = Pressure {
        cpu: Some(PressureStats { some: line(15_000, 9), full: line(0, 0) }),
        memory: Some(PressureStats { some: line(0, 0), full: line(0, 0) }),
        io: None,
    };
    let mut written = Vec::new();
    write(&PodUsage { pressure: Some(pressure), ..PodUsage::default() }, &mut written);
    let expected = concat!(
        r#"{"name":"","namespace":"","podUsage":{},"scarcity":{"pressure":{"#,
        r#""cpu":{"some":{"avg10":1.5,"window":3.0},"full":{"totalMicroseconds":0}},"#,
        r#""memory":{"some":{"totalMicroseconds":0}}}}}"#
    );
    assert_eq!(String::from_utf8(written).unwrap(), expected, "nothing is said of what is not known");
}
