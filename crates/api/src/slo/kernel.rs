//! What the kernel tells of scarcity: pressure stall information, waits for a CPU, throttling, memory events. What a kernel
//! cannot tell is absent, never zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a node, its system processes or a pod suffered.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scarcity {
    /// Pressure stall information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,

    /// Waits of runnable threads for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_queue: Option<RunQueue>,

    /// Throttling by a CPU quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Throttling>,

    /// Memory limits that were met, and what followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_events: Option<MemoryEvents>,
}

/// Pressure stall information by resource.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Pressure {
    /// Waiting for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Stall>,

    /// Waiting for memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Stall>,

    /// Waiting for block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Stall>,
}

/// Stalls on one resource.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Stall {
    /// Some tasks stalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub some: Option<StallShare>,

    /// All tasks that were not idle stalled. Not told of a pod in which no task ever stalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<StallShare>,
}

/// The share of time that was stalled, in percent. Of a pod in which nothing ever stalled there is only totalMicroseconds, 0.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StallShare {
    /// Over 10 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg10: Option<f64>,

    /// Over 60 s; of the node and its system processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg60: Option<f64>,

    /// Over 300 s; of the node and its system processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg300: Option<f64>,

    /// Exactly, over the window of averages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<f64>,

    /// All stalled time, in microseconds; of the node and its system processes, and 0 of a pod in which nothing ever stalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_microseconds: Option<i64>,
}

/// Waits of runnable threads for a CPU.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunQueue {
    /// The mean wait for a time slice in the window, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_delay_nanoseconds: Option<i64>,

    /// How many threads waited at a time, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_milli: Option<i64>,
}

/// Throttling by a CPU quota, in the window of averages.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Throttling {
    /// Periods of enforcement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periods: Option<i64>,

    /// Periods in which the quota ran out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_periods: Option<i64>,

    /// Time throttled, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_microseconds: Option<i64>,
}

/// How often memory limits were met, in the window of averages.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryEvents {
    /// `memory.high` was exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<i64>,

    /// `memory.max` was met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<i64>,

    /// An allocation was about to fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom: Option<i64>,

    /// A process was killed for want of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kill: Option<i64>,

    /// Page faults that needed a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major_page_faults: Option<i64>,

    /// Allocations that had to reclaim memory by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_stalls: Option<i64>,
}
