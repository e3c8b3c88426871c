//! Requests made up from a seed: writes of any kind to a few objects, of parts that are valid or not.

use testkit::random::SplitMix64;

use super::answers::Question;
use super::words::Words;

/// Draws by a seed.
struct Dice(SplitMix64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.0.number() >> 33).unwrap_or_default() % limit
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// How objects and lists are asked for.
const ACCEPT: &[&str] = &[
    "",
    "",
    "table",
    "application/yaml",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/cbor",
    "application/cbor,application/json;q=0.9",
    "text/plain",
    "*/*",
];

/// What a deletion says.
const DELETIONS: &[&str] = &[
    "",
    "",
    "",
    r#"{"preconditions":{"uid":"other"}}"#,
    r#"{"preconditions":{"resourceVersion":"1"}}"#,
    r#"{"preconditions":{"uid":"$UID","resourceVersion":"$RV"}}"#,
    // Only as trials: the garbage collector would see to these.
    r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground","dryRun":["All"]}"#,
    r#"{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","propagationPolicy":"Orphan","dryRun":["All"]}"#,
    r#"{"dryRun":["All"],"gracePeriodSeconds":0}"#,
    r#"{"gracePeriodSeconds":10}"#,
    r#"{"dryRun":["Some"]}"#,
    r#"{"propagationPolicy":"Sometimes"}"#,
    r#"{"bogus":1}"#,
];

const OPTIONS: &[&str] = &[
    "",
    "",
    "",
    "",
    "dryRun=All",
    "fieldValidation=Strict",
    "fieldValidation=Warn",
    "fieldValidation=Ignore",
    "fieldManager=other",
    "dryRun=All&fieldValidation=Strict",
    "dryRun=Some",
    "fieldValidation=Never",
];

/// Some of the members, each name once.
fn some(dice: &mut Dice, from: &[&str], most: usize) -> Vec<String> {
    let mut members: Vec<String> = Vec::new();
    for _ in 0..dice.below(most + 1) {
        let member = dice.pick(from);
        let name = |member: &str| member.split(':').next().map(str::to_owned);
        if !members.iter().any(|other| name(other) == name(member)) {
            members.push(member.to_owned());
        }
    }
    members
}

