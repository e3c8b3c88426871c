//! Which representation a client accepts: the API server's reading of the header `Accept`. In: the header and what the hub can
//! offer for the resource.

use crate::status::Status;

/// A media type of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaType {
    /// `application/json`
    Json,
    /// `application/yaml`, which no watch has.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`, which of custom resources there is for metadata only.
    Protobuf,
}

impl MediaType {
    /// As it stands in headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The `Content-Type` of a watch.
    pub const fn of_watch(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml;stream=watch",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// As what objects are to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum As {
    /// As they are.
    Object,
    /// Only their metadata.
    PartialObjectMetadata,
    /// A list of only their metadata.
    PartialObjectMetadataList,
    /// Rows for people.
    Table,
}

/// What a client is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Representation {
    /// In which media type.
    pub encoding: MediaType,
    /// As what.
    pub as_: As,
    /// The `apiVersion` of what objects are turned into.
    pub meta_version: &'static str,
    /// Indented, for people.
    pub pretty: bool,
}

/// What a request is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// One object.
    Object,
    /// A list.
    List,
    /// A stream of events.
    Watch,
}

/// What the API server's routes of built-in resources give, and how many of these those of one object.
const ROUTED: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const ROUTED_OF_ONE: usize = 3;

/// Versions of metadata alone and of tables.
pub(crate) const META_VERSION: &str = "meta.k8s.io/v1";
pub(crate) const META_VERSION_BETA: &str = "meta.k8s.io/v1beta1";

/// Whether a request finds its route, which for built-in resources the API server asks before it negotiates: a clause has to name one of the
/// media types, or `*/*`. `application/*` and `*` are understood by whoever negotiates, and find no route. Status 406 then.
pub fn check_route(header: &str, answer: Answer) -> Result<(), Status> {
    let given = if answer == Answer::Object { &ROUTED[..ROUTED_OF_ONE] } else { ROUTED };
    let is_given = |clause: &str| {
        let media = clause.split(';').next().unwrap_or_default().trim_matches(' ');
        media == "*/*" || given.contains(&media)
    };
    if header.is_empty() || header.split(',').any(is_given) { Ok(()) } else { Err(Status::no_route(given)) }
}

/// The representation that the client likes best of the media types `offered`, the first of which is for clients that say nothing.
/// Status 406 if it accepts none.
pub fn negotiate(header: &str, offered: &[MediaType]) -> Result<Representation, Status> {
    first_acceptable(header, offered, |_| true)
}

/// The same of a custom resource: there is no protobuf of whole objects, but of their metadata. A clause that asks for what there is not is passed over.
pub fn negotiate_custom(header: &str, offered: &[MediaType]) -> Result<Representation, Status> {
    first_acceptable(header, offered, |it| it.encoding != MediaType::Protobuf || it.as_ != As::Object)
}

fn first_acceptable(
    header: &str,
    offered: &[MediaType],
    is_there: impl Fn(&Representation) -> bool,
) -> Result<Representation, Status> {
    let refused = || Status::not_acceptable(&offered.iter().map(|offer| offer.as_str()).collect::<Vec<_>>());
    if header.is_empty() {
        let encoding = *offered.first().ok_or_else(refused)?;
        return Ok(Representation { encoding, as_: As::Object, meta_version: META_VERSION, pretty: false });
    }
    let mut clauses: Vec<_> = header.split(',').filter_map(Clause::parse).collect();
    arrange(&mut clauses);
    clauses
        .iter()
        .flat_map(|clause| offered.iter().filter_map(|offer| clause.representation(*offer)))
        .find(is_there)
        .ok_or_else(refused)
}

/// The same for an error, which is turned into nothing else: a clause that asks for that accepts no error. `None` if no clause is left that does;
/// then it is said in JSON.
pub fn negotiate_error(header: &str, offered: &[MediaType]) -> Option<Representation> {
    let turns = |clause: &str| {
        let mut parameters = clause.split(';').skip(1).filter_map(|part| part.split_once('='));
        parameters.any(|(name, _)| matches!(name.trim(), "as" | "g" | "v" | "sv"))
    };
    let plain: Vec<_> = header.split(',').filter(|clause| !turns(clause)).collect();
    if plain.is_empty() { None } else { negotiate(&plain.join(","), offered).ok() }
}

