//! Pods as JSON, written as they are decoded: what a report of a hundred of them costs is mostly this. The measure is what the types of the
//! API serialize to, byte by byte.

use node_report::PodUsage;

use super::json::{key, number, object, pressure, resources, run_queue, some, text};
use super::{priority, qos};
use crate::reported::Reported;

/// `podsMetric`
pub(super) fn write_all(reported: &Reported, out: &mut Vec<u8>) {
    out.push(b'[');
    reported.each_pod(|pod| {
        if out.last() != Some(&b'[') {
            out.push(b',');
        }
        write(pod, out);
    });
    out.push(b']');
}

fn write(pod: &PodUsage, out: &mut Vec<u8>) {
    object(out, |out| {
        text("name", &pod.name, out);
        text("namespace", &pod.namespace, out);
        key("podUsage", out);
        object(out, |out| resources(pod.usage, out));
        if let Some(priority) = pod.priority.and_then(priority) {
            text("priority", priority, out);
        }
        if let Some(qos) = pod.qos.and_then(qos) {
            text("qos", qos, out);
        }
        some("scarcity", out, |out| scarcity(pod, out));
    });
}

fn scarcity(pod: &PodUsage, out: &mut Vec<u8>) {
    if let Some(of_pod) = &pod.pressure {
        // A hub of an earlier version tells more.
        pressure(&of_pod.of_pod(), out);
    }
    if let Some(of_pod) = pod.run_queue {
        run_queue(of_pod, out);
    }
    if let Some(throttling) = pod.throttling {
        key("throttling", out);
        object(out, |out| {
            number("periods", throttling.periods, out);
            number("throttledPeriods", throttling.throttled_periods, out);
            number("throttledMicroseconds", throttling.throttled_us, out);
        });
    }
    if let Some(events) = pod.memory_events {
        key("memoryEvents", out);
        object(out, |out| {
            number("high", events.high, out);
            number("max", events.max, out);
            number("oom", events.oom, out);
            number("oomKill", events.oom_kills, out);
        });
    }
}

#[cfg(test)]
pub(super) mod tests;
