//! What a node says of itself. Units are in the names: milli-CPU, bytes, parts per million of the time.
//!
//! Fields are only ever added, with new tags: a decoder passes over what it does not know. Averages are over
//! [`NodeUsage::aggregate_duration_s`] unless a field says otherwise.

mod check;
mod lists;
mod of_pod;

pub use self::check::{Malformed, Unreadable};

/// The most pods in one report: ten times what a kubelet may run by default, and more than any runs.
pub const MAX_PODS: usize = 4_096;

/// The most windows of percentiles in one report: nodes keep fewer ([`Policy::MAX_PERCENTILES`](crate::Policy::MAX_PERCENTILES)).
pub const MAX_AGGREGATES: usize = 64;

/// The most NUMA nodes in one report: as many as Linux knows at most.
pub const MAX_NUMA: usize = 1_024;

/// The most programs beside pods in one report: more than a policy may name.
pub const MAX_APPLICATIONS: usize = 1_024;

/// The longest text in a report, in bytes: Kubernetes' names are at most 253.
pub const MAX_TEXT: usize = 253;

/// One report of one node: full, or a delta against an earlier one.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Report {
    /// Name of the node; the connection's certificate must be its.
    #[prost(string, tag = "1")]
    pub node: String,
    /// UID of the Node object that the reporter means; empty while it does not know it. A server that knows another one holds nothing
    /// of this node.
    #[prost(string, tag = "2")]
    pub node_uid: String,
    /// `/proc/sys/kernel/random/boot_id`: informational, tells a reboot from a restart of the reporter.
    #[prost(string, tag = "3")]
    pub boot_id: String,
    /// Life of the reporter. A later one is greater; see [`crate::encoder`].
    #[prost(uint64, tag = "4")]
    pub incarnation: u64,
    /// Number of this report in its incarnation, from 0 up by one.
    #[prost(uint64, tag = "5")]
    pub seq: u64,
    /// Of a delta: the last report that the reporter knows to be held. Right on top of any report from `base_seq` to `seq - 1`. Absent in a
    /// full report.
    #[prost(uint64, optional, tag = "6")]
    pub base_seq: Option<u64>,
    /// When the newest sample was taken, by the node's clock, in milliseconds since 1970.
    #[prost(int64, tag = "7")]
    pub sampled_at_ms: i64,
    /// Epoch of the leader whose answer the reporter heard last: a server of an older epoch has been superseded.
    #[prost(uint64, optional, tag = "8")]
    pub epoch: Option<u64>,
    /// [`crate::Policy::hash`] of the policy by which the node measures; absent: its defaults.
    #[prost(fixed64, optional, tag = "9")]
    pub policy_hash: Option<u64>,
    /// The node itself: in every report.
    #[prost(message, optional, tag = "10")]
    pub usage: Option<NodeUsage>,
    /// All pods, or of a delta those that changed, whole.
    #[prost(message, repeated, tag = "11")]
    pub pods: Vec<PodUsage>,
    /// Of a delta: UIDs of pods that are gone.
    #[prost(string, repeated, tag = "12")]
    pub removed_pods: Vec<String>,
    /// Interval in milliseconds at which the node reports now.
    #[prost(uint32, tag = "13")]
    pub interval_ms: u32,
}

/// Usage of CPU and memory; each is absent where it could not be measured.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Resources {
    /// Thousandths of a CPU.
    #[prost(uint64, optional, tag = "1")]
    pub cpu_milli: Option<u64>,
    /// Bytes, by the policy's way of counting the page cache.
    #[prost(uint64, optional, tag = "2")]
    pub memory_bytes: Option<u64>,
}

