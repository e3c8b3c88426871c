//! The parameters of lists and watches: decoded and validated as an API server does, with its errors and in its order.
//!
//! Pure. What the store holds is not known here.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::kind::Kind;
use super::status::{Answer, Status};
use crate::selector::{FieldSelector, LabelSelector};

/// The value of a parameter.
pub(crate) fn parameter(query: &str, name: &str) -> Option<String> {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then(|| percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned())
    };
    query.split('&').find_map(pair)
}

/// Go's conversion of a query parameter to a boolean: what is not false is true.
pub(crate) fn flag(query: &str, name: &str) -> Option<bool> {
    parameter(query, name).map(|value| !matches!(value.to_lowercase().as_str(), "false" | "0"))
}

fn integer(query: &str, name: &str) -> Answer<Option<i64>> {
    let Some(text) = parameter(query, name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let malformed = |_| Status::bad_request(&format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    text.parse().map(Some).map_err(malformed)
}

/// What the API server says of a `timeout` that has no unit, the one wrong kind that [`crate::differential`] asks with.
pub(crate) fn deadline(query: &str, verb: &str) -> Answer<()> {
    let text = parameter(query, "timeout").unwrap_or_default();
    // A watch lasts.
    if verb == "watch"
        || text.is_empty()
        || text == "0"
        || text.ends_with(|last: char| last.is_ascii_alphabetic())
    {
        return Ok(());
    }
    let words = "invalid timeout specified in the request URL - time: missing unit in duration";
    Err(Status::bad_request(&format!("{words} {text:?}")))
}

/// What the API server says of `export`, which a get had once and a list has not.
pub(crate) fn export(query: &str) -> Answer<()> {
    if flag(query, "export") == Some(true) {
        let words = "the export parameter, deprecated since v1.14, is no longer supported";
        return Err(Status::bad_request(words));
    }
    Ok(())
}

/// Options of a list or a watch, valid in themselves.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rv: String,
    pub(crate) rv_match: String,
    pub(crate) limit: i64,
    pub(crate) token: String,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) bookmarks: bool,
    pub(crate) timeout_seconds: Option<i64>,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Options {
    pub(crate) fn parse(query: &str, watch: bool, kind: &Kind) -> Answer<Self> {
        let text = |name| parameter(query, name).unwrap_or_default();
        let malformed = |error: crate::selector::SelectorError| Status::bad_request(&error.0);
        let mut options = Self {
            rv: text("resourceVersion"),
            rv_match: text("resourceVersionMatch"),
            limit: integer(query, "limit")?.unwrap_or(0),
            token: text("continue"),
            send_initial_events: flag(query, "sendInitialEvents"),
            bookmarks: flag(query, "allowWatchBookmarks").unwrap_or(false),
            timeout_seconds: integer(query, "timeoutSeconds")?,
            labels: LabelSelector::parse(&text("labelSelector")).map_err(malformed)?,
            fields: FieldSelector::parse(&text("fieldSelector")).map_err(malformed)?,
        };
        // A watch from nowhere is a WatchList since that is on by default (apimachinery, SetListOptionsDefaults).
        let defaulted = watch && options.send_initial_events.is_none() && options.rv_match.is_empty();
        if defaulted && (options.rv.is_empty() || options.rv == "0") {
            options.send_initial_events = Some(true);
            "NotOlderThan".clone_into(&mut options.rv_match);
        }
        options.validate(watch)?;
        options.supported(kind)?;
        Ok(options)
    }

    /// apimachinery, `ValidateListOptions`.
    fn validate(&self, watch: bool) -> Answer<()> {
        const FORBIDDEN: &str = "FieldValueForbidden";
        const UNSUPPORTED: &str = "FieldValueNotSupported";
        let mut causes = Vec::new();
        let mut cause = |reason, field, message: &str| causes.push((reason, field, message.to_owned()));
        let matching = "resourceVersionMatch";
        let unsupported = |supported: &str| {
            format!("Unsupported value: {:?}: supported values: {supported}", self.rv_match)
        };
        if watch {
            let given = !self.rv_match.is_empty();
            if given && self.send_initial_events.is_none() {
                cause(
                    FORBIDDEN,
                    matching,
                    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
            if self.send_initial_events.is_some() && self.rv_match != "NotOlderThan" {
                cause(
                    FORBIDDEN,
                    matching,
                    "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            }
            if given && self.rv_match != "NotOlderThan" {
                cause(UNSUPPORTED, matching, &unsupported("\"NotOlderThan\""));
            }
            if given && !self.token.is_empty() {
                cause(
                    FORBIDDEN,
                    matching,
                    "Forbidden: resourceVersionMatch is forbidden when continue is provided",
                );
            }
        } else {
            if !self.rv_match.is_empty() {
                if self.rv.is_empty() {
                    cause(
                        FORBIDDEN,
                        matching,
                        "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                    );
                }
                if !self.token.is_empty() {
                    cause(
                        FORBIDDEN,
                        matching,
                        "Forbidden: resourceVersionMatch is forbidden when continue is provided",
                    );
                }
                if !["Exact", "NotOlderThan"].contains(&self.rv_match.as_str()) {
                    cause(UNSUPPORTED, matching, &unsupported("\"Exact\", \"NotOlderThan\", \"\""));
                }
                if self.rv_match == "Exact" && self.rv == "0" {
                    cause(
                        FORBIDDEN,
                        matching,
                        "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                    );
                }
            }
            if self.send_initial_events.is_some() {
                cause(FORBIDDEN, "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list");
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(Status::invalid_options(&causes)) }
    }

    fn supported(&self, kind: &Kind) -> Answer<()> {
        for path in self.fields.paths() {
            // A custom resource without namespaces has none to be selected by.
            let has_namespace = kind.typed || kind.namespaced;
            let general = path == "metadata.name" || has_namespace && path == "metadata.namespace";
            if general || kind.fields.iter().any(|field| field == path) {
                continue;
            }
            let message = if !kind.typed || !kind.fields.is_empty() {
                format!("field label not supported: {path}")
            } else {
                format!(
                    "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )
            };
            return Err(Status::bad_request(&message));
        }
        Ok(())
    }

    /// The version asked for; `None` if it is left to the server. Errors are the bare text, for lists and watches say
    /// different things about it.
    pub(crate) fn version(&self) -> Result<Option<u64>, String> {
        if self.rv.is_empty() {
            return Ok(None);
        }
        let malformed = |error: std::num::ParseIntError| {
            let why = match error.kind() {
                std::num::IntErrorKind::PosOverflow => "value out of range",
                _ => "invalid syntax",
            };
            format!(
                "resourceVersion: Invalid value: {:?}: strconv.ParseUint: parsing {:?}: {why}",
                self.rv, self.rv
            )
        };
        // Rust reads a leading plus; Go does not.
        if self.rv.starts_with('+') {
            return Err(format!(
                "resourceVersion: Invalid value: {:?}: strconv.ParseUint: parsing {:?}: invalid syntax",
                self.rv, self.rv
            ));
        }
        self.rv.parse().map(Some).map_err(malformed)
    }
}

/// Where a list goes on: `rv` is -1 if at any later version; `start` is relative to the list's prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinueToken {
    /// The version the list is of, or -1.
    pub rv: i64,
    /// The first key that may be in the page, without the slash it begins with.
    pub start: String,
}

impl ContinueToken {
    /// As text, in the API server's own form.
    pub fn encode(&self) -> String {
        // A real server writes the slash but into a token that goes on at any version; it reads both.
        let slash = if self.rv < 0 { "" } else { "/" };
        let start = Value::from(format!("{slash}{}", self.start));
        URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":{},"start":{start}}}"#, self.rv))
    }

    /// From text; errors in the API server's words.
    pub fn decode(text: &str) -> Result<Self, String> {
        let invalid = |problem: &str| format!("continue key is not valid: {problem}");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid("illegal base64 data"))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| invalid("invalid character"))?;
        if value["v"] != "meta.k8s.io/v1" {
            return Err(
                "continue key is not valid: server does not recognize this encoded version".to_owned()
            );
        }
        let start = value["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)"));
        }
        let rv = value["rv"].as_i64().unwrap_or(0);
        if rv == 0 {
            return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        let start = start.strip_prefix('/').unwrap_or(start);
        Ok(Self { rv, start: start.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_as_captured_from_an_api_server() {
        let captured = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzcyLCJzdGFydCI6Ii9jbS1hXHUwMDAwIn0";
        let token = ContinueToken { rv: 372, start: "cm-a\0".to_owned() };
        assert_eq!(ContinueToken::decode(captured).unwrap(), token);
        assert_eq!(token.encode(), captured);
        assert!(ContinueToken::decode("junk").is_err());
    }

    #[test]
    fn parameters_are_decoded() {
        assert_eq!(parameter("a=1&labelSelector=x+in+%28y%29", "labelSelector").unwrap(), "x in (y)");
        assert_eq!(flag("watch=junk", "watch"), Some(true));
        assert_eq!(flag("watch=0", "watch"), Some(false));
        assert_eq!(flag("", "watch"), None);
    }
}
