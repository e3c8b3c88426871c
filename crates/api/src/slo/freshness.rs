//! How old a node's metrics are, by the clock of the server that took the report, and the few figures that `kubectl get`
//! shows. Both are the server's; a node's clock counts in neither.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a node goes on reporting.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub enum FreshnessState {
    /// It has reported before, and not to this server yet.
    #[default]
    Unknown,
    /// It has never reported to anybody.
    NeverReported,
    /// It reports as it is asked to.
    Fresh,
    /// Reports are missing.
    Stale,
    /// It has been silent for so long that its metrics mean nothing; they are about to disappear.
    Expired,
}

impl FreshnessState {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::NeverReported => "NeverReported",
            Self::Fresh => "Fresh",
            Self::Stale => "Stale",
            Self::Expired => "Expired",
        }
    }
}

/// How old the metrics are.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Freshness {
    /// Fresh, Stale, Expired, NeverReported or Unknown; judged by the server's steady clock, whatever the clock of the node says.
    pub state: FreshnessState,

    /// When the server received the last report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_time: Option<Time>,

    /// How old the last report was when this state began, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<i64>,

    /// When the node took its last sample, by its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_time: Option<MicroTime>,
}

/// What a person wants to see first.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// CPU in use, such as `1250m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,

    /// Of the node's allocatable CPU, such as `31%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<String>,

    /// Memory in use, such as `3120Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,

    /// Of the node's allocatable memory, such as `40%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<String>,

    /// What CPU use stayed below for 95 % of the shortest window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_p95: Option<String>,

    /// Shares of the last 10 s in which something waited, in percent: CPU/memory/IO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<String>,

    /// Pods that run there.
    pub pods: i32,
}