impl Representation {
    /// Checks that the representation fits what is answered. Status 406 if not.
    pub fn check(&self, answer: Answer) -> Result<(), Status> {
        match (self.as_, answer) {
            (As::PartialObjectMetadata, Answer::List) => Err(Status::not_representable(
                "you requested PartialObjectMetadata, but the requested object is a list",
            )),
            (As::PartialObjectMetadataList, Answer::Object | Answer::Watch) => {
                Err(Status::not_representable(
                    "you requested PartialObjectMetadataList, but the requested object is not a list",
                ))
            }
            _ if answer == Answer::Watch && self.encoding == MediaType::Yaml => {
                let streams =
                    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
                Err(Status::not_acceptable(&streams))
            }
            _ => Ok(()),
        }
    }
}

/// The longest header that the API server's library sorts by insertion.
const INSERTED: usize = 12;

/// The order in which clauses are tried. The API server's comparison is no order: a clause that names more goes before its neighbour with a
/// wildcard, whatever their qualities. What comes of it depends on how it sorts, which for so few is by insertion.
fn arrange(clauses: &mut [Clause<'_>]) {
    if clauses.len() > INSERTED {
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(a.wildcards().cmp(&b.wildcards())));
        return;
    }
    for end in 1..clauses.len() {
        for at in (1..=end).rev() {
            if !clauses[at].goes_before(&clauses[at - 1]) {
                break;
            }
            clauses.swap(at, at - 1);
        }
    }
}

