//! JSON within a message, as `FieldsV1` and `RawExtension` hold it: checked, and written without spaces as Go does.

use serde::de::IgnoredAny;

use super::TranscodeError;
use super::text;

/// Writes a JSON value that was sent as bytes. It must be one, or the whole answer would be none.
pub(super) fn write(out: &mut Vec<u8>, json: &[u8]) -> Result<(), TranscodeError> {
    let json = std::str::from_utf8(json).map_err(|_| TranscodeError::EmbeddedNotJson)?;
    serde_json::from_str::<IgnoredAny>(json).map_err(|_| TranscodeError::EmbeddedNotJson)?;
    write_compact(out, json.as_bytes());
    Ok(())
}

/// Leaves out spaces between tokens, and escapes what HTML would take for markup.
fn write_compact(out: &mut Vec<u8>, json: &[u8]) {
    let (mut in_string, mut written, mut at) = (false, 0, 0);
    while let Some(byte) = json.get(at) {
        let mut escaped = 0;
        match byte {
            b'"' => in_string = !in_string,
            // The character after it is part of the escape.
            b'\\' => at += 1,
            b' ' | b'\t' | b'\n' | b'\r' if !in_string => {
                out.extend_from_slice(&json[written..at]);
                written = at + 1;
            }
            b'<' | b'>' | b'&' => escaped = 1,
            0xe2 if text::is_line_separator(&json[at..]) => escaped = 3,
            _ => {}
        }
        if escaped > 0 {
            out.extend_from_slice(&json[written..at]);
            text::escape(out, &json[at..at + escaped]);
            written = at + escaped;
        }
        at += escaped.max(1);
    }
    out.extend_from_slice(&json[written..]);
}
