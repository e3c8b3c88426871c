//! What a simulated node is like: no state, so that ten thousand of them take no memory. A fifth of the pods changes from one report to the
//! next by more than a reporter's threshold.

use node_report::report::{
    Aggregate, NodeMemoryEvents, NodeUsage, PodMemoryEvents, PodUsage, Pressure, PressureData, PressureStats,
    Priority, Qos, Resources, RunQueue, Throttling,
};
use node_report::{Policy, encoder::Sample};

/// Of so many pods one changes between two reports.
const CHANGES: u64 = 5;

/// The node's state at its report `turn`.
pub(super) fn sample(node: u64, pods: u64, turn: u64, sampled_at_ms: i64, interval_ms: u32) -> Sample {
    let usage = |salt: u64| {
        let chance = mix(node, salt, turn);
        Resources { cpu_milli: Some(chance % 32_000), memory_bytes: Some((chance % (64 << 20)) << 10) }
    };
    let aggregates = |salt: u64| {
        Policy::DURATIONS_S
            .map(|duration_s| {
                let at = |which: u64| Some(usage(salt + u64::from(duration_s) + which));
                Aggregate { duration_s, avg: at(0), p50: at(1), p90: at(2), p95: at(3), p99: at(4) }
            })
            .to_vec()
    };
    Sample {
        sampled_at_ms,
        usage: NodeUsage {
            aggregate_duration_s: 300,
            usage: Some(usage(1)),
            aggregates: aggregates(1_000),
            system: Some(usage(2)),
            system_aggregates: aggregates(5_000),
            prod_reclaimable: Some(usage(3)),
            prod_peak: Some(usage(4)),
            pressure: Some(pressure_of_node(mix(node, 5, turn))),
            run_queue: Some(run_queue(mix(node, 6, turn))),
            memory_events: Some(NodeMemoryEvents {
                alloc_stalls: Some(turn % 50),
                major_faults: Some(mix(node, 7, turn) % 5_000),
                oom_kills: Some(0),
            }),
            io: None,
            capacity: Some(Resources { cpu_milli: Some(32_000), memory_bytes: Some(64 << 30) }),
            numa: Vec::new(),
            host_applications: Vec::new(),
            system_pressure: Some(pressure(mix(node, 8, 0), mix(node, 8, turn))),
            system_run_queue: Some(run_queue(mix(node, 9, turn))),
        },
        pods: (0..pods).map(|number| pod(node, number, turn)).collect(),
        policy_hash: None,
        interval_ms,
    }
}

fn pod(node: u64, number: u64, turn: u64) -> PodUsage {
    let version = (turn + number) / CHANGES;
    // Twice as much at every other turn: above any threshold.
    let scale = 1 + version % 2;
    let fixed = mix(node, number, 0);
    let usage = Resources {
        cpu_milli: Some(scale * (20 + fixed % 900)),
        memory_bytes: Some(scale * (16 + fixed % 2_000) * 1_048_576),
    };
    PodUsage {
        uid: format!(
            "{node:08x}-{number:04x}-4{:03x}-8{:03x}-{fixed:012x}",
            fixed % 4_096,
            fixed % 1_000,
            fixed = fixed >> 16
        ),
        namespace: format!("team-{:02}", fixed % 40),
        name: format!("service-{:03}-6d4cf56db6-{number:05x}", fixed % 300),
        usage: Some(usage),
        priority: Some(Priority::Prod.into()),
        qos: Some(Qos::Ls.into()),
        pressure: Some(pressure(fixed, fixed.wrapping_mul(version | 1))),
        throttling: number.is_multiple_of(2).then(|| Throttling {
            periods: Some(3_000),
            throttled_periods: Some(version % 100),
            throttled_us: Some(version % 100 * 700),
        }),
        memory_events: Some(PodMemoryEvents {
            high: Some(0),
            max: Some(0),
            oom: Some(0),
            oom_kills: Some(0),
        }),
        io: None,
        run_queue: Some(run_queue(fixed ^ version)),
    }
}

/// Pressure as a kernel tells it: moving averages with two decimals, and counters of some weeks. `ever` says on what something stalled at all, which is a
/// CPU everywhere, block devices at two of three and memory at one of ten, and `now` how much of the time it does at the moment, which of the latter two
/// a quarter do. The share of the window has four decimals: it is reckoned by the node.
fn pressure(ever: u64, now: u64) -> Pressure {
    let line = |hundredths: u64, total_us: u64| {
        let ppm = |hundredths: u64| u32::try_from(hundredths * 100).ok();
        let data = |hundredths: u64, total_us: u64| {
            let exact = if hundredths > 0 { now % 100 } else { 0 };
            Some(PressureData {
                avg10_ppm: ppm(hundredths),
                avg60_ppm: ppm(hundredths / 2),
                avg300_ppm: ppm(hundredths / 3),
                window_ppm: ppm(hundredths / 3).and_then(|ppm| Some(ppm + u32::try_from(exact).ok()?)),
                total_us: Some(total_us),
            })
        };
        Some(PressureStats { some: data(hundredths, total_us), full: data(hundredths / 2, total_us / 2) })
    };
    let stalled_once = |stalled: bool, chance: u64, most_us: u64| {
        let hundredths = if stalled && chance.is_multiple_of(4) { chance / 4 % 1_000 } else { 0 };
        line(hundredths, if stalled { 2 + ever % most_us } else { 0 })
    };
    Pressure {
        cpu: line(now % 1_000, 2 + ever % 100_000_000_000),
        memory: stalled_once((ever >> 8).is_multiple_of(10), now >> 12, 1_000_000_000),
        io: stalled_once(!(ever >> 16).is_multiple_of(3), now >> 24, 10_000_000_000),
    }
}

/// The same of a whole node: on each resource something stalls, and a kernel does not know that all wait for a CPU.
fn pressure_of_node(now: u64) -> Pressure {
    let Pressure { cpu, memory, io } = pressure(10 << 16, now & !(0b11 << 12 | 0b11 << 24));
    Pressure { cpu: cpu.map(|cpu| PressureStats { full: None, ..cpu }), memory, io }
}

fn run_queue(chance: u64) -> RunQueue {
    RunQueue { delay_ns: Some(20_000 + chance % 900_000), waiting_milli: Some(chance % 2_000) }
}

/// A number that looks like chance and is always the same.
fn mix(a: u64, b: u64, c: u64) -> u64 {
    let mut x =
        a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.rotate_left(32) ^ c.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
