//! What was before the hub began: it does not know that, and the API server may tell it still. Nobody is told anything wrong then: 410 says to list anew.

use anyhow::Result;
use testkit::differential::{Case, Landmarks, Said, Subject, Verb};

use super::decoded::{is_gone, is_good};
use super::{CUSTOM, Pair};

/// Whether the API server tells what was before the hub began, and the hub says that it is gone.
pub(super) fn is_unknown(case: &Case, real: &Said, hub: &Said, landmarks: &Landmarks) -> Result<bool> {
    Ok(case.reaches_back() && is_good(case, real, landmarks)? && is_gone(case, hub, landmarks)?)
}

impl Pair {
    /// The same while the API server can be asked: then lists are its to answer. Of a custom resource it has no history either from before the
    /// definition, and has to say the same.
    pub(super) fn is_before_the_hub(&self, subject: &Subject, landmarks: &Landmarks) -> Result<bool> {
        let Self { case, real, hub } = self;
        let is_built_in = subject.root != CUSTOM;
        Ok(is_built_in && case.verb == Verb::Watch && is_unknown(case, real, hub, landmarks)?)
    }
}
