//! Which documents of `OpenAPI` the hub fetches by itself. Pure.

use std::{collections::BTreeSet, fmt};

/// What of `OpenAPI` the hub fetches by itself, though nobody asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OpenApi {
    /// The list of documents, version 2, and the documents of groups and versions of which there is a stream, or that clients asked for before.
    #[default]
    Used,
    /// All that there is.
    All,
    /// Nothing: what clients ask for is kept, as it was then or when a resource of its group came into use.
    Asked,
}

impl fmt::Display for OpenApi {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Used => "used",
            Self::All => "all",
            Self::Asked => "asked",
        })
    }
}

impl OpenApi {
    /// Why a document may not be there, for who asks for it without a link; nothing to say if it is none of `OpenAPI`.
    pub fn absence(self, path: &str) -> Option<&'static str> {
        let why = match self {
            Self::Used => {
                "it is none of the documents of OpenAPI that are kept here. With --openapi=used the hub fetches by itself, \
                 some minutes after a link comes up, /openapi/v3, /openapi/v2 as protobuf, and the documents of groups and \
                 versions of which this node has a stream, or which clients asked for before: ask for it while there is a \
                 link, or set --openapi=all"
            }
            Self::All => {
                "it is none of the documents of OpenAPI that are kept here. With --openapi=all the hub fetches by itself, \
                 some minutes after a link comes up and one after another, /openapi/v3, all that it names, and /openapi/v2 \
                 as protobuf: this one has not come yet, or is none of these"
            }
            Self::Asked => {
                "no client asked for it, in this form, while there was a link, and with --openapi=asked the hub fetches \
                 nothing of OpenAPI by itself: ask for it while there is a link, or set --openapi=used or all"
            }
        };
        path.starts_with("/openapi/").then_some(why)
    }

    /// Whether the document at `path` is fetched again where a resource of its group and version has come into use. `asked` are the paths of documents
    /// that clients asked for: those alone, where the hub fetches no other.
    pub(super) fn renews(self, path: &str, asked: &BTreeSet<String>) -> bool {
        match self {
            Self::Used | Self::All => true,
            Self::Asked => asked.contains(path),
        }
    }
}

/// The documents of version 3 that the hub fetches by itself, as far as the list names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Followed {
    All,
    /// Those at these paths.
    At(BTreeSet<String>),
}

impl Followed {
    /// `used` are the groups and versions of which there is a stream, as `/api/v1` or `/apis/apps/v1`; `asked` the paths of documents that clients asked
    /// for. `None` if nothing of `OpenAPI` is to be fetched.
    pub(super) fn new(openapi: OpenApi, used: &BTreeSet<String>, asked: BTreeSet<String>) -> Option<Self> {
        match openapi {
            OpenApi::All => Some(Self::All),
            OpenApi::Asked => None,
            OpenApi::Used => {
                let used = used.iter().map(|version| format!("/openapi/v3{version}"));
                Some(Self::At(used.chain(asked).collect()))
            }
        }
    }

    pub(super) fn has(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::At(paths) => paths.contains(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    fn set(paths: &[&str]) -> BTreeSet<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn what_is_used_and_what_was_asked_for_is_fetched_or_all_or_nothing() {
        let followed = |openapi| {
            let used = set(&["/api/v1", "/apis/example.com/v1"]);
            Followed::new(openapi, &used, set(&["/openapi/v3/apis/apps/v1", "/openapi/v3/version"]))
        };
        let used = followed(OpenApi::Used).unwrap();
        for (path, expected) in [
            ("/openapi/v3/api/v1", true),
            ("/openapi/v3/apis/example.com/v1", true),
            ("/openapi/v3/apis/apps/v1", true),
            ("/openapi/v3/version", true),
            ("/openapi/v3/api", false),
            ("/openapi/v3/apis/example.com", false),
            ("/openapi/v3/apis/example.com/v1beta1", false),
            ("/openapi/v3/apis/batch/v1", false),
        ] {
            assert_eq!(used.has(path), expected, "{path}");
        }
        assert_eq!(followed(OpenApi::All), Some(Followed::All));
        assert!(Followed::All.has("/openapi/v3/apis/batch/v1"));
        assert_eq!(followed(OpenApi::Asked), None);
        let nothing = Followed::new(OpenApi::Used, &set(&[]), set(&[])).unwrap();
        assert!(!nothing.has("/openapi/v3/api/v1"), "and yet the list and version 2 are");
    }

    #[test]
    fn where_nothing_is_fetched_what_clients_asked_for_is_renewed_and_nothing_else() {
        let asked = set(&["/openapi/v3/apis/apps/v1"]);
        for (openapi, other) in [(OpenApi::Used, true), (OpenApi::All, true), (OpenApi::Asked, false)] {
            assert!(openapi.renews("/openapi/v3/apis/apps/v1", &asked), "{openapi}");
            assert_eq!(openapi.renews("/openapi/v3/apis/example.com/v1", &asked), other, "{openapi}");
        }
    }

    #[test]
    fn what_is_fetched_is_written_as_it_is_configured() {
        for openapi in OpenApi::value_variants() {
            assert_eq!(OpenApi::from_str(&openapi.to_string(), false).as_ref(), Ok(openapi));
        }
    }

    #[test]
    fn what_is_not_kept_is_explained_by_the_option() {
        for (openapi, option) in [
            (OpenApi::Used, "--openapi=used"),
            (OpenApi::All, "--openapi=all"),
            (OpenApi::Asked, "--openapi=asked"),
        ] {
            for path in ["/openapi/v3", "/openapi/v3/apis/apps/v1?hash=1", "/openapi/v2"] {
                assert!(openapi.absence(path).is_some_and(|why| why.contains(option)), "{path} {option}");
            }
            for path in ["/version", "/apis/apps", "/openid/v1/jwks"] {
                assert_eq!(openapi.absence(path), None, "{path}");
            }
        }
    }
}
