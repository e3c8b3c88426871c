//! JSON as it is written by hand: members of objects that are begun, in the order of the API's types.

use node_report::Resources;
use node_report::report::{Pressure, PressureData, PressureStats, RunQueue};

use super::binary_parts;

/// A member of an object that was begun, with a comma unless it is the first. Its name needs no escapes.
pub(super) fn key(name: &str, out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Amounts of resources, of an object that was begun.
pub(super) fn resources(usage: Option<Resources>, out: &mut Vec<u8>) {
    let usage = usage.unwrap_or_default();
    some("resources", out, |out| {
        if let Some(milli) = usage.cpu_milli {
            key("cpu", out);
            out.push(b'"');
            let whole = milli.is_multiple_of(1_000);
            digits(if whole { milli / 1_000 } else { milli }, out);
            out.extend_from_slice(if whole { b"\"" } else { b"m\"" });
        }
        if let Some(bytes) = usage.memory_bytes {
            let (number, suffix) = binary_parts(bytes);
            key("memory", out);
            out.push(b'"');
            digits(number, out);
            out.extend_from_slice(suffix.as_bytes());
            out.push(b'"');
        }
    });
}

pub(super) fn pressure(Pressure { cpu, memory, io }: &Pressure, out: &mut Vec<u8>) {
    key("pressure", out);
    object(out, |out| {
        for (name, stats) in [("cpu", cpu), ("memory", memory), ("io", io)] {
            if let Some(stats) = stats {
                key(name, out);
                stall(stats, out);
            }
        }
    });
}

pub(super) fn run_queue(run_queue: RunQueue, out: &mut Vec<u8>) {
    key("runQueue", out);
    object(out, |out| {
        number("averageDelayNanoseconds", run_queue.delay_ns, out);
        number("waitingMilli", run_queue.waiting_milli, out);
    });
}

fn stall(stats: &PressureStats, out: &mut Vec<u8>) {
    object(out, |out| {
        for (name, data) in [("some", &stats.some), ("full", &stats.full)] {
            if let Some(PressureData { avg10_ppm, avg60_ppm, avg300_ppm, window_ppm, total_us }) = data {
                key(name, out);
                object(out, |out| {
                    percent("avg10", *avg10_ppm, out);
                    percent("avg60", *avg60_ppm, out);
                    percent("avg300", *avg300_ppm, out);
                    percent("window", *window_ppm, out);
                    number("totalMicroseconds", *total_us, out);
                });
            }
        }
    });
}

pub(super) fn object(out: &mut Vec<u8>, members: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'{');
    members(out);
    out.push(b'}');
}

/// An object that is left out if nothing is in it.
pub(super) fn some(name: &str, out: &mut Vec<u8>, members: impl FnOnce(&mut Vec<u8>)) {
    let before = out.len();
    key(name, out);
    out.push(b'{');
    let begun = out.len();
    members(out);
    if out.len() == begun {
        out.truncate(before);
    } else {
        out.push(b'}');
    }
}

pub(super) fn text(name: &str, value: &str, out: &mut Vec<u8>) {
    key(name, out);
    // Counted and not searched for: that is done with many bytes at a time.
    let special = value.bytes().filter(|byte| matches!(byte, ..b' ' | b'"' | b'\\')).count();
    if special == 0 {
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    } else {
        // Writing a text into memory does not fail.
        let _ = serde_json::to_writer(out, value);
    }
}

/// A number of the API, which has signs.
pub(super) fn number(name: &str, value: Option<u64>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        key(name, out);
        digits(value.min(i64::MAX.unsigned_abs()), out);
    }
}

/// Parts per million as a percentage.
fn percent(name: &str, ppm: Option<u32>, out: &mut Vec<u8>) {
    let Some(ppm) = ppm else { return };
    key(name, out);
    digits(u64::from(ppm / 10_000), out);
    out.push(b'.');
    let mut rest = ppm % 10_000;
    // Each is a constant to divide by.
    for scale in [1_000, 100, 10, 1] {
        out.push(b'0' + u8::try_from(rest / scale).unwrap_or(0));
        rest %= scale;
        if rest == 0 {
            return;
        }
    }
}

fn digits(number: u64, out: &mut Vec<u8>) {
    // Writing a number into memory does not fail.
    let _ = serde_json::to_writer(out, &number);
}
