//! The query of a URL as Go's `url.Query` reads it: pairs that are malformed are passed over, of a name that stands twice the first
//! value counts.

use std::borrow::Cow;

/// The first value of `name`.
pub(crate) fn first<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query
        .split('&')
        // Go refuses a semicolon, which others take for a separator.
        .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        .find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value)?;
            (decoded(key)? == name).then_some(value)
        })
}

/// `+` is a space and `%41` an `A`; `None` for a broken escape. What is no UTF-8 then is replaced.
pub(crate) fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            other => other,
        });
    }
    Some(Cow::Owned(String::from_utf8_lossy(&out).into_owned()))
}

pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn values_are_decoded() {
        for (query, value) in [
            ("", None),
            ("a=1", Some("1")),
            ("b=2&a=1&a=3", Some("1")),
            ("a", Some("")),
            ("a=b+c%2Cd", Some("b c,d")),
            ("%61=x", Some("x")),
            ("a=%4&a=2", Some("2")),
            ("a=%zz", None),
            ("a=1;b", None),
            ("a=1=2", Some("1=2")),
        ] {
            assert_eq!(first(query, "a").as_deref(), value, "{query:?}");
        }
    }
}
