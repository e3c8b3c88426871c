//! Who asked for what and did not get it: one event each, target `tunnel::audit`, with fields of bounded length.

use tracing::warn;

use crate::protocol::OpenError;

/// The longest field.
const FIELD_MAX: usize = 256;

/// A stream was refused because nothing allows it.
pub(crate) fn refused(caller: &str, wanted: &str, request_id: &str, error: OpenError) {
    warn!(
        target: "tunnel::audit",
        caller = %clipped(caller),
        wanted = %clipped(wanted),
        request_id = %clipped(request_id),
        reason = error.reason(),
        "refused"
    );
}

/// At most so many bytes, and nothing that breaks a line.
fn clipped(text: &str) -> String {
    text.chars().take(FIELD_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_bounded_and_of_one_line() {
        assert_eq!(clipped("a\r\nb\u{1b}"), "a??b?");
        assert_eq!(clipped(&"x".repeat(1000)).len(), FIELD_MAX);
    }
}
