//! Times and lengths of time as Kubernetes writes them.

use std::{io::Write as _, ops::Range};

use super::TranscodeError;

/// The seconds of Go's zero time, 0001-01-01T00:00:00Z.
pub(super) const GO_ZERO: i64 = -62_135_596_800;

const DAY: i64 = 86_400;

/// Writes `"2006-01-02T15:04:05Z"`.
pub(super) fn write_seconds(out: &mut Vec<u8>, seconds: i64) -> Result<(), TranscodeError> {
    out.push(b'"');
    write_date_and_time(out, seconds)?;
    out.extend_from_slice(b"Z\"");
    Ok(())
}

/// Writes `"2006-01-02T15:04:05.000000Z"`.
pub(super) fn write_microseconds(
    out: &mut Vec<u8>,
    seconds: i64,
    nanoseconds: i32,
) -> Result<(), TranscodeError> {
    if !(0..1_000_000_000).contains(&nanoseconds) {
        return Err(TranscodeError::Malformed("nanoseconds of a time"));
    }
    out.push(b'"');
    write_date_and_time(out, seconds)?;
    let _ = write!(out, ".{:06}Z\"", nanoseconds / 1000);
    Ok(())
}

fn write_date_and_time(out: &mut Vec<u8>, seconds: i64) -> Result<(), TranscodeError> {
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    // Outside of these years RFC 3339 has no form; this also bounds the arithmetic below.
    if !(-719_528..2_932_897).contains(&days) {
        return Err(TranscodeError::Malformed("year of a time"));
    }
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    Ok(())
}

/// Reads what [`write_seconds`] writes, without the quotes.
pub(super) fn read_seconds(text: &str) -> Result<i64, TranscodeError> {
    let number = |at: Range<usize>| -> Option<i64> {
        let digits = text.get(at)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let read = || -> Option<i64> {
        let days = days(number(0..4)?, number(5..7)?, number(8..10)?);
        Some(days * DAY + number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?)
    };
    let seconds = read().ok_or(TranscodeError::Malformed("a time"))?;
    // No day that there is not, no part of a second and no other zone: what is not written just so is not read.
    let mut written = Vec::with_capacity(text.len() + 2);
    write_seconds(&mut written, seconds)?;
    let is_same = written.get(1..written.len() - 1) == Some(text.as_bytes());
    if is_same { Ok(seconds) } else { Err(TranscodeError::Malformed("a time")) }
}

/// The day, counted from 1970-01-01: `days_from_civil` of the same author.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day counted from 1970-01-01, by Howard Hinnant's `civil_from_days`: years begin in March, so
/// that the leap day is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Writes a length of time as Go's `time.Duration` prints it: `"1h0m0.5s"`, `"100ms"`.
pub(super) fn write_duration(out: &mut Vec<u8>, nanoseconds: i64) {
    out.push(b'"');
    if nanoseconds < 0 {
        out.push(b'-');
    }
    let size = nanoseconds.unsigned_abs();
    let _ = match size {
        0 => write!(out, "0s"),
        1..1_000 => write!(out, "{size}ns"),
        1_000..1_000_000 => write_decimal(out, size, 1_000, "µs"),
        1_000_000..1_000_000_000 => write_decimal(out, size, 1_000_000, "ms"),
        _ => {
            let minutes = size / 60_000_000_000;
            if minutes >= 60 {
                let _ = write!(out, "{}h", minutes / 60);
            }
            if minutes > 0 {
                let _ = write!(out, "{}m", minutes % 60);
            }
            write_decimal(out, size % 60_000_000_000, 1_000_000_000, "s")
        }
    };
    out.push(b'"');
}

/// Writes `number / unit` without zeros at the end.
fn write_decimal(out: &mut Vec<u8>, number: u64, unit: u64, name: &str) -> std::io::Result<()> {
    write!(out, "{}", number / unit)?;
    let (mut rest, mut unit) = (number % unit, unit);
    if rest > 0 {
        out.push(b'.');
    }
    while rest > 0 {
        unit /= 10;
        write!(out, "{}", rest / unit)?;
        rest %= unit;
    }
    out.extend_from_slice(name.as_bytes());
    Ok(())
}
