//! A NodeMetric's status from what its node reported: pure. What the node could not tell is absent.

use api::slo::device::ResourceMap;
use api::slo::freshness::{Freshness, Summary};
use api::slo::load::Load;
use api::slo::node_metric::{HostApplicationMetricInfo, PredictedMetric};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use node_report::Resources;
use node_report::report::{self, Priority, Qos};

use crate::reported::Reported;

pub(crate) mod buffers;
mod json;
mod node;
mod pod;

use self::json::key;

/// What a node has to give to pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// Thousandths of a CPU; 0 if it is not known.
    pub cpu_milli: u64,
    /// Bytes; 0 if it is not known.
    pub memory_bytes: u64,
}

/// Writes the status as JSON. What is short goes through the types of the API.
pub fn write(
    reported: &Reported,
    freshness: &Freshness,
    (load, allocatable): (Load, Allocatable),
    out: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    let usage = reported.usage();
    out.push(b'{');
    if let Some(time) = &freshness.received_time {
        member("updateTime", time, out)?;
    }
    key("nodeMetric", out);
    node::write(usage, out);
    if reported.pod_count() > 0 {
        key("podsMetric", out);
        pod::write_all(reported, out);
    }
    if !usage.host_applications.is_empty() {
        let applications: Vec<_> = usage.host_applications.iter().map(host_application).collect();
        member("hostApplicationMetric", &applications, out)?;
    }
    if let Some(usage) = usage.prod_reclaimable {
        member("prodReclaimableMetric", &predicted(usage), out)?;
    }
    if let Some(usage) = usage.prod_peak {
        member("prodPeakMetric", &predicted(usage), out)?;
    }
    member("freshness", freshness, out)?;
    if load != Load::default() {
        member("load", &load, out)?;
    }
    member("summary", &summary(reported, allocatable), out)?;
    out.push(b'}');
    Ok(())
}

fn member(name: &str, value: &impl serde::Serialize, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    key(name, out);
    serde_json::to_writer(out, value)
}

fn summary(reported: &Reported, allocatable: Allocatable) -> Summary {
    let usage = reported.usage();
    let now = usage.usage.unwrap_or_default();
    let shortest = usage.aggregates.iter().min_by_key(|aggregate| aggregate.duration_s);
    let p95 = shortest.and_then(|aggregate| aggregate.p95?.cpu_milli);
    let avg10 = |stats: Option<report::PressureStats>| stats?.some?.avg10_ppm;
    let pressure = usage.pressure.and_then(|pressure| {
        let shares = [pressure.cpu, pressure.memory, pressure.io].map(avg10);
        let shown = shares.map(|ppm| ppm.map_or_else(|| "-".to_owned(), percent_of_ppm));
        shares.iter().any(Option::is_some).then(|| shown.join("/"))
    });
    Summary {
        cpu: now.cpu_milli.map(|milli| format!("{milli}m")),
        cpu_percent: share(now.cpu_milli, allocatable.cpu_milli),
        memory: now.memory_bytes.map(|bytes| format!("{}Mi", bytes >> 20)),
        memory_percent: share(now.memory_bytes, allocatable.memory_bytes),
        cpu_p95: p95.map(|milli| format!("{milli}m")),
        pressure,
        pods: i32::try_from(reported.pod_count()).unwrap_or(i32::MAX),
    }
}

fn share(used: Option<u64>, of: u64) -> Option<String> {
    let percent = used?.saturating_mul(100).checked_div(of)?;
    Some(format!("{percent}%"))
}

fn percent_of_ppm(ppm: u32) -> String {
    format!("{}.{}", ppm / 10_000, ppm % 10_000 / 1_000)
}

fn resources(usage: Option<Resources>) -> ResourceMap {
    let Resources { cpu_milli, memory_bytes } = usage.unwrap_or_default();
    let cpu = cpu_milli.map(|milli| ("cpu".to_owned(), cpu(milli)));
    let memory = memory_bytes.map(|bytes| ("memory".to_owned(), Quantity(binary(bytes))));
    ResourceMap { resources: cpu.into_iter().chain(memory).collect(), devices: Vec::new() }
}

/// As Kubernetes writes it: whole CPUs without the suffix.
fn cpu(milli: u64) -> Quantity {
    Quantity(if milli.is_multiple_of(1_000) { (milli / 1_000).to_string() } else { format!("{milli}m") })
}

/// As Kubernetes writes it: the largest binary suffix that leaves a whole number.
fn binary(bytes: u64) -> String {
    let (number, suffix) = binary_parts(bytes);
    format!("{number}{suffix}")
}

fn binary_parts(bytes: u64) -> (u64, &'static str) {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let whole = if bytes == 0 { 0 } else { (bytes.trailing_zeros() / 10).min(6) };
    (bytes >> (10 * whole), SUFFIXES.get(whole as usize).copied().unwrap_or_default())
}

/// As Go writes a duration: `5m0s`.
pub(crate) fn duration(seconds: u32) -> String {
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

fn predicted(usage: Resources) -> PredictedMetric {
    PredictedMetric { resource: resources(Some(usage)) }
}

fn host_application(one: &report::HostApplicationUsage) -> HostApplicationMetricInfo {
    HostApplicationMetricInfo {
        name: one.name.clone(),
        usage: resources(one.usage),
        priority: one.priority.and_then(priority).map(str::to_owned),
        qos: one.qos.and_then(qos).map(str::to_owned),
    }
}

fn priority(number: i32) -> Option<&'static str> {
    match Priority::try_from(number).ok()? {
        Priority::Unspecified => None,
        Priority::Prod => Some("koord-prod"),
        Priority::Mid => Some("koord-mid"),
        Priority::Batch => Some("koord-batch"),
        Priority::Free => Some("koord-free"),
    }
}

fn qos(number: i32) -> Option<&'static str> {
    match Qos::try_from(number).ok()? {
        Qos::Unspecified => None,
        Qos::Lse => Some("LSE"),
        Qos::Lsr => Some("LSR"),
        Qos::Ls => Some("LS"),
        Qos::Be => Some("BE"),
        Qos::System => Some("SYSTEM"),
    }
}

#[cfg(test)]
mod tests;
