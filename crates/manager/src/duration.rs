//! Durations as they are typed on the command line.

use std::time::Duration;

use jiff::SignedDuration;

/// Reads a duration such as `500ms`, `15s`, `1h30m` or `90d`: what Kubernetes' own components read, and whole days.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let span = match text.strip_suffix('d').map(str::parse::<i64>) {
        Some(Ok(days)) => SignedDuration::from_hours(days.checked_mul(24).ok_or("too long")?),
        _ => text.parse().map_err(|error| format!("not a duration such as 15s, 10m or 90d: {error}"))?,
    };
    Duration::try_from(span).map_err(|_| "a duration must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let day = Duration::from_hours(24);
        let cases = [
            ("500ms", Some(Duration::from_millis(500))),
            ("15s", Some(Duration::from_secs(15))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("1h30m", Some(day / 16)),
            ("90d", Some(day * 90)),
        ];
        let refused =
            [("", None), ("-1s", None), ("soon", None), ("9999999999999999999d", None), ("5", None)];
        for (text, expected) in cases.into_iter().chain(refused) {
            assert_eq!(parse(text).ok(), expected, "{text:?}");
        }
    }
}
