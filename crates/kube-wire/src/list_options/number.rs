//! Numbers in a query, with the words of Go's `strconv` for what is none.

use crate::{quoting::quoted, resource_version::ResourceVersion};

fn refused(function: &str, text: &str) -> String {
    let digits = text.strip_prefix(['+', '-']).filter(|_| function == "ParseInt").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {}: {why}", quoted(text))
}

/// A signed number of 64 bits.
pub(super) fn signed(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| refused("ParseInt", text))
}

/// A resource version; `None` for "" and for zero.
pub(super) fn resource_version(text: &str) -> Result<Option<ResourceVersion>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let unsigned = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    unsigned.map(ResourceVersion::new).ok_or_else(|| {
        let error = refused("ParseUint", text);
        format!("resourceVersion: Invalid value: {}: {error}", quoted(text))
    })
}
