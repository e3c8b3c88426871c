//! JSON strings with the escapes of Go's `encoding/json`, which also escapes what HTML would take for markup.

use std::io::Write as _;

/// Writes a JSON string. What is not UTF-8 is replaced, each byte, as Go does.
pub(super) fn write(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    if std::str::from_utf8(text).is_ok() {
        write_escaped(out, text);
    } else {
        for chunk in text.utf8_chunks() {
            write_escaped(out, chunk.valid().as_bytes());
            for _ in chunk.invalid() {
                out.extend_from_slice(b"\\ufffd");
            }
        }
    }
    out.push(b'"');
}

/// Writes UTF-8 with its escapes.
fn write_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut written = 0;
    for (at, byte) in text.iter().enumerate() {
        if !MAY_NEED_ESCAPE[usize::from(*byte)] {
            continue;
        }
        let length = if *byte == 0xe2 {
            if !is_line_separator(&text[at..]) {
                continue;
            }
            3
        } else {
            1
        };
        out.extend_from_slice(&text[written..at]);
        escape(out, &text[at..at + length]);
        written = at + length;
    }
    out.extend_from_slice(&text[written..]);
}

/// Bytes that are escaped, or may begin a character that is.
const MAY_NEED_ESCAPE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'&' as usize] = true;
    table[0xe2] = true;
    table
};

/// Whether the text begins with U+2028 or U+2029, which JavaScript took for the end of a line.
pub(super) fn is_line_separator(text: &[u8]) -> bool {
    matches!(text, [0xe2, 0x80, 0xa8 | 0xa9, ..])
}

/// Writes the escape of one character.
pub(super) fn escape(out: &mut Vec<u8>, character: &[u8]) {
    let short = match character {
        [b'"'] => b"\\\"",
        [b'\\'] => b"\\\\",
        [b'\n'] => b"\\n",
        [b'\r'] => b"\\r",
        [b'\t'] => b"\\t",
        [0x08] => b"\\b",
        [0x0c] => b"\\f",
        [.., last] => {
            // The last byte tells U+2028 from U+2029, and is the character of all others.
            let number =
                if character.len() == 3 { 0x2000 + u32::from(last & 0x3f) } else { u32::from(*last) };
            let _ = write!(out, "\\u{number:04x}");
            return;
        }
        [] => return,
    };
    out.extend_from_slice(short);
}