/// Takes away what requests before left.
pub(super) fn clean() -> Vec<Question> {
    let ask = |method: &str, path: &str, media_type: &str, body: &str| {
        Question(method.to_owned(), path.to_owned(), media_type.to_owned(), String::new(), body.to_owned())
    };
    let free =
        |name: &str| ask("PATCH", &format!("$C/{name}"), "merge", r#"{"metadata":{"finalizers":null}}"#);
    let mut requests: Vec<_> = ["a", "b", "c", "y1", "y2"].into_iter().map(free).collect();
    requests.push(ask("DELETE", "$C", "", ""));
    requests
}

/// So many requests; between them the objects are made and removed.
pub(super) fn questions(seed: u64, count: usize, words: &Words) -> Vec<Question> {
    let mut dice = Dice(SplitMix64(seed));
    (0..count).map(|_| question(&mut dice, words)).collect()
}

/// A request under construction.
struct Draft {
    name: String,
    metadata: Vec<String>,
    spec: Vec<String>,
    status: Vec<String>,
    /// `/status`, or nothing.
    on_status: &'static str,
}

impl Draft {
    fn new(dice: &mut Dice, words: &Words) -> Self {
        // Of three in four everything is valid.
        let valid = dice.below(4) > 0;
        let mut spec = some(dice, if valid { words.valid } else { words.spec }, 5);
        if let Some((name, member)) = words.required
            && dice.below(6) > 0
            && !spec.iter().any(|member| member.starts_with(name))
        {
            spec.push(member.to_owned());
        }
        if dice.below(30) == 0 {
            spec.extend(words.twice.map(str::to_owned));
        }
        Self {
            name: dice.pick(words.names).to_owned(),
            metadata: if dice.below(if valid { 4 } else { 2 }) == 0 {
                some(dice, words.metadata, 2)
            } else {
                Vec::new()
            },
            spec,
            status: if dice.below(3) == 0 { some(dice, words.status, 2) } else { Vec::new() },
            on_status: if dice.below(4) == 0 { "/status" } else { "" },
        }
    }

    /// The members of the object, with its name or without.
    fn members(&self, named: bool) -> String {
        let mut metadata = self.metadata.clone();
        if named {
            metadata.insert(0, format!("\"name\":\"{}\"", self.name));
        }
        let mut parts = vec![format!("\"metadata\":{{{}}}", metadata.join(","))];
        parts.push(format!("\"spec\":{{{}}}", self.spec.join(",")));
        if !self.status.is_empty() {
            parts.push(format!("\"status\":{{{}}}", self.status.join(",")));
        }
        parts.join(",")
    }

    fn path(&self, options: &str) -> String {
        let mark = if options.is_empty() { "" } else { "?" };
        format!("$C/{}{}{mark}{options}", self.name, self.on_status)
    }
}

fn question(dice: &mut Dice, words: &Words) -> Question {
    let mut draft = Draft::new(dice, words);
    let options = dice.pick(OPTIONS);
    let ask = |method: &str, path: String, media_type: &str, body: String| {
        Question(method.to_owned(), path, media_type.to_owned(), String::new(), body)
    };
    match dice.below(28) {
        0..=3 => {
            let mark = if options.is_empty() { "" } else { "?" };
            let path = format!("$C{mark}{options}");
            ask("POST", path, "json", format!("{{$K,{}}}", draft.members(true)))
        }
        4 if !words.generates => {
            ask("POST", "$C?dryRun=All".to_owned(), "json", format!("{{$K,{}}}", draft.members(true)))
        }
        4 => {
            // A name of the server's choice, which is nobody's afterwards.
            draft.metadata.push(r#""generateName":"gen-""#.to_owned());
            ask("POST", "$C?dryRun=All".to_owned(), "json", format!("{{$K,{}}}", draft.members(false)))
        }
        5..=8 => {
            // Only of this one is the version known.
            if draft.name == "a" && dice.below(5) > 0 {
                draft.metadata.retain(|member| !member.starts_with("\"resourceVersion\""));
                draft.metadata.push(r#""resourceVersion":"$RV""#.to_owned());
            }
            ask("PUT", draft.path(options), "json", format!("{{$K,{}}}", draft.members(true)))
        }
        9..=11 => ask("PATCH", draft.path(options), "merge", format!("{{{}}}", draft.members(false))),
        12 | 13 => {
            let operations: Vec<_> = (0..=dice.below(2)).map(|_| dice.pick(words.operations)).collect();
            ask("PATCH", draft.path(options), "patch", format!("[{}]", operations.join(",")))
        }
        14..=20 => {
            let manager = dice.pick(&["m1", "m2", "m3"]);
            let force = dice.pick(&["", "", "&force=true"]);
            // As which options the API server takes the manager twice is its own matter.
            let more = if options.is_empty() || options.contains("fieldManager") {
                String::new()
            } else {
                format!("&{options}")
            };
            let path = draft.path(&format!("fieldManager={manager}{force}{more}"));
            ask("PATCH", path, "apply", format!("{{$K,{}}}", draft.members(true)))
        }
        21 | 22 => {
            let body = dice.pick(DELETIONS);
            // What they say of the version is of this one.
            let name = if body.contains('$') { "a" } else { draft.name.as_str() };
            let options = dice.pick(&["", "", "?dryRun=All", "?propagationPolicy=Background"]);
            let media_type = if body.is_empty() { "" } else { "json" };
            ask("DELETE", format!("$C/{name}{options}"), media_type, body.to_owned())
        }
        23 => {
            let what = dice.pick(words.deleting);
            ask("DELETE", format!("$C?{what}"), "", String::new())
        }
        24..=26 => {
            let (accept, reading) = (dice.pick(ACCEPT), dice.pick(words.reading));
            let one = dice.below(2) == 0;
            let place = if one { format!("/{}", draft.name) } else { String::new() };
            let method = dice.pick(&["GET", "GET", "GET", "GET", "HEAD", "OPTIONS"]);
            let mark = if reading.is_empty() { "" } else { "?" };
            Question(
                method.to_owned(),
                format!("$C{place}{mark}{reading}"),
                String::new(),
                accept.to_owned(),
                String::new(),
            )
        }
        _ => {
            let (media_type, body) = words.strange[dice.below(words.strange.len())];
            let (method, path) = if dice.below(2) == 0 {
                ("POST", "$C?dryRun=All".to_owned())
            } else {
                ("PUT", draft.path(""))
            };
            ask(method, path, media_type, body.to_owned())
        }
    }
}
