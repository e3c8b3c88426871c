//! Text in quotes as Go's `%q` writes it: the words of the API server's errors depend on it.

use std::fmt::Write as _;

/// `text` in double quotes, with Go's escapes.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            // Writing to a string does not fail.
            control if control.is_ascii_control() => drop(write!(out, "\\x{:02x}", u32::from(control))),
            control if control.is_control() => drop(write!(out, "\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_is_quoted_as_go_does() {
        for (text, expected) in [
            ("a", r#""a""#),
            ("a\"b\\", r#""a\"b\\""#),
            ("\n\t\u{1}\u{7f}\u{85}é", r#""\n\t\x01\x7f\u0085é""#),
        ] {
            assert_eq!(super::quoted(text), expected);
        }
    }
}
