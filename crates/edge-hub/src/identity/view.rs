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
pub struct Report(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// Its problem is what went wrong last.
    view: IdentityView,
    /// What is wrong with what is shown, as long as it is shown.
    unfit: Option<&'static str>,
}

impl Report {
    /// How it is now.
    pub fn view(&self) -> IdentityView {
        let Said { view, unfit } = &*self.0.lock();
        let problem = match (&view.problem, unfit) {
            (Some(problem), Some(unfit)) => Some(format!("{problem}; {unfit}")),
            (problem, unfit) => problem.clone().or_else(|| unfit.map(str::to_owned)),
        };
        IdentityView { problem, ..view.clone() }
    }

    /// `unfit`: why what is shown is not what it should be.
    pub(super) fn shows(
        &self,
        state: IdentityState,
        user: Option<String>,
        not_after: Option<Timestamp>,
        renew_at: Option<Timestamp>,
        unfit: Option<&'static str>,
    ) {
        let Said { view, unfit: before } = &mut *self.0.lock();
        view.state = state;
        view.user = user;
        view.not_after = not_after.map(|time| time.to_string());
        view.renew_at = renew_at.map(|time| time.to_string());
        *before = unfit;
    }

    pub(super) fn problem(&self, problem: Option<String>) {
        self.0.lock().view.problem = problem;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_certificate_is_told_while_it_is_shown() {
        let report = Report::default();
        let user = || Some("system:node:a".to_owned());
        report.shows(IdentityState::Given, user(), None, None, Some("of another"));
        assert_eq!(report.view().problem.as_deref(), Some("of another"));
        report.problem(Some("denied".to_owned()));
        assert_eq!(report.view().problem.as_deref(), Some("denied; of another"));
        report.problem(None);
        assert_eq!(report.view().problem.as_deref(), Some("of another"), "it is shown yet");
        report.shows(IdentityState::Given, user(), None, None, None);
        assert_eq!(report.view().problem, None);
    }
}
