//! Two servers, the same questions: every combination of list and watch parameters, and what differs in the answers.
//!
//! For an API server and the fake, or an API server and what stands before it. Nothing is known here of either.

mod compare;
mod draw;
mod live;
mod normalise;
mod offline;
mod pairs;
mod populate;
mod product;
mod written;

use std::time::Duration;

pub use self::compare::{Difference, Raw, Reply, Said, ask, compare, fetch};
pub use self::live::{Live, LiveError, live};
pub use self::normalise::{Common, list_metadata, wording};
pub use self::offline::{is_same, pages, token, told};
use self::populate::FIRST;
pub use self::populate::{Landmarks, PopulateError, Subject, populate};
pub use self::product::Product;
pub use self::written::{is_written, written};

/// A dimension of the product: the name of a parameter and its values; the empty one leaves it out. Values that begin
/// with `$` stand for what differs between servers and between kinds: see [`Landmarks`] and [`Subject`].
type Dimension = (&'static str, &'static [&'static str]);

const COMMON: [Dimension; 10] = [
    ("resourceVersion", &["", "0", "$old", "$current", "$future", "$expired", "junk"]),
    ("resourceVersionMatch", &["", "NotOlderThan", "Exact", "Junk"]),
    ("limit", &["", "1", "2", "500", "-1"]),
    ("continue", &["", "$valid", "junk", "$expired", "$inconsistent"]),
    (
        "labelSelector",
        &[
            "",
            "parity=even",
            "parity=none",
            "a===b",
            "parity in (even,none)",
            "parity notin (even)",
            "!parity",
        ],
    ),
    // `spec.n` is a field by which custom resources are selected; of the last two the API server knows the fields of Pods only.
    (
        "fieldSelector",
        &[
            "",
            "metadata.name=o-1",
            "spec.n=1",
            "spec.nodeName!=a,metadata.namespace=dt-a",
            "status.phase=Pending",
        ],
    ),
    ("sendInitialEvents", &["", "true", "false"]),
    ("allowWatchBookmarks", &["", "true"]),
    ("$scope", &["namespaced", "cluster"]),
    ("$accept", &["json", "protobuf", "metadata", "table"]),
];

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A list.
    List,
    /// A watch.
    Watch,
    /// One object by its name.
    Get,
}

impl Verb {
    fn of(watch: bool) -> Self {
        if watch { Self::Watch } else { Self::List }
    }
}

/// One combination of parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// What is asked for.
    pub verb: Verb,
    values: Vec<(&'static str, &'static str)>,
}

impl Case {
    /// How many there are of lists, and as many of watches, multiplied without regard to what is of no consequence to a verb. For all that is, see
    /// [`Case::product`].
    pub fn count() -> usize {
        COMMON.iter().map(|(_, values)| values.len()).product()
    }

    /// A combination by its number.
    pub fn nth(watch: bool, number: usize) -> Self {
        Self { verb: Verb::of(watch), values: combination(&COMMON, number) }
    }

    /// `count` combinations spread evenly over the product; the same for the same numbers.
    pub fn sample(watch: bool, count: usize, seed: usize) -> impl Iterator<Item = Self> {
        // A prime that is no factor of the product: no combination comes twice.
        let step = 39_119;
        (0..count.min(Self::count()))
            .map(move |index| Self::nth(watch, (seed + index * step) % Self::count()))
    }

