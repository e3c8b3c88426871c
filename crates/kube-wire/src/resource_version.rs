//! Resource versions: positive decimal integers that order the versions of one resource (KEP-5504).

use std::{fmt, str::FromStr};

use thiserror::Error;

/// The version of an object or of a list: a positive integer, comparable only within one resource of one cluster (KEP-5504).
///
/// The API server counts in 64 bits (an etcd revision). A server whose versions do not parse here is passed through and never
/// cached; `""` and `"0"` are questions ("most recent", "any"), not versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(u64);

/// The text is not a version as KEP-5504 describes it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a resource version: expected a positive decimal integer without leading zeros")]
pub struct MalformedResourceVersion(pub String);

impl ResourceVersion {
    /// The version with this number; `None` for 0, which is not a version.
    pub const fn new(number: u64) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for ResourceVersion {
    type Err = MalformedResourceVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        match text.parse() {
            Ok(number) if digits => Ok(Self(number)),
            _ => Err(MalformedResourceVersion(text.to_owned())),
        }
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::ResourceVersion;

    #[test]
    fn only_positive_decimals_are_versions() {
        for (text, number) in
            [("1", Some(1)), ("18446744073709551615", Some(u64::MAX)), ("", None), ("0", None), ("01", None)]
        {
            assert_eq!(text.parse().ok().map(ResourceVersion::get), number, "{text:?}");
        }
        for text in ["-1", "+1", " 1", "1.0", "0x1", "18446744073709551616"] {
            assert!(text.parse::<ResourceVersion>().is_err(), "{text:?}");
        }
    }
}
