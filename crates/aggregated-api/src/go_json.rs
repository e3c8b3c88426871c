//! Where JSON ends to be JSON, in Go's words: a scanner that knows no values, only what may come next.

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    AfterMember,
    AfterItem,
    Top,
}

/// Why Go's scanner refuses a text; `None` if it does not, or only for its end.
pub(crate) fn syntax_error(text: &[u8]) -> Option<String> {
    let mut stack: Vec<u8> = Vec::new();
    let mut expect = Expect::Value;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            at += 1;
            continue;
        }
        let context = match expect {
            Expect::Value | Expect::ValueOrEnd => "looking for beginning of value",
            Expect::Key | Expect::KeyOrEnd => "looking for beginning of object key string",
            Expect::Colon => "after object key",
            Expect::AfterMember => "after object key:value pair",
            Expect::AfterItem => "after array element",
            Expect::Top => "after top-level value",
        };
        match (expect, byte) {
            (Expect::KeyOrEnd | Expect::AfterMember, b'}')
            | (Expect::ValueOrEnd | Expect::AfterItem, b']') => {
                stack.pop();
                expect = after(&stack);
                at += 1;
            }
            (Expect::Key | Expect::KeyOrEnd, b'"') => {
                at = match string(text, at + 1)? {
                    Ok(end) => end,
                    Err(error) => return Some(error),
                };
                expect = Expect::Colon;
            }
            (Expect::AfterMember, b',') => {
                expect = Expect::Key;
                at += 1;
            }
            (Expect::Colon, b':') | (Expect::AfterItem, b',') => {
                expect = Expect::Value;
                at += 1;
            }
            (Expect::Value | Expect::ValueOrEnd, b'{' | b'[') => {
                stack.push(byte);
                expect = if byte == b'{' { Expect::KeyOrEnd } else { Expect::ValueOrEnd };
                at += 1;
            }
            (Expect::Value | Expect::ValueOrEnd, b'"') => {
                at = match string(text, at + 1)? {
                    Ok(end) => end,
                    Err(error) => return Some(error),
                };
                expect = after(&stack);
            }
            (Expect::Value | Expect::ValueOrEnd, b't' | b'f' | b'n') => {
                let word: &[u8] = match byte {
                    b't' => b"true",
                    b'f' => b"false",
                    _ => b"null",
                };
                for (offset, letter) in word.iter().enumerate() {
                    let found = text.get(at + offset)?;
                    if found != letter {
                        let word = String::from_utf8_lossy(word);
                        let wanted = char::from(*letter);
                        return Some(refuse(*found, &format!("in literal {word} (expecting '{wanted}')")));
                    }
                }
                at += word.len();
                expect = after(&stack);
            }
            (Expect::Value | Expect::ValueOrEnd, b'-' | b'0'..=b'9') => {
                at += 1;
                while text
                    .get(at)
                    .is_some_and(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
                {
                    at += 1;
                }
                expect = after(&stack);
            }
            _ => return Some(refuse(byte, context)),
        }
    }
    None
}

/// Where the string ends; an error if it holds what it must not.
fn string(text: &[u8], mut at: usize) -> Option<Result<usize, String>> {
    loop {
        match text.get(at)? {
            b'"' => return Some(Ok(at + 1)),
            b'\\' => at += 2,
            byte if *byte < 0x20 => return Some(Err(refuse(*byte, "in string literal"))),
            _ => at += 1,
        }
    }
}

fn after(stack: &[u8]) -> Expect {
    match stack.last() {
        None => Expect::Top,
        Some(b'{') => Expect::AfterMember,
        Some(_) => Expect::AfterItem,
    }
}

fn refuse(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        other if other.is_ascii_graphic() || other == b' ' => format!("'{}'", char::from(other)),
        other if other.is_ascii() => format!("'\\x{other:02x}'"),
        other => format!("'{}'", char::from(other)),
    };
    format!("invalid character {shown} {context}")
}

#[cfg(test)]
mod tests {
    use super::syntax_error;

    #[test]
    fn errors_are_gos() {
        for (text, expected) in [
            ("{x", "invalid character 'x' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 2}", "invalid character '2' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1] 2", "invalid character '2' after top-level value"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("?", "invalid character '?' looking for beginning of value"),
        ] {
            assert_eq!(syntax_error(text.as_bytes()).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(syntax_error(b"{\"a\":[1,true,\"x\",{}]}"), None);
    }
}
