//! When a pod has changed enough to be sent. Against what was sent last, so that a slow creep adds up and is sent, too.

use crate::report::{
    Io, PodMemoryEvents, PodUsage, Pressure, PressureData, PressureStats, Resources, RunQueue, Throttling,
};

/// A quantity has changed if it differs by more than both its share and its floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Share of the value sent last, in thousandths.
    pub share_milli: u64,
    /// Floor for CPU, in thousandths of a CPU.
    pub cpu_milli: u64,
    /// Floor for memory, in bytes.
    pub memory_bytes: u64,
    /// Floor for pressure, in parts per million.
    pub pressure_ppm: u32,
    /// Floor for block IO, in bytes a second.
    pub io_bytes_per_s: u64,
    /// Floor for scheduling delay, in nanoseconds.
    pub delay_ns: u64,
}

impl Default for Threshold {
    /// 5 %, and 5 milli-CPU, 2 MiB, 0.5 % of the time, 64 KiB/s, 50 µs: beneath what any consumer acts on.
    fn default() -> Self {
        Self {
            share_milli: 50,
            cpu_milli: 5,
            memory_bytes: 2 << 20,
            pressure_ppm: 5_000,
            io_bytes_per_s: 64 << 10,
            delay_ns: 50_000,
        }
    }
}

impl Threshold {
    /// Nothing but equal is unchanged.
    pub const EXACT: Self = Self {
        share_milli: 0,
        cpu_milli: 0,
        memory_bytes: 0,
        pressure_ppm: 0,
        io_bytes_per_s: 0,
        delay_ns: 0,
    };

    /// Whether `now` is to be sent to someone who has `sent`.
    pub fn passed(&self, sent: &PodUsage, now: &PodUsage) -> bool {
        let PodUsage {
            uid,
            namespace,
            name,
            usage,
            priority,
            qos,
            pressure,
            throttling,
            memory_events,
            io,
            run_queue,
        } = now;
        (uid, namespace, name, priority, qos)
            != (&sent.uid, &sent.namespace, &sent.name, &sent.priority, &sent.qos)
            || either(sent.usage.as_ref(), usage.as_ref(), |a, b| self.resources(*a, *b))
            || either(sent.pressure.as_ref(), pressure.as_ref(), |a, b| self.pressure(a, b))
            || either(sent.throttling.as_ref(), throttling.as_ref(), |a, b| self.throttling(*a, *b))
            || either(sent.memory_events.as_ref(), memory_events.as_ref(), |a, b| events(*a, *b))
            || either(sent.io.as_ref(), io.as_ref(), |a, b| self.io(*a, *b))
            || either(sent.run_queue.as_ref(), run_queue.as_ref(), |a, b| self.run_queue(*a, *b))
    }

    fn amount(&self, sent: Option<u64>, now: Option<u64>, floor: u64) -> bool {
        either(sent.as_ref(), now.as_ref(), |sent, now| {
            let difference = sent.abs_diff(*now);
            let share = u128::from(*sent) * u128::from(self.share_milli) / 1_000;
            difference > floor && u128::from(difference) > share
        })
    }

    fn resources(&self, sent: Resources, now: Resources) -> bool {
        let Resources { cpu_milli, memory_bytes } = now;
        self.amount(sent.cpu_milli, cpu_milli, self.cpu_milli)
            || self.amount(sent.memory_bytes, memory_bytes, self.memory_bytes)
    }

    fn pressure(&self, sent: &Pressure, now: &Pressure) -> bool {
        let Pressure { cpu, memory, io } = now;
        [(&sent.cpu, cpu), (&sent.memory, memory), (&sent.io, io)]
            .into_iter()
            .any(|(sent, now)| either(sent.as_ref(), now.as_ref(), |a, b| self.stats(a, b)))
    }

    fn stats(&self, sent: &PressureStats, now: &PressureStats) -> bool {
        let PressureStats { some, full } = now;
        either(sent.some.as_ref(), some.as_ref(), |a, b| self.data(*a, *b))
            || either(sent.full.as_ref(), full.as_ref(), |a, b| self.data(*a, *b))
    }

    fn data(&self, sent: PressureData, now: PressureData) -> bool {
        // The counter grows without end; the shares say when that matters.
        let PressureData { avg10_ppm, avg60_ppm, avg300_ppm, window_ppm, total_us } = now;
        sent.total_us.is_some() != total_us.is_some()
            || [
                (sent.avg10_ppm, avg10_ppm),
                (sent.avg60_ppm, avg60_ppm),
                (sent.avg300_ppm, avg300_ppm),
                (sent.window_ppm, window_ppm),
            ]
            .into_iter()
            .any(|(sent, now)| {
                self.amount(sent.map(u64::from), now.map(u64::from), u64::from(self.pressure_ppm))
            })
    }

    fn throttling(&self, sent: Throttling, now: Throttling) -> bool {
        let Throttling { periods, throttled_periods, throttled_us } = now;
        self.amount(sent.periods, periods, 10)
            || self.amount(sent.throttled_periods, throttled_periods, 0)
            || self.amount(sent.throttled_us, throttled_us, 1_000)
    }