/// What a node uses, and how its tasks fare.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeUsage {
    /// Window of the averages here and of the pods, in seconds.
    #[prost(uint32, tag = "1")]
    pub aggregate_duration_s: u32,
    /// `status.nodeMetric.nodeUsage`: average of the whole node.
    #[prost(message, optional, tag = "2")]
    pub usage: Option<Resources>,
    /// `aggregatedNodeUsages`: one for each window that is at least half filled.
    #[prost(message, repeated, tag = "3")]
    pub aggregates: Vec<Aggregate>,
    /// `systemUsage`: what is of no pod.
    #[prost(message, optional, tag = "4")]
    pub system: Option<Resources>,
    /// `aggregatedSystemUsages`.
    #[prost(message, repeated, tag = "5")]
    pub system_aggregates: Vec<Aggregate>,
    /// `prodReclaimableMetric`: what prod pods asked for and will not need.
    #[prost(message, optional, tag = "6")]
    pub prod_reclaimable: Option<Resources>,
    /// `prodPeakMetric`: the peak that is expected of prod pods and system, margin included.
    #[prost(message, optional, tag = "7")]
    pub prod_peak: Option<Resources>,
    /// Pressure stall information of the whole node.
    #[prost(message, optional, tag = "8")]
    pub pressure: Option<Pressure>,
    /// How long runnable tasks waited for a CPU.
    #[prost(message, optional, tag = "9")]
    pub run_queue: Option<RunQueue>,
    /// Reclaim and out-of-memory kills.
    #[prost(message, optional, tag = "10")]
    pub memory_events: Option<NodeMemoryEvents>,
    /// All block devices together.
    #[prost(message, optional, tag = "11")]
    pub io: Option<Io>,
    /// CPUs online and total memory.
    #[prost(message, optional, tag = "12")]
    pub capacity: Option<Resources>,
    /// `numaUsages`, where there is more than one NUMA node.
    #[prost(message, repeated, tag = "13")]
    pub numa: Vec<Numa>,
    /// Programs beside pods, as the policy names them; those that have no cgroup are left out.
    #[prost(message, repeated, tag = "14")]
    pub host_applications: Vec<HostApplicationUsage>,
    /// Pressure stall information of what is of no pod: of systemd's `system.slice`, in cgroups of version 2.
    #[prost(message, optional, tag = "15")]
    pub system_pressure: Option<Pressure>,
    /// How long its threads waited for a CPU.
    #[prost(message, optional, tag = "16")]
    pub system_run_queue: Option<RunQueue>,
}

/// A program beside pods.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HostApplicationUsage {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it uses.
    #[prost(message, optional, tag = "2")]
    pub usage: Option<Resources>,
    /// Koordinator's priority class.
    #[prost(enumeration = "Priority", optional, tag = "3")]
    pub priority: Option<i32>,
    /// Koordinator's quality of service.
    #[prost(enumeration = "Qos", optional, tag = "4")]
    pub qos: Option<i32>,
}

/// Average and percentiles (nearest rank) of one-second samples over a window.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Aggregate {
    /// The window, in seconds.
    #[prost(uint32, tag = "1")]
    pub duration_s: u32,
    /// Mean.
    #[prost(message, optional, tag = "2")]
    pub avg: Option<Resources>,
    /// Median.
    #[prost(message, optional, tag = "3")]
    pub p50: Option<Resources>,
    /// 90th percentile.
    #[prost(message, optional, tag = "4")]
    pub p90: Option<Resources>,
    /// 95th percentile.
    #[prost(message, optional, tag = "5")]
    pub p95: Option<Resources>,
    /// 99th percentile.
    #[prost(message, optional, tag = "6")]
    pub p99: Option<Resources>,
}

/// Usage of one NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Numa {
    /// Number of the NUMA node.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Average of the NUMA node.
    #[prost(message, optional, tag = "2")]
    pub usage: Option<Resources>,
    /// Its share that is of no pod.
    #[prost(message, optional, tag = "3")]
    pub system: Option<Resources>,
}

/// Pressure stall information by resource; a resource is absent where the kernel does not account for it.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Pressure {
    /// Waiting for a CPU.
    #[prost(message, optional, tag = "1")]
    pub cpu: Option<PressureStats>,
    /// Waiting for memory.
    #[prost(message, optional, tag = "2")]
    pub memory: Option<PressureStats>,
    /// Waiting for block IO.
    #[prost(message, optional, tag = "3")]
    pub io: Option<PressureStats>,
}

/// Of one resource, as the kubelet's summary names it.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PressureStats {
    /// At least one task waited.
    #[prost(message, optional, tag = "1")]
    pub some: Option<PressureData>,
    /// All tasks waited; the whole node has none for CPU before Linux 5.13.
    #[prost(message, optional, tag = "2")]
    pub full: Option<PressureData>,
}

/// Share of time that was lost, in parts per million.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PressureData {
    /// The kernel's moving average over 10 s.
    #[prost(uint32, optional, tag = "1")]
    pub avg10_ppm: Option<u32>,
    /// The kernel's moving average over 60 s.
    #[prost(uint32, optional, tag = "2")]
    pub avg60_ppm: Option<u32>,
    /// The kernel's moving average over 300 s.
    #[prost(uint32, optional, tag = "3")]
    pub avg300_ppm: Option<u32>,
    /// Exact, from the counter: over the policy's aggregate duration.
    #[prost(uint32, optional, tag = "4")]
    pub window_ppm: Option<u32>,
    /// The kernel's counter, in microseconds, since boot or since the cgroup was made.
    #[prost(uint64, optional, tag = "5")]
    pub total_us: Option<u64>,
}