    /// The combinations of those values in which all but `free` parameters are left out: the corners a reader thinks of.
    pub fn corners(watch: bool, free: &[&str]) -> Vec<Self> {
        let mut cases = vec![Self::nth(watch, 0)];
        for (at, (_, values)) in COMMON.iter().enumerate().filter(|(_, (name, _))| free.contains(name)) {
            let with = |value: &&'static str| {
                let mut cases = cases.clone();
                for case in &mut cases {
                    case.values[at].1 = value;
                }
                cases
            };
            cases = values.iter().flat_map(with).collect();
        }
        cases
    }

    fn value(&self, name: &str) -> &'static str {
        self.values.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
    }

    /// For how many seconds it watches, unless it says so itself. A version that is not there yet is waited for, three seconds; a watch that ends before is
    /// told nothing or an error, as it happens: the API server lets chance decide.
    fn lasts(&self) -> u8 {
        if self.waits() && self.value("sendInitialEvents") == "true" { 4 } else { 1 }
    }

    /// Whether it may be answered after seconds only: it asks for a version that is not there yet.
    pub fn waits(&self) -> bool {
        self.value("resourceVersion") == "$future"
    }

    /// The path with its query, and the `Accept` header, for a server with these landmarks.
    pub fn request(&self, subject: &Subject, landmarks: &Landmarks) -> (String, String) {
        self.request_of_page(subject, landmarks, None)
    }

    /// The same of the page that this token is for, or of the first.
    fn request_of_page(
        &self,
        subject: &Subject,
        landmarks: &Landmarks,
        token: Option<&str>,
    ) -> (String, String) {
        let in_one = self.value("$scope") == "namespaced";
        let mut query = Vec::new();
        if self.verb == Verb::Watch {
            query.push("watch=1".to_owned());
            if self.value("timeoutSeconds").is_empty() {
                query.push(format!("timeoutSeconds={}", self.lasts()));
            }
        }
        // A token says the version.
        let is_said = |name: &str| {
            token.is_some() && ["resourceVersion", "resourceVersionMatch", "continue"].contains(&name)
        };
        query.extend(token.map(|token| format!("continue={}", escaped(token))));
        let asked =
            |(name, value): &&(&str, &str)| !name.starts_with('$') && !value.is_empty() && !is_said(name);
        for (name, value) in self.values.iter().filter(asked) {
            let value = match *value {
                "$old" => landmarks.old.to_string(),
                "$current" => landmarks.current.to_string(),
                "$future" => landmarks.future.to_string(),
                "$expired" if *name == "resourceVersion" => FIRST.to_string(),
                "$valid" => Landmarks::token(in_one || !subject.namespaced, Some(landmarks.current)),
                "$expired" => Landmarks::token(in_one || !subject.namespaced, Some(FIRST)),
                "$inconsistent" => Landmarks::token(in_one || !subject.namespaced, None),
                "$others" if subject.namespaced => escaped("metadata.namespace=dt-a,metadata.name!=o-2"),
                // Objects without a namespace have no such field.
                "$others" => escaped("metadata.name!=o-2"),
                other => escaped(other),
            };
            query.push(format!("{name}={value}"));
        }
        let accept = accept(self.value("$accept"), self.verb);
        let path = match self.verb {
            Verb::Get => subject.object_path(in_one, self.value("$name")),
            Verb::List | Verb::Watch => subject.path(in_one),
        };
        (format!("{path}?{}", query.join("&")), accept)
    }

    /// How long a watch lasts, if it says so itself.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let seconds = self.value("timeoutSeconds").parse().ok().filter(|_| self.verb == Verb::Watch)?;
        Some(Duration::from_secs(seconds))
    }

    /// Whether it needs what was at the first version of all, or happened since: that only a server without compaction still has, and none that
    /// began later.
    pub fn reaches_back(&self) -> bool {
        let is_first = self.value("resourceVersion") == "$expired";
        let is_exact = self.value("resourceVersionMatch") == "Exact"
            || (self.value("resourceVersionMatch").is_empty() && !self.value("limit").is_empty());
        match self.verb {
            Verb::List => self.value("continue") == "$expired" || (is_first && is_exact),
            Verb::Watch => is_first && self.value("sendInitialEvents") != "true",
            Verb::Get => false,
        }
    }

    /// Whether it asks for whole objects in protobuf.
    pub fn is_protobuf(&self) -> bool {
        self.value("$accept") == "protobuf"
    }
}

/// A combination of these values by its number: its digits, each in the base of its parameter.
fn combination(dimensions: &[Dimension], number: usize) -> Vec<(&'static str, &'static str)> {
    let mut rest = number;
    let value = |(name, values): &Dimension| {
        let value = values[rest % values.len()];
        rest /= values.len();
        (*name, value)
    };
    dimensions.iter().map(value).collect()
}

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// How a form is asked for.
fn accept(form: &str, verb: Verb) -> String {
    let kind = if verb == Verb::List { "PartialObjectMetadataList" } else { "PartialObjectMetadata" };
    let metadata = |media: &str, version: &str| format!("{media};as={kind};g=meta.k8s.io;v={version}");
    match form {
        "protobuf" if verb == Verb::Watch => format!("{PROTOBUF};stream=watch"),
        "protobuf" => PROTOBUF.to_owned(),
        // In this order clients of client-go ask, the latter those of metadata.
        "protobuf, json" => format!("{PROTOBUF},{JSON}"),
        "any metadata" => format!("{},{},{JSON}", metadata(PROTOBUF, "v1"), metadata(JSON, "v1")),
        "metadata" => metadata(JSON, "v1"),
        "metadata v1beta1" => metadata(JSON, "v1beta1"),
        "protobuf metadata" => metadata(PROTOBUF, "v1"),
        "protobuf metadata, json" => format!("{},{JSON}", metadata(PROTOBUF, "v1")),
        "protobuf metadata v1beta1" => metadata(PROTOBUF, "v1beta1"),
        "table" => format!("{JSON};as=Table;g=meta.k8s.io;v=v1"),
        _ => JSON.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_sample_repeats_nothing() {
        let cases: HashSet<_> = Case::sample(false, 5000, 3).map(|case| format!("{case:?}")).collect();
        assert_eq!(cases.len(), 5000);
    }

    #[test]
    fn corners_vary_only_what_is_free() {
        let varied = |case: &Case| {
            case.values.iter().zip(&COMMON).filter(|((_, value), (_, values))| value != &values[0]).count()
        };
        let corners = Case::corners(false, &["limit"]);
        assert!(corners.iter().all(|case| varied(case) <= 1) && corners.len() == 5);
        assert_eq!(Case::corners(true, &["resourceVersion", "sendInitialEvents"]).len(), 21);
    }

    #[test]
    fn what_needs_the_first_version_reaches_back() {
        let reaches = |watch, free: &[&str]| -> Vec<String> {
            let cases = Case::corners(watch, free).into_iter().filter(Case::reaches_back);
            let free = |case: Case| free.iter().map(|name| case.value(name)).collect::<Vec<_>>().join(" ");
            cases.map(free).collect()
        };
        let lists = reaches(false, &["resourceVersion", "resourceVersionMatch", "limit"]);
        assert_eq!(lists.iter().filter(|case| case.starts_with("$expired Exact ")).count(), 5);
        assert_eq!(lists.iter().filter(|case| case.starts_with("$expired  ")).count(), 4, "with a limit");
        assert_eq!(lists.len(), 9);
        let watches = reaches(true, &["resourceVersion", "sendInitialEvents"]);
        assert_eq!(watches, ["$expired ", "$expired false"]);
        assert_eq!(reaches(false, &["continue"]), ["$expired"]);
    }
}
