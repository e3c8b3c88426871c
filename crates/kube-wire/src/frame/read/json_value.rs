//! Finds the end of a JSON value that arrives in pieces, each byte looked at once.

/// How far a value was looked at.
#[derive(Debug, Default)]
pub(super) struct ValueScan {
    /// Bytes looked at.
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the value is a number, `true`, `false` or `null`, which end where something else begins.
    is_word: bool,
}

impl ValueScan {
    /// The length of the value that `bytes` begins with, once all of it is there. `bytes` must begin with what it began with before.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(byte) = bytes.get(self.at) {
            if self.is_word && matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r') {
                return Some(self.at);
            }
            self.at += 1;
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                    _ if self.depth == 0 => self.is_word = true,
                    _ => {}
                }
            }
            if self.depth == 0 && !self.in_string && !self.is_word {
                return Some(self.at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ValueScan;

    #[test]
    fn values_end_where_they_end() {
        for (text, length) in [
            ("{\"a\":[1,\"}\"]}x", Some(13)),
            ("\"a\\\"b\",", Some(6)),
            ("12,", Some(2)),
            ("12", None),
            ("true}", Some(4)),
            ("[[]", None),
            ("", None),
        ] {
            assert_eq!(ValueScan::default().end(text.as_bytes()), length, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[\\[\\]{}\",:\\\\a1 ]{0,40}", cut in 0..40_usize) {
            let bytes = text.as_bytes();
            let mut scan = ValueScan::default();
            let pieces = scan.end(&bytes[..cut.min(bytes.len())]).or_else(|| scan.end(bytes));
            prop_assert_eq!(pieces, ValueScan::default().end(bytes));
        }
    }
}