/// Scheduling delay.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RunQueue {
    /// Mean wait of a time slice, in nanoseconds: waiting time by number of slices.
    #[prost(uint64, optional, tag = "1")]
    pub delay_ns: Option<u64>,
    /// Tasks that waited at a time, in thousandths: waiting time by time.
    #[prost(uint64, optional, tag = "2")]
    pub waiting_milli: Option<u64>,
}

/// Of the node, in the window.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct NodeMemoryEvents {
    /// Times that an allocation had to reclaim itself (`allocstall`).
    #[prost(uint64, optional, tag = "1")]
    pub alloc_stalls: Option<u64>,
    /// Major page faults.
    #[prost(uint64, optional, tag = "2")]
    pub major_faults: Option<u64>,
    /// Processes killed for want of memory.
    #[prost(uint64, optional, tag = "3")]
    pub oom_kills: Option<u64>,
}

/// Of a pod's cgroup, in the window.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PodMemoryEvents {
    /// Times throttled above `memory.high`.
    #[prost(uint64, optional, tag = "1")]
    pub high: Option<u64>,
    /// Times that `memory.max` was about to be passed (v1: `failcnt`).
    #[prost(uint64, optional, tag = "2")]
    pub max: Option<u64>,
    /// Times that the limit was reached and reclaim failed.
    #[prost(uint64, optional, tag = "3")]
    pub oom: Option<u64>,
    /// Processes killed.
    #[prost(uint64, optional, tag = "4")]
    pub oom_kills: Option<u64>,
}

/// Block IO, means over the window.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Io {
    /// Bytes read a second.
    #[prost(uint64, optional, tag = "1")]
    pub read_bytes_per_s: Option<u64>,
    /// Bytes written a second.
    #[prost(uint64, optional, tag = "2")]
    pub write_bytes_per_s: Option<u64>,
    /// Reads in 1,000 seconds.
    #[prost(uint64, optional, tag = "3")]
    pub reads_milli_per_s: Option<u64>,
    /// Writes in 1,000 seconds.
    #[prost(uint64, optional, tag = "4")]
    pub writes_milli_per_s: Option<u64>,
}

/// CPU bandwidth control of a pod and its containers, each of which counts by itself, in the window; absent where none has a CPU limit.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Throttling {
    /// Enforcement periods in which they ran.
    #[prost(uint64, optional, tag = "1")]
    pub periods: Option<u64>,
    /// Those in which they were stopped.
    #[prost(uint64, optional, tag = "2")]
    pub throttled_periods: Option<u64>,
    /// For how long, in microseconds.
    #[prost(uint64, optional, tag = "3")]
    pub throttled_us: Option<u64>,
}

/// What one pod uses.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodUsage {
    /// UID as the kubelet names the pod's cgroup; of static pods that is the hash of their file, not the mirror pod's UID.
    #[prost(string, tag = "1")]
    pub uid: String,
    /// Namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// `podUsage`: average over the window.
    #[prost(message, optional, tag = "4")]
    pub usage: Option<Resources>,
    /// `priority`.
    #[prost(enumeration = "Priority", optional, tag = "5")]
    pub priority: Option<i32>,
    /// `qos`.
    #[prost(enumeration = "Qos", optional, tag = "6")]
    pub qos: Option<i32>,
    /// Pressure stall information of the pod's cgroup, as far as it is told of pods ([`Pressure::of_pod`]).
    #[prost(message, optional, tag = "7")]
    pub pressure: Option<Pressure>,
    /// CPU bandwidth control.
    #[prost(message, optional, tag = "8")]
    pub throttling: Option<Throttling>,
    /// Limits that were met.
    #[prost(message, optional, tag = "9")]
    pub memory_events: Option<PodMemoryEvents>,
    /// Block IO.
    #[prost(message, optional, tag = "10")]
    pub io: Option<Io>,
    /// Scheduling delay, where it is measured.
    #[prost(message, optional, tag = "11")]
    pub run_queue: Option<RunQueue>,
}

/// Koordinator's priority class: its label, or the band of the pod's priority, or by its quality of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Priority {
    /// Never sent on purpose.
    Unspecified = 0,
    /// `koord-prod`.
    Prod = 1,
    /// `koord-mid`.
    Mid = 2,
    /// `koord-batch`.
    Batch = 3,
    /// `koord-free`.
    Free = 4,
}

/// Koordinator's quality of service: its label `koordinator.sh/qosClass`, or by Kubernetes' class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Qos {
    /// Never sent on purpose.
    Unspecified = 0,
    /// `LSE`.
    Lse = 1,
    /// `LSR`.
    Lsr = 2,
    /// `LS`.
    Ls = 3,
    /// `BE`.
    Be = 4,
    /// `SYSTEM`.
    System = 5,
}

impl Report {
    /// Whether this report stands by itself.
    pub fn is_full(&self) -> bool {
        self.base_seq.is_none()
    }
}
