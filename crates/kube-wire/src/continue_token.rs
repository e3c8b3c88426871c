//! Continue tokens in the API server's own format, so that its tokens can be read here and ours there:
//! base64url of `{"v":"meta.k8s.io/v1","rv":N,"start":"key\0"}`, the key relative to what the request lists.

use base64::{
    DecodeError, Engine as _,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::{Deserialize, Serialize};

use crate::resource_version::ResourceVersion;

/// Go's `RawURLEncoding`: no padding, and bits that mean nothing are not looked at.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

const VERSION: &str = "meta.k8s.io/v1";
const INVALID: &str = "continue key is not valid";

#[derive(Serialize, Deserialize)]
struct Token<'a> {
    #[serde(default)]
    v: std::borrow::Cow<'a, str>,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: std::borrow::Cow<'a, str>,
}

/// Where a paged list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The version of all pages; `None` to go on at the most recent one, which makes the list inconsistent.
    pub at: Option<ResourceVersion>,
    /// The least key of the rest, relative to what is listed: `name\0` in a namespace, `namespace/name\0` across all.
    /// The NUL makes it greater than the last key of the page before, and no key has one.
    pub start: String,
}

/// The token for the rest after the object with key `last` (relative to what is listed), at a version or, without one, at the
/// most recent.
pub fn encode(last: &str, at: Option<ResourceVersion>) -> String {
    // The watch cache of API servers since 1.34 writes a slash in front, etcd's storage none; both read either.
    encode_start(&format!("/{last}\0"), at)
}

/// The token that status 410 gives for a position that another token gave: it goes on there in the most recent state. It is etcd's storage that
/// makes it, without the slash.
pub fn reencode(start: &str) -> String {
    encode_start(start, None)
}

fn encode_start(start: &str, at: Option<ResourceVersion>) -> String {
    // An etcd revision is a signed integer.
    let rv = at.map_or(-1, |at| i64::try_from(at.get()).unwrap_or(i64::MAX));
    let token = Token { v: VERSION.into(), rv, start: start.into() };
    BASE64.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// Reads a token; what is wrong with it is said in the API server's words.
pub fn decode(token: &str) -> Result<Position, String> {
    let invalid = |why: &str| format!("{INVALID}: {why}");
    let data = BASE64.decode(token).map_err(|error| {
        let at = match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => at,
            // Go names the beginning of the last group of four.
            _ => token.len() / 4 * 4,
        };
        invalid(&format!("illegal base64 data at input byte {at}"))
    })?;
    let Token { v, rv, start } = serde_json::from_slice(&data).map_err(|error| {
        if error.is_eof() { invalid("unexpected end of JSON input") } else { invalid(&error.to_string()) }
    })?;
    if v != VERSION {
        return Err(format!("{INVALID}: server does not recognize this encoded version {v}"));
    }
    if rv == 0 {
        return Err(format!("{INVALID}: incorrect encoded start resourceVersion (version {VERSION})"));
    }
    if start.is_empty() {
        return Err(format!("{INVALID}: encoded start key empty (version {VERSION})"));
    }
    let key = start.strip_prefix('/').unwrap_or(&start);
    // Nothing may lead out of what is listed.
    if !key.is_empty() && key.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(invalid(&start));
    }
    let at = u64::try_from(rv).ok().and_then(ResourceVersion::new);
    Ok(Position { at, start: key.to_owned() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Position, decode, encode, reencode};
    use crate::resource_version::ResourceVersion;

    #[test]
    fn a_token_of_an_api_server_is_read_and_written() {
        // `limit=1` of services in a namespace, from an API server 1.36.
        let token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NDQwLCJzdGFydCI6Ii9hXHUwMDAwIn0";
        let at = ResourceVersion::new(440);
        assert_eq!(decode(token), Ok(Position { at, start: "a\0".to_owned() }));
        assert_eq!(encode("a", at), token);
        assert_eq!(decode(&reencode("a\0")), Ok(Position { at: None, start: "a\0".to_owned() }));
    }

    proptest! {
        #[test]
        fn tokens_are_read_as_written(last in "[a-z]{1,9}(/[a-z.-]{1,9}a)?", at in 1..i64::MAX.unsigned_abs()) {
            let at = ResourceVersion::new(at);
            prop_assert_eq!(decode(&encode(&last, at)), Ok(Position { at, start: format!("{last}\0") }));
        }

        #[test]
        fn arbitrary_tokens_are_read_or_refused(token: String, base64 in "[A-Za-z0-9_-]{0,60}") {
            let _ = (decode(&token), decode(&base64));
        }
    }
}
