//! Formats of text, those that the API server checks of custom resources. An unknown format is no format.

/// Whether `text` is of this format; so is any text of a format that is not known.
pub(super) fn is(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => date_time(text),
        "date" => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
        "duration" => duration(text),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "byte" => {
            let body = text.trim_end_matches('=');
            text.len().is_multiple_of(4)
                && text.len() - body.len() <= 2
                && body
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_'))
        }
        "uuid" => {
            text.len() == 36
                && text.bytes().enumerate().all(|(at, byte)| match at {
                    8 | 13 | 18 | 23 => byte == b'-',
                    _ => byte.is_ascii_hexdigit(),
                })
        }
        _ => true,
    }
}

/// RFC 3339.
fn date_time(text: &str) -> bool {
    text.get(10..11).is_some_and(|separator| separator.eq_ignore_ascii_case("t"))
        && text.parse::<jiff::Timestamp>().is_ok()
}

/// Go's: `1h30m`, `1.5s`, `-3ms`; or whole words of days and weeks.
fn duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        if number.is_empty() || number.parse::<f64>().is_err() {
            return false;
        }
        let tail = tail.trim_start();
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        if !matches!(
            unit,
            "ns" | "us"
                | "µs"
                | "ms"
                | "s"
                | "m"
                | "h"
                | "d"
                | "w"
                | "sec"
                | "secs"
                | "second"
                | "seconds"
                | "min"
                | "mins"
                | "minute"
                | "minutes"
                | "hour"
                | "hours"
                | "day"
                | "days"
                | "week"
                | "weeks"
        ) {
            return false;
        }
        rest = tail;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is;

    #[test]
    fn formats_are_the_api_servers() {
        for (format, text, expected) in [
            ("date-time", "2026-11-21T03:51:03Z", true),
            ("date-time", "2026-11-21T03:51:03.5+01:00", true),
            ("date-time", "2026-11-21", false),
            ("date-time", "x", false),
            ("date", "2026-11-21", true),
            ("duration", "1h30m", true),
            ("duration", "1.5s", true),
            ("duration", "x", false),
            ("duration", "", false),
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "10.0.0", false),
            ("byte", "YWI=", true),
            ("byte", "YWI", false),
            ("uuid", "f8a32f73-4b0d-4bac-a2bc-9f36e8469bc5", true),
            ("uuid", "f8a32f73", false),
            ("huh", "anything", true),
        ] {
            assert_eq!(is(format, text), expected, "{format} {text:?}");
        }
    }
}
