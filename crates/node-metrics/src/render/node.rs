//! The node itself as JSON, written by hand as pods are: its windows have forty amounts. The measure is what the types of the API serialize
//! to, byte by byte.

use node_report::NodeUsage;
use node_report::report::{Aggregate, Numa};

use super::duration;
use super::json::{key, number, object, pressure, resources, run_queue, some, text};

/// `nodeMetric`
pub(super) fn write(usage: &NodeUsage, out: &mut Vec<u8>) {
    object(out, |out| {
        key("nodeUsage", out);
        object(out, |out| resources(usage.usage, out));
        aggregates("aggregatedNodeUsages", &usage.aggregates, out);
        key("systemUsage", out);
        object(out, |out| resources(usage.system, out));
        aggregates("aggregatedSystemUsages", &usage.system_aggregates, out);
        list("numaUsages", &usage.numa, out, numa);
        some("scarcity", out, |out| {
            if let Some(of_node) = &usage.pressure {
                pressure(of_node, out);
            }
            if let Some(of_node) = usage.run_queue {
                run_queue(of_node, out);
            }
            if let Some(events) = usage.memory_events {
                key("memoryEvents", out);
                object(out, |out| {
                    number("oomKill", events.oom_kills, out);
                    number("majorPageFaults", events.major_faults, out);
                    number("allocationStalls", events.alloc_stalls, out);
                });
            }
        });
        some("systemScarcity", out, |out| {
            if let Some(of_system) = &usage.system_pressure {
                pressure(of_system, out);
            }
            if let Some(of_system) = usage.system_run_queue {
                run_queue(of_system, out);
            }
        });
    });
}

fn aggregates(name: &str, aggregates: &[Aggregate], out: &mut Vec<u8>) {
    list(name, aggregates, out, |aggregate, out| {
        let Aggregate { duration_s, avg, p50, p90, p95, p99 } = *aggregate;
        some("usage", out, |out| {
            for (name, usage) in [("avg", avg), ("p50", p50), ("p90", p90), ("p95", p95), ("p99", p99)] {
                if usage.is_some() {
                    key(name, out);
                    object(out, |out| resources(usage, out));
                }
            }
        });
        text("duration", &duration(duration_s), out);
    });
}

fn numa(numa: &Numa, out: &mut Vec<u8>) {
    number("numaNodeID", Some(u64::from(numa.id.min(i32::MAX.unsigned_abs()))), out);
    key("nodeUsage", out);
    object(out, |out| resources(numa.usage, out));
    key("systemUsage", out);
    object(out, |out| resources(numa.system, out));
}

/// Objects in a list that is left out if there are none.
fn list<T>(name: &str, items: &[T], out: &mut Vec<u8>, members: impl Fn(&T, &mut Vec<u8>)) {
    if items.is_empty() {
        return;
    }
    key(name, out);
    out.push(b'[');
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        object(out, |out| members(item, out));
    }
    out.push(b']');
}
