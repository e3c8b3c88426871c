//! What the hub says of its identity. Fields are only ever added; no key and no token is among them.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Where the hub's identity stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IdentityState {
    /// It has none yet.
    #[default]
    Missing,
    /// It shows the kubelet's certificate, or another that was given.
    Given,
    /// It shows its own.
    Own,
    /// Its certificate is no longer valid.
    Expired,
}

/// The hub's identity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityView {
    /// Where it stands.
    pub state: IdentityState,
    /// Whose certificate it is, where it was given.
    #[serde(default)]
    pub user: Option<String>,
    /// When the certificate ends, RFC 3339.
    pub not_after: Option<String>,
    /// When the next one is asked for, if the hub does that.
    pub renew_at: Option<String>,
    /// What went wrong last, until it goes right.
    pub problem: Option<String>,
}

/// Where the task that keeps the identity says how it is. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Report(Arc<Mutex<IdentityView>>);

impl Report {
    /// How it is now.
    pub fn view(&self) -> IdentityView {
        self.0.lock().clone()
    }

    pub(super) fn shows(
        &self,
        state: IdentityState,
        user: Option<String>,
        not_after: Option<Timestamp>,
        renew_at: Option<Timestamp>,
    ) {
        let mut view = self.0.lock();
        view.state = state;
        view.user = user;
        view.not_after = not_after.map(|time| time.to_string());
        view.renew_at = renew_at.map(|time| time.to_string());
    }

    pub(super) fn problem(&self, problem: Option<String>) {
        self.0.lock().problem = problem;
    }
}
