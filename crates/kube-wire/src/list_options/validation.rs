//! Which options go together: `ValidateListOptions` of the API server, whose errors are all reported in one status 422.

use super::Options;
use crate::status::{FieldError, Status};

const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";

fn result(errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", "ListOptions", "", errors)) }
}

/// Checks the options of a list.
pub(super) fn list(options: &Options<'_>) -> Result<(), Status> {
    let mut errors = Vec::new();
    let version_match = &*options.version_match;
    if !version_match.is_empty() {
        if options.resource_version.is_empty() {
            let words = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(MATCH, words));
        }
        if !options.continue_token.is_empty() {
            errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(version_match, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(MATCH, version_match, &["Exact", "NotOlderThan", ""]));
        }
        if version_match == "Exact" && options.resource_version == "0" {
            let words = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(MATCH, words));
        }
    }
    if options.initial_events.is_some() {
        errors.push(FieldError::forbidden(INITIAL, "sendInitialEvents is forbidden for list"));
    }
    result(&errors)
}

/// Checks the options of a watch.
pub(super) fn watch(options: &Options<'_>) -> Result<(), Status> {
    let mut errors = Vec::new();
    let version_match = &*options.version_match;
    if options.initial_events.is_some() && version_match != "NotOlderThan" {
        let words = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(MATCH, words));
    }
    if !version_match.is_empty() {
        if options.initial_events.is_none() {
            let words = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(MATCH, words));
        }
        if version_match != "NotOlderThan" {
            errors.push(FieldError::not_supported(MATCH, version_match, &["NotOlderThan"]));
        }
        if !options.continue_token.is_empty() {
            errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
    result(&errors)
}