/// One of the clauses between commas.
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    quality: f64,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    /// `None` for what names no type; `*` alone is any.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let mut names = parts.next().unwrap_or_default().split('/').map(str::trim);
        let (main, sub) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        let sub = match (main, sub) {
            ("*", "") => "*",
            (_, "") => return None,
            _ if names.any(|more| !more.is_empty()) => return None,
            (_, sub) => sub,
        };
        let mut clause = Self { main, sub, quality: 1.0, parameters: Vec::new() };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                // No number is the least quality.
                "q" => clause.quality = value.parse().unwrap_or(0.0),
                name => clause.parameters.push((name, value.trim())),
            }
        }
        Some(clause)
    }

    /// The comparison of the API server's library.
    fn goes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.main != "*" && other.main == "*")
            || (self.sub != "*" && other.sub == "*")
    }

    /// What names less comes later.
    fn wildcards(&self) -> u8 {
        u8::from(self.main == "*") + u8::from(self.sub == "*")
    }

    fn representation(&self, offer: MediaType) -> Option<Representation> {
        let (main, sub) = offer.as_str().split_once('/')?;
        let covered = (self.main == main && (self.sub == sub || self.sub == "*"))
            || (self.main == "*" && self.sub == "*");
        if !covered {
            return None;
        }
        let (mut kind, mut group, mut version, mut pretty) = (None, None, None, false);
        for (name, value) in &self.parameters {
            match *name {
                "as" => kind = Some(*value),
                "g" => group = Some(*value),
                "v" => version = Some(*value),
                "stream" if !(value.is_empty() || *value == "watch" && offer != MediaType::Yaml) => {
                    return None;
                }
                "sv" if !(value.is_empty() || *value == "v1") => return None,
                "pretty" => pretty = *value == "1",
                _ => {}
            }
        }
        let as_ = match (kind, group, version) {
            (None, None, None) => {
                return Some(Representation {
                    encoding: offer,
                    as_: As::Object,
                    meta_version: META_VERSION,
                    pretty,
                });
            }
            (Some("PartialObjectMetadata"), ..) => As::PartialObjectMetadata,
            (Some("PartialObjectMetadataList"), ..) => As::PartialObjectMetadataList,
            (Some("Table"), ..) if offer != MediaType::Protobuf => As::Table,
            _ => return None,
        };
        let meta_version = match (group, version) {
            (Some("meta.k8s.io"), Some("v1")) => META_VERSION,
            (Some("meta.k8s.io"), Some("v1beta1")) => META_VERSION_BETA,
            _ => return None,
        };
        Some(Representation { encoding: offer, as_, meta_version, pretty })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Answer, As, MediaType, check_route, negotiate, negotiate_custom, negotiate_error};

    const ALL: [MediaType; 3] = [MediaType::Json, MediaType::Yaml, MediaType::Protobuf];

    #[test]
    fn the_client_gets_what_it_likes_best() {
        use MediaType::{Json, Protobuf, Yaml};
        let partial = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        for (header, expected) in [
            ("", Some((Json, As::Object))),
            ("*/*", Some((Json, As::Object))),
            ("application/*", Some((Json, As::Object))),
            ("application/yaml", Some((Yaml, As::Object))),
            ("application/vnd.kubernetes.protobuf, application/json", Some((Protobuf, As::Object))),
            ("application/json;q=0.5, application/vnd.kubernetes.protobuf", Some((Protobuf, As::Object))),
            ("*/*, application/vnd.kubernetes.protobuf", Some((Protobuf, As::Object))),
            ("application/vnd.kubernetes.protobuf;stream=watch", Some((Protobuf, As::Object))),
            ("application/json;stream=other,application/yaml", Some((Yaml, As::Object))),
            (
                &format!("application/vnd.kubernetes.protobuf;{partial}"),
                Some((Protobuf, As::PartialObjectMetadata)),
            ),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some((Json, As::Table))),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Some((Json, As::Object))),
            ("application/json;as=Widget;g=meta.k8s.io;v=v1", None),
            ("application/json;drop=metadata.managedFields", Some((Json, As::Object))),
            ("text/plain", None),
            // `*` is any, and a quality that is no number the least.
            ("text/html, *; q=.2, */*; q=.2", Some((Json, As::Object))),
            ("*", Some((Json, As::Object))),
            ("application/json;q=high, application/yaml;q=0.1", Some((Yaml, As::Object))),
            ("application/json;q=0, application/yaml;q=0.1", Some((Yaml, As::Object))),
            ("application/json;q=0", Some((Json, As::Object))),
            // What names more goes before a wildcard behind which it stands, whatever their qualities.
            ("*/*, application/yaml;q=0.5", Some((Yaml, As::Object))),
            ("application/yaml;q=0.5, */*", Some((Json, As::Object))),
            ("application/json/x, application/yaml", Some((Yaml, As::Object))),
        ] {
            let got = negotiate(header, &ALL).map(|got| (got.encoding, got.as_));
            assert_eq!(got.ok(), expected, "{header:?}");
        }
        let custom = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiate(custom, &[Json, Yaml]).unwrap().encoding, Json);
        assert_eq!(negotiate("text/plain", &[Json]).unwrap_err().code, 406);
    }

    #[test]
    fn of_a_custom_resource_there_is_protobuf_of_metadata_only() {
        use MediaType::{Json, Protobuf, Yaml};
        let (json, protobuf) = ("application/json", "application/vnd.kubernetes.protobuf");
        let list = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let one = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1";
        for (header, expected) in [
            (String::new(), Some((Json, As::Object))),
            ("*/*".to_owned(), Some((Json, As::Object))),
            (protobuf.to_owned(), None),
            (format!("{protobuf};stream=watch"), None),
            (format!("{protobuf},{json}"), Some((Json, As::Object))),
            (format!("{protobuf},application/yaml,{json}"), Some((Yaml, As::Object))),
            (format!("{protobuf};{list}"), Some((Protobuf, As::PartialObjectMetadataList))),
            (format!("{protobuf};{one}"), Some((Protobuf, As::PartialObjectMetadata))),
            (format!("{protobuf};{list},{json}"), Some((Protobuf, As::PartialObjectMetadataList))),
            // As client-go's clients of metadata ask.
            (
                format!("{protobuf};{list},{json};{list},{json}"),
                Some((Protobuf, As::PartialObjectMetadataList)),
            ),
            (format!("{json};{list},{protobuf};{list}"), Some((Json, As::PartialObjectMetadataList))),
            (format!("{protobuf},{protobuf};{one},{json}"), Some((Protobuf, As::PartialObjectMetadata))),
            (format!("{json};q=0.5,{protobuf};{one}"), Some((Protobuf, As::PartialObjectMetadata))),
            (format!("{protobuf};{one};q=0.5,{json}"), Some((Json, As::Object))),
            (format!("{protobuf};as=Table;g=meta.k8s.io;v=v1,{json}"), Some((Json, As::Object))),
            (format!("{protobuf};g=meta.k8s.io;v=v1,{json}"), Some((Json, As::Object))),
            (format!("*/*;{one}"), Some((Json, As::PartialObjectMetadata))),
        ] {
            let got = negotiate_custom(&header, &ALL).map(|got| (got.encoding, got.as_));
            assert_eq!(got.ok(), expected, "{header:?}");
        }
        let refused = negotiate_custom(protobuf, &ALL).unwrap_err();
        assert!(
            refused.message.ends_with("application/yaml, application/vnd.kubernetes.protobuf"),
            "{refused}"
        );
    }

    /// As the API server answered a GET of a malformed version with each of them.
    #[test]
    fn an_error_is_turned_into_nothing_else() {
        use MediaType::{Json, Protobuf, Yaml};
        let (protobuf, partial) =
            ("application/vnd.kubernetes.protobuf", "as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        for (header, expected) in [
            (protobuf.to_owned(), Some(Protobuf)),
            (format!("{protobuf};stream=watch"), Some(Protobuf)),
            (format!("{protobuf};{partial}"), None),
            (format!("{protobuf};{partial},application/json;{partial}"), None),
            (format!("{protobuf};{partial},{protobuf}"), Some(Protobuf)),
            (format!("{protobuf};{partial},application/json"), Some(Json)),
            (format!("{protobuf};{partial},application/yaml"), Some(Yaml)),
            (format!("application/json;as=Table;v=v1;g=meta.k8s.io,{protobuf}"), Some(Protobuf)),
            (
                format!("application/yaml;as=Table;v=v1;g=meta.k8s.io, {protobuf};stream=watch"),
                Some(Protobuf),
            ),
            (format!("application/yaml;{partial}"), None),
            (format!("{protobuf};as=Widget"), None),
            ("text/plain".to_owned(), None),
        ] {
            let got = negotiate_error(&header, &ALL).map(|got| (got.encoding, got.as_));
            assert_eq!(got, expected.map(|encoding| (encoding, As::Object)), "{header:?}");
        }
    }

    #[test]
    fn a_route_is_found_by_a_media_type_and_not_by_half_of_one() {
        for (header, expected) in [
            ("", true),
            ("*/*", true),
            ("application/json", true),
            ("application/yaml", true),
            ("application/vnd.kubernetes.protobuf;stream=watch", true),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", true),
            ("application/json;as=Widget", true),
            (" application/json ;q=0", true),
            ("text/html, */*; q=.2", true),
            ("application/*, application/yaml;q=0.1", true),
            ("application/*", false),
            ("*", false),
            ("*;q=1, application/*", false),
            ("text/html", false),
            ("Application/JSON", false),
            (",", false),
        ] {
            for answer in [Answer::Object, Answer::List, Answer::Watch] {
                let found = check_route(header, answer);
                assert_eq!(
                    found.as_ref().map_err(|status| status.code),
                    if expected { Ok(&()) } else { Err(406) },
                    "{header:?}"
                );
            }
        }
        let told = |answer| check_route("text/plain", answer).unwrap_err().message;
        assert!(told(Answer::Object).ends_with("application/yaml, application/vnd.kubernetes.protobuf"));
        assert_eq!(told(Answer::List), told(Answer::Watch));
    }

    #[test]
    fn not_every_representation_fits_every_answer() {
        let of = |kind| negotiate(&format!("application/json;as={kind};g=meta.k8s.io;v=v1"), &ALL).unwrap();
        for (representation, answer, fits) in [
            (of("PartialObjectMetadata"), Answer::List, false),
            (of("PartialObjectMetadata"), Answer::Watch, true),
            (of("PartialObjectMetadataList"), Answer::List, true),
            (of("PartialObjectMetadataList"), Answer::Watch, false),
            (negotiate("application/yaml", &ALL).unwrap(), Answer::Watch, false),
            (negotiate("application/yaml", &ALL).unwrap(), Answer::List, true),
        ] {
            assert_eq!(representation.check(answer).is_ok(), fits, "{representation:?} {answer:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_headers_are_read_or_refused(header: String, likely in "[a*/;,=q.0 ]{0,30}") {
            let _ = (negotiate(&header, &ALL), negotiate(&likely, &ALL));
            let _ = (negotiate_custom(&header, &ALL), negotiate_custom(&likely, &ALL));
            let _ = (negotiate_error(&header, &ALL), negotiate_error(&likely, &ALL));
            let _ = (check_route(&header, Answer::List), check_route(&likely, Answer::Object));
        }
    }
}
