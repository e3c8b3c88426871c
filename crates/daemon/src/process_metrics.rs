//! What the kernel knows of this process, read from `/proc` at each scrape. Where `/proc` is not as expected the
//! metrics are left out; a scrape never fails for them.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

/// The metrics `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_start_time_seconds` and
/// `process_open_fds`.
#[derive(Debug)]
pub struct ProcessMetrics;

#[derive(Debug, PartialEq)]
struct Sample {
    cpu_seconds: f64,
    start_seconds: f64,
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut write = |name: &str, help: &str, kind: MetricType, metric: &dyn Encode| {
            metric.encode_into(encoder.encode_descriptor(name, help, None, kind)?)
        };
        let ticks = rustix::param::clock_ticks_per_second();
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let boot = fs::read_to_string("/proc/stat").ok();
        if let (Some(stat), Some(boot)) = (stat, boot)
            && let Some(sample) = sample(&stat, &boot, ticks)
        {
            write(
                "process_cpu_seconds",
                "User and system CPU time spent",
                MetricType::Counter,
                &ConstCounter::new(sample.cpu_seconds),
            )?;
            write(
                "process_start_time_seconds",
                "When the process started, since the Unix epoch",
                MetricType::Gauge,
                &ConstGauge::new(sample.start_seconds),
            )?;
        }
        if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().and_then(|status| resident(&status))
        {
            write(
                "process_resident_memory_bytes",
                "Resident memory",
                MetricType::Gauge,
                &ConstGauge::new(bytes),
            )?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            let open = i64::try_from(open.count()).unwrap_or(i64::MAX);
            write("process_open_fds", "Open file descriptors", MetricType::Gauge, &ConstGauge::new(open))?;
        }
        Ok(())
    }
}

/// `EncodeMetric` for use behind a reference to any of the metrics above.
trait Encode {
    fn encode_into(&self, encoder: prometheus_client::encoding::MetricEncoder<'_>) -> Result<(), fmt::Error>;
}

impl<M: EncodeMetric> Encode for M {
    fn encode_into(&self, encoder: prometheus_client::encoding::MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.encode(encoder)
    }
}

/// Reads `/proc/self/stat` (fields 14, 15 and 22 of proc(5), in clock ticks) and the boot time from `/proc/stat`.
fn sample(stat: &str, boot: &str, ticks_per_second: u64) -> Option<Sample> {
    // The second field is the name in parentheses, which may hold spaces and parentheses of its own.
    let after_name = stat.rsplit_once(')')?.1;
    // The first field here is the third of proc(5).
    let field = |number: usize| after_name.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let boot: u64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let seconds = |ticks: u64| precise(ticks) / precise(ticks_per_second.max(1));
    Some(Sample {
        cpu_seconds: seconds(field(14)?.saturating_add(field(15)?)),
        start_seconds: precise(boot) + seconds(field(22)?),
    })
}

/// Reads the resident set size in bytes from `/proc/self/status`.
fn resident(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[allow(clippy::cast_precision_loss, reason = "seconds and ticks stay far below 2^52")]
fn precise(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_proc_says() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 10000 2000 500 1";
        let boot = "cpu 1 2 3\nbtime 1700000000\nprocesses 5\n";
        let expected = Sample { cpu_seconds: 3.0, start_seconds: 1_700_000_100.0 };
        assert_eq!(sample(stat, boot, 100), Some(expected));
        assert_eq!(sample("42 (a) S 1", boot, 100), None);
        assert_eq!(sample("", boot, 100), None);
        assert_eq!(sample(stat, "cpu 1\n", 100), None);
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1234 kB\n"), Some(1234 * 1024));
        assert_eq!(resident("VmRSS:\t12 MB\n"), None);
        assert_eq!(resident(""), None);
    }
}
