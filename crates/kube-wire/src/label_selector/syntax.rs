//! Checks of the keys and values of a selector, in the API server's words.

use crate::names::{label_value_errors, qualified_name_errors};
use crate::quoting::quoted;

/// Checks a key: an optional DNS subdomain and `/`, and a name.
pub(super) fn check_key(key: &str) -> Result<(), String> {
    let errors = qualified_name_errors(key);
    // The path of the key is nil there, which Go writes so.
    if errors.is_empty() {
        Ok(())
    } else {
        Err(format!("<nil>: Invalid value: {}: {}", quoted(key), errors.join("; ")))
    }
}

/// What is wrong with a value, if anything.
pub(super) fn value_error(value: &str) -> Option<String> {
    let errors = label_value_errors(value);
    (!errors.is_empty()).then(|| format!("Invalid value: {}: {}", quoted(value), errors.join("; ")))
}
