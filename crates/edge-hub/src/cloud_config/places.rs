//! What each place that configures the hub said last, and what of it counts for nothing: for the log once, and for `edge-hub status`.

use serde::{Deserialize, Serialize};
use tracing::warn;

/// A file or a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The file's path, or namespace and name of the ConfigMap.
    pub name: String,
    /// Whether it says anything.
    pub state: PlaceState,
    /// The version of the ConfigMap that counts.
    #[serde(default)]
    pub version: Option<u64>,
    /// What of it counts for nothing, each by its key, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Whether a place says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PlaceState {
    /// It was not read since the hub began.
    Unread,
    /// It is not there.
    Absent,
    /// What it says counts, but for its problems.
    InForce,
    /// What it says cannot be read: what it said before counts, if it said anything.
    NotInForce,
}

impl Place {
    /// One that was not read yet.
    pub(super) fn unread(name: String) -> Self {
        Self { name, state: PlaceState::Unread, version: None, problems: Vec::new() }
    }

    /// It was read. What is new of its problems is logged.
    pub(super) fn says(&mut self, version: Option<u64>, problems: Vec<String>) {
        self.counts(version);
        self.tell(problems);
    }

    /// It was read; what of it counts for nothing depends on what else is said.
    pub(super) fn counts(&mut self, version: Option<u64>) {
        self.state = PlaceState::InForce;
        self.version = version;
    }

    /// It says something of which nothing can be read.
    pub(super) fn says_nothing(&mut self, problems: Vec<String>) {
        self.state = PlaceState::NotInForce;
        self.tell(problems);
    }

    /// What of it counts for nothing; what is new of that is logged.
    pub(super) fn tell(&mut self, problems: Vec<String>) {
        for problem in problems.iter().filter(|problem| !self.problems.contains(problem)) {
            warn!(place = self.name, "{problem}");
        }
        self.problems = problems;
    }

    /// It is not there.
    pub(super) fn is_absent(&mut self) {
        *self = Self { state: PlaceState::Absent, ..Self::unread(std::mem::take(&mut self.name)) };
    }

    /// As it is shown while there is something more to say of it, which is no fault of its own.
    pub(super) fn with(&self, more: Option<String>) -> Self {
        Self { problems: self.problems.iter().cloned().chain(more).collect(), ..self.clone() }
    }
}
