//! What the leader says to a report: what it holds of the node, and how the node is to go on.

use std::ops::RangeInclusive;
use std::time::Duration;

use prost::Message;

use crate::report::{Priority, Qos};

/// Answer to a report that was taken, or dropped as old.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Answer {
    /// Term of the leader; a later leader has a greater one.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// `host:port` of the leader.
    #[prost(string, tag = "2")]
    pub leader: String,
    /// Incarnation of the reporter that the leader holds a report of.
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    /// Number of the report that it holds now.
    #[prost(uint64, tag = "4")]
    pub acked_seq: u64,
    /// The report changed nothing: as new a one was held.
    #[prost(bool, tag = "5")]
    pub dropped: bool,
    /// Send the next report after so many milliseconds; 0: as before.
    #[prost(uint32, tag = "6")]
    pub interval_ms: u32,
    /// Hash of the policy that is meant for the node; absent: no policy, the node's defaults.
    #[prost(fixed64, optional, tag = "7")]
    pub policy_hash: Option<u64>,
    /// The policy, if the report's hash was another.
    #[prost(message, optional, tag = "8")]
    pub policy: Option<Policy>,
    /// The leader's clock in milliseconds since 1970, from which a node can tell its own clock's error.
    #[prost(int64, tag = "9")]
    pub server_time_ms: i64,
}

/// `spec.metricCollectPolicy`: how a node measures. 0 and empty mean the default.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Policy {
    /// Window of averages, in seconds; default [`Policy::AGGREGATE_DURATION_S`].
    #[prost(uint32, tag = "1")]
    pub aggregate_duration_s: u32,
    /// Windows of percentiles, in seconds, at most 1,800; default [`Policy::DURATIONS_S`].
    #[prost(uint32, repeated, tag = "2")]
    pub durations_s: Vec<u32>,
    /// How the page cache counts.
    #[prost(enumeration = "MemoryPolicy", tag = "3")]
    pub memory: i32,
    /// Programs beside pods to measure by themselves.
    #[prost(message, repeated, tag = "4")]
    pub host_applications: Vec<HostApplication>,
}

/// A program beside pods, by its cgroup.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HostApplication {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Koordinator's priority class, to be reported with it.
    #[prost(enumeration = "Priority", optional, tag = "2")]
    pub priority: Option<i32>,
    /// Koordinator's quality of service, to be reported with it.
    #[prost(enumeration = "Qos", optional, tag = "3")]
    pub qos: Option<i32>,
    /// Beneath which cgroup.
    #[prost(enumeration = "CgroupBase", tag = "4")]
    pub base: i32,
    /// The way from there.
    #[prost(string, tag = "5")]
    pub path: String,
}

/// A cgroup whose place depends on the node's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum CgroupBase {
    /// The root.
    Root = 0,
    /// Of all pods.
    Kubepods = 1,
    /// Of burstable pods.
    Burstable = 2,
    /// Of best-effort pods.
    BestEffort = 3,
}

/// `nodeMemoryCollectPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum MemoryPolicy {
    /// `usageWithoutPageCache`, the default.
    WithoutPageCache = 0,
    /// `usageWithHotPageCache`.
    WithHotPageCache = 1,
    /// `usageWithPageCache`.
    WithPageCache = 2,
}

impl Answer {
    /// A node reports at least so often, whatever interval it is asked for.
    pub const LONGEST_INTERVAL: Duration = Duration::from_mins(10);
}

impl Policy {
    /// How long a window of averages may be, in seconds: nodes keep half an hour.
    pub const AGGREGATE_DURATIONS_S: RangeInclusive<u32> = 10..=1_800;
    /// How long a window of percentiles may be, in seconds.
    pub const PERCENTILE_DURATIONS_S: RangeInclusive<u32> = 1..=1_800;
    /// So many windows of percentiles a node keeps.
    pub const MAX_PERCENTILES: usize = 8;
    /// Koordinator's default window of averages.
    pub const AGGREGATE_DURATION_S: u32 = 300;
    /// Koordinator's default windows of percentiles.
    pub const DURATIONS_S: [u32; 3] = [300, 600, 1_800];

    /// The same on every machine and in every version of this program that knows the same fields: FNV-1a of the encoding.
    pub fn hash(&self) -> u64 {
        self.encode_to_vec()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryPolicy, Policy};

    #[test]
    fn a_policy_is_known_by_its_hash() {
        let policy = |seconds, memory: MemoryPolicy| Policy {
            aggregate_duration_s: seconds,
            durations_s: vec![300],
            memory: memory.into(),
            host_applications: Vec::new(),
        };
        let one = policy(60, MemoryPolicy::WithoutPageCache);
        assert_eq!(one.hash(), one.clone().hash());
        assert_ne!(one.hash(), policy(61, MemoryPolicy::WithoutPageCache).hash());
        assert_ne!(one.hash(), policy(60, MemoryPolicy::WithPageCache).hash());
        // Published: a node and a leader of different builds must agree.
        assert_eq!(Policy::default().hash(), 0xcbf2_9ce4_8422_2325);
    }
}
