//! Looks into JSON text without decoding it: members of an object as ranges of the text. In: text that `serde_json` has
//! accepted once, or text of anybody, from which nothing sensible comes but also no panic.

use std::{borrow::Cow, ops::Range};

/// One member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The key, between its quotes, escapes as they stand.
    key: Range<usize>,
    /// The value.
    pub(crate) value: Range<usize>,
}

impl Member {
    /// Whether the key is `name`.
    pub(crate) fn is(&self, text: &[u8], name: &str) -> bool {
        let key = &text[self.key.clone()];
        key == name.as_bytes() || (key.contains(&b'\\') && self.key(text).is_some_and(|key| key == name))
    }

    /// The key, decoded.
    pub(crate) fn key<'a>(&self, text: &'a [u8]) -> Option<Cow<'a, str>> {
        string(text, self.key.start - 1..self.key.end + 1)
    }
}

/// The members of the object that stands at a range of some text. All positions are relative to that text.
#[derive(Debug, Clone)]
pub(crate) struct Members<'a> {
    text: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Members<'a> {
    /// The members of the object in `text[range]`; none if it is no object.
    pub(crate) fn within(text: &'a [u8], range: Range<usize>) -> Self {
        let end = range.end.min(text.len());
        let at = blank(text, range.start);
        let at = if text.get(at) == Some(&b'{') { at + 1 } else { end };
        Self { text, at, end }
    }

    /// The value of member `name`.
    pub(crate) fn get(mut self, name: &str) -> Option<Range<usize>> {
        let text = self.text;
        self.find(|member| member.is(text, name)).map(|member| member.value)
    }
}

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        let mut at = blank(self.text, self.at);
        if self.text.get(at) == Some(&b',') {
            at = blank(self.text, at + 1);
        }
        if at >= self.end || self.text.get(at) != Some(&b'"') {
            self.at = self.end;
            return None;
        }
        let key_end = string_end(self.text, at)?;
        let colon = blank(self.text, key_end);
        if self.text.get(colon) != Some(&b':') {
            return None;
        }
        let start = blank(self.text, colon + 1);
        let end = value_end(self.text, start).filter(|end| *end <= self.end)?;
        self.at = end;
        Some(Member { key: at + 1..key_end - 1, value: start..end })
    }
}

/// The `index`th element of the array in `text[range]`.
pub(crate) fn element(text: &[u8], range: Range<usize>, index: usize) -> Option<Range<usize>> {
    if text.get(range.start) != Some(&b'[') {
        return None;
    }
    let mut at = blank(text, range.start + 1);
    for _ in 0..index {
        at = blank(text, value_end(text, at)?);
        if text.get(at) != Some(&b',') {
            return None;
        }
        at = blank(text, at + 1);
    }
    if at >= range.end || text.get(at) == Some(&b']') {
        return None;
    }
    Some(at..value_end(text, at)?)
}

/// The string in `text[range]`, quotes included; `None` for any other value.
pub(crate) fn string(text: &[u8], range: Range<usize>) -> Option<Cow<'_, str>> {
    let quoted = text.get(range)?;
    let plain = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if plain.contains(&b'\\') {
        return serde_json::from_slice(quoted).ok().map(Cow::Owned);
    }
    std::str::from_utf8(plain).ok().map(Cow::Borrowed)
}

/// The first position from `at` on that is no white space.
pub(crate) fn blank(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
        at += 1;
    }
    at
}

/// Where the value that begins at `at` ends.
pub(crate) fn value_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at),
        b'{' | b'[' => nested_end(text, at),
        _ => {
            let rest = &text[at..];
            let length = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r'))
                .unwrap_or(rest.len());
            (length > 0).then_some(at + length)
        }
    }
}

/// Where the string whose opening quote stands at `at` ends, its closing quote included.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Where the object or array that begins at `at` ends. Counts only: a stack would let a hostile text take memory.
fn nested_end(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match text.get(at)? {
            b'"' => {
                at = string_end(text, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Members, element, string};

    fn get<'a>(text: &'a str, path: &[&str]) -> Option<&'a str> {
        let bytes = text.as_bytes();
        let mut range = 0..bytes.len();
        for name in path {
            range = Members::within(bytes, range).get(name)?;
        }
        text.get(range)
    }

    #[test]
    fn members_are_found_by_path() {
        let text = r#" { "a" : {"b":[1,{"c":"}"}], "d\u0065": "x\"y" }, "n":-1.5e3 ,"t":true}"#;
        for (path, value) in [
            (&["a", "b"][..], Some(r#"[1,{"c":"}"}]"#)),
            (&["a", "de"], Some(r#""x\"y""#)),
            (&["n"], Some("-1.5e3")),
            (&["t"], Some("true")),
            (&["a", "x"], None),
            (&["n", "x"], None),
        ] {
            assert_eq!(get(text, path), value, "{path:?}");
        }
    }

    #[test]
    fn strings_and_elements_are_decoded() {
        assert_eq!(string(br#""a\n""#, 0..5).as_deref(), Some("a\n"));
        assert_eq!(string(b"12", 0..2), None);
        let text = br#"[ {"ip":"1"} , 2]"#;
        assert_eq!(element(text, 0..text.len(), 0), Some(2..12));
        assert_eq!(element(text, 0..text.len(), 1), Some(15..16));
        assert_eq!(element(text, 0..text.len(), 2), None);
        assert_eq!(element(b"[]", 0..2, 0), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_ends(text in "[\\[\\]{}\",:\\\\a1 ]{0,40}") {
            let bytes = text.as_bytes();
            for member in Members::within(bytes, 0..bytes.len()) {
                prop_assert!(bytes.get(member.value.clone()).is_some());
                let _ = member.key(bytes);
            }
            let _ = element(bytes, 0..bytes.len(), 1);
        }
    }
}
