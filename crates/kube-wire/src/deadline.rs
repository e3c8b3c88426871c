//! `timeout` of a get or a list: within how long it wants to be answered. The API server reads it before anything else of the request
//! (`WithRequestDeadline`), and not of a watch, which lasts.
//! In: a query. Out: nothing, or the refusal.

use crate::{query::first, quoting::quoted, status::Status};

/// Nanoseconds of the units that Go knows, `µs` by both of its letters.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Refuses a `timeout` that is no duration, with the API server's status and words.
pub fn check(query: &str) -> Result<(), Status> {
    let Some(text) = first(query, "timeout").filter(|text| !text.is_empty()) else { return Ok(()) };
    is_duration(&text).map_err(|why| {
        Status::bad_request(format!("invalid timeout specified in the request URL - time: {why}"))
    })
}

/// Go's `time.ParseDuration`, as far as it refuses: `[-+]?([0-9]*(\.[0-9]*)?[a-z]+)+`, or a zero.
fn is_duration(whole: &str) -> Result<(), String> {
    let invalid = || format!("invalid duration {}", quoted(whole));
    let mut rest = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let integer = prefix(rest, is_digit);
        rest = &rest[integer.len()..];
        let fraction = rest.strip_prefix('.').map_or("", |behind| prefix(behind, is_digit));
        if integer.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        rest = rest.strip_prefix('.').map_or(rest, |behind| &behind[fraction.len()..]);
        let integer: u64 = if integer.is_empty() { 0 } else { integer.parse().map_err(|_| invalid())? };
        let unit = prefix(rest, |c| !is_digit(c) && c != '.');
        if unit.is_empty() {
            return Err(format!("missing unit in duration {}", quoted(whole)));
        }
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("unknown unit {} in duration {}", quoted(unit), quoted(whole)));
        };
        sum = integer.checked_mul(*factor).and_then(|part| sum.checked_add(part)).ok_or_else(invalid)?;
        // Go keeps a sign in the same 64 bits.
        if sum > i64::MAX.unsigned_abs() {
            return Err(invalid());
        }
        rest = &rest[unit.len()..];
    }
    Ok(())
}

fn is_digit(character: char) -> bool {
    character.is_ascii_digit()
}

fn prefix(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    &text[..text.find(|c| !belongs(c)).unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_reads_is_fine() {
        for query in [
            "",
            "timeout=",
            "timeout=32s",
            "timeout=1h30m",
            "timeout=.5s",
            "timeout=5.s",
            "timeout=0",
            "timeout=-1s",
        ] {
            assert!(check(query).is_ok(), "{query}");
        }
        for query in [
            "timeout=1%C2%B5s",
            "timeout=1%CE%BCs",
            "timeoutSeconds=x",
            "timeout=1s&timeout=x",
            "timeout=2562047h",
        ] {
            assert!(check(query).is_ok(), "{query}");
        }
    }

    #[test]
    fn what_it_does_not_is_refused_in_its_words() {
        let cases = [
            ("timeout=abc", r#"invalid duration "abc""#),
            ("timeout=-", r#"invalid duration "-""#),
            ("timeout=.s", r#"invalid duration ".s""#),
            ("timeout=1..s", r#"missing unit in duration "1..s""#),
            ("timeout=5", r#"missing unit in duration "5""#),
            ("timeout=1h5", r#"missing unit in duration "1h5""#),
            ("timeout=5x", r#"unknown unit "x" in duration "5x""#),
            ("timeout=5s%20", r#"unknown unit "s " in duration "5s ""#),
            ("timeout=99999999999999999999s", r#"invalid duration "99999999999999999999s""#),
            ("timeout=2562048h", r#"invalid duration "2562048h""#),
        ];
        for (query, why) in cases {
            let status = check(query).unwrap_err();
            assert_eq!(status.code, 400);
            assert_eq!(
                status.message,
                format!("invalid timeout specified in the request URL - time: {why}"),
                "{query}"
            );
        }
    }
}