    fn io(&self, sent: Io, now: Io) -> bool {
        let Io { read_bytes_per_s, write_bytes_per_s, reads_milli_per_s, writes_milli_per_s } = now;
        self.amount(sent.read_bytes_per_s, read_bytes_per_s, self.io_bytes_per_s)
            || self.amount(sent.write_bytes_per_s, write_bytes_per_s, self.io_bytes_per_s)
            // An operation moves 4 KiB or more.
            || self.amount(sent.reads_milli_per_s, reads_milli_per_s, self.io_bytes_per_s / 4)
            || self.amount(sent.writes_milli_per_s, writes_milli_per_s, self.io_bytes_per_s / 4)
    }

    fn run_queue(&self, sent: RunQueue, now: RunQueue) -> bool {
        let RunQueue { delay_ns, waiting_milli } = now;
        self.amount(sent.delay_ns, delay_ns, self.delay_ns)
            || self.amount(sent.waiting_milli, waiting_milli, self.cpu_milli)
    }
}

/// Events are rare, and each counts.
fn events(sent: PodMemoryEvents, now: PodMemoryEvents) -> bool {
    sent != now
}

/// Whether a quantity came, went, or changed by `changed`.
fn either<T>(sent: Option<&T>, now: Option<&T>, changed: impl FnOnce(&T, &T) -> bool) -> bool {
    match (sent, now) {
        (Some(sent), Some(now)) => changed(sent, now),
        (None, None) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::Threshold;
    use crate::report::{
        Io, PodMemoryEvents, PodUsage, Pressure, PressureData, PressureStats, Qos, Resources, RunQueue,
        Throttling,
    };

    fn sent() -> PodUsage {
        let stats = PressureStats {
            some: Some(PressureData {
                avg10_ppm: Some(100_000),
                total_us: Some(1),
                ..PressureData::default()
            }),
            full: None,
        };
        PodUsage {
            uid: "u".into(),
            usage: Some(Resources { cpu_milli: Some(1_000), memory_bytes: Some(100 << 20) }),
            pressure: Some(Pressure { cpu: Some(stats), memory: None, io: None }),
            throttling: Some(Throttling {
                periods: Some(100),
                throttled_periods: Some(1),
                throttled_us: Some(9),
            }),
            memory_events: Some(PodMemoryEvents { oom: Some(0), ..PodMemoryEvents::default() }),
            io: Some(Io { read_bytes_per_s: Some(0), ..Io::default() }),
            run_queue: Some(RunQueue { delay_ns: Some(10_000), waiting_milli: None }),
            ..PodUsage::default()
        }
    }

    #[test]
    fn what_matters_is_sent_and_noise_is_not() {
        type Change = fn(&mut PodUsage);
        let cases: [(&str, Change, bool); 17] = [
            ("nothing", |_| {}, false),
            ("cpu within the share", |p| p.usage.as_mut().unwrap().cpu_milli = Some(1_050), false),
            ("cpu beyond it", |p| p.usage.as_mut().unwrap().cpu_milli = Some(1_051), true),
            ("cpu down", |p| p.usage.as_mut().unwrap().cpu_milli = Some(949), true),
            ("cpu unknown", |p| p.usage.as_mut().unwrap().cpu_milli = None, true),
            ("memory within", |p| p.usage.as_mut().unwrap().memory_bytes = Some(103 << 20), false),
            ("memory beyond", |p| p.usage.as_mut().unwrap().memory_bytes = Some(106 << 20), true),
            ("usage gone", |p| p.usage = None, true),
            ("qos", |p| p.qos = Some(Qos::Be.into()), true),
            ("name", |p| p.name = "other".into(), true),
            ("pressure unknown", |p| p.pressure = None, true),
            (
                "one more throttled period",
                |p| p.throttling.as_mut().unwrap().throttled_periods = Some(2),
                true,
            ),
            ("one oom", |p| p.memory_events.as_mut().unwrap().oom = Some(1), true),
            ("a little io", |p| p.io.as_mut().unwrap().read_bytes_per_s = Some(60_000), false),
            ("io", |p| p.io.as_mut().unwrap().read_bytes_per_s = Some(70_000), true),
            ("a little delay", |p| p.run_queue.as_mut().unwrap().delay_ns = Some(50_000), false),
            ("delay", |p| p.run_queue.as_mut().unwrap().delay_ns = Some(70_000), true),
        ];
        for (name, change, expected) in cases {
            let mut now = sent();
            change(&mut now);
            assert_eq!(Threshold::default().passed(&sent(), &now), expected, "{name}");
        }
    }

    #[test]
    fn the_counter_of_pressure_alone_is_noise_and_its_shares_are_not() {
        for (avg10, total, expected) in
            [(100_000, 99, false), (105_000, 1, false), (105_001, 1, true), (0, 1, true)]
        {
            let mut now = sent();
            let some =
                now.pressure.as_mut().and_then(|p| p.cpu.as_mut()).and_then(|p| p.some.as_mut()).unwrap();
            (some.avg10_ppm, some.total_us) = (Some(avg10), Some(total));
            assert_eq!(Threshold::default().passed(&sent(), &now), expected, "{avg10} {total}");
        }
    }

    #[test]
    fn exact_misses_nothing() {
        let mut now = sent();
        now.usage.as_mut().unwrap().cpu_milli = Some(1_001);
        assert!(Threshold::EXACT.passed(&sent(), &now));
        assert!(!Threshold::EXACT.passed(&sent(), &sent()));
    }
}
