//! Requests made up from a seed: writes of any kind to a few objects, of parts that are valid or not.

use super::answers::Question;

/// A generator whose sequence depends on the seed alone (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap_or_default() % limit
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const NAMES: &[&str] = &["a", "a", "a", "b", "c"];

const SPEC: &[&str] = &[
    r#""color":"red""#,
    r#""color":"green""#,
    r#""color":"pink""#,
    r#""color":7"#,
    r#""size":3"#,
    r#""size":10"#,
    r#""size":0"#,
    r#""size":2.5"#,
    r#""size":null"#,
    r#""ratio":0.5"#,
    r#""ratio":-1"#,
    r#""on":false"#,
    r#""on":"no""#,
    r#""code":"abc""#,
    r#""code":"A""#,
    r#""when":"2026-01-01T00:00:00Z""#,
    r#""when":"yesterday""#,
    r#""step":15"#,
    r#""step":16"#,
    r#""amount":5"#,
    r#""amount":"5Gi""#,
    r#""amount":true"#,
    r#""free":{"x":[1,{"y":null}],"z":"w"}"#,
    r#""maybe":null"#,
    r#""maybe":"so""#,
    r#""labels":{"k":"v"}"#,
    r#""labels":{"k":1}"#,
    r#""labels":{}"#,
    r#""tags":["t1","t2"]"#,
    r#""tags":["t1","t1"]"#,
    r#""tags":[]"#,
    r#""list":[1,2,3]"#,
    r#""list":["x"]"#,
    r#""ports":[{"name":"p1"},{"name":"p2","port":8}]"#,
    r#""ports":[{"port":8}]"#,
    r#""ports":[{"name":"p2","port":9},{"name":"p1"}]"#,
    r#""unknown":{"deep":1}"#,
    r#""color":null"#,
    r#""on":null"#,
    r#""labels":null"#,
    r#""labels":{"k":null,"l":"v"}"#,
    r#""tags":null"#,
    r#""tags":["t2","t1","t3"]"#,
    r#""tags":["t1",null]"#,
    r#""tags":{"t1":"t2"}"#,
    r#""list":null"#,
    r#""list":[1,null]"#,
    r#""list":3"#,
    r#""ports":null"#,
    r#""ports":[{"name":"p3","port":null},null]"#,
    r#""ports":[{"name":"p1"},{"name":"p1","port":1}]"#,
    r#""ports":[{"name":null}]"#,
    r#""ports":["p1"]"#,
    r#""groups":[{"name":"g1"},{"name":"g1","kind":"side","note":"n"}]"#,
    r#""groups":[{"name":"g1","kind":"main","numbers":[1,2]},{"name":"g2","numbers":[2,3]}]"#,
    r#""groups":[{"name":"g2","members":[{"id":1},{"id":2,"on":false}]}]"#,
    r#""groups":[{"name":"g2","members":[{"id":2,"note":null},{"id":3,"note":"m"}]},{"name":"g1"}]"#,
    r#""groups":[{"name":"g2","members":[{"id":2,"bogus":1}]}]"#,
    r#""groups":[{"name":"g1","numbers":[1,1]}]"#,
    r#""groups":[{"name":"g1"},{"name":"g1","kind":"main"}]"#,
    r#""groups":[{"kind":"main"}]"#,
    r#""groups":[]"#,
    r#""whole":{"x":1,"w":"z"}"#,
    r#""whole":{"w":"v"}"#,
    r#""whole":{"x":1,"z":1}"#,
    r#""whole":{}"#,
    r#""whole":null"#,
    r#""nest":{}"#,
    r#""nest":{"level":2}"#,
    r#""nest":{"inner":null,"level":null}"#,
    r#""nest":{"inner":{"flag":true}}"#,
    r#""nest":{"inner":{"text":"t","other":1}}"#,
    r#""nest":{"extra":{"a":1,"b":null}}"#,
    r#""nest":{"extra":{"a":"b"}}"#,
    r#""nest":null"#,
    r#""nest":[]"#,
    r#""free":{"x":null}"#,
    r#""free":{"x":{"deep":[{"a":1}]}}"#,
    r#""free":[1]"#,
    r#""free":null"#,
    r#""amount":null"#,
    r#""amount":{"a":1}"#,
];

/// Parts that are valid, so that most of what is written is.
const VALID: &[&str] = &[
    r#""color":"red""#,
    r#""color":"green""#,
    r#""size":3"#,
    r#""size":7"#,
    r#""ratio":0.5"#,
    r#""on":false"#,
    r#""code":"abc""#,
    r#""step":15"#,
    r#""amount":"5Gi""#,
    r#""amount":5"#,
    r#""free":{"x":[1,{"y":null}],"z":"w"}"#,
    r#""free":{"x":{"deep":[{"a":1}]}}"#,
    r#""maybe":null"#,
    r#""maybe":"so""#,
    r#""labels":{"k":"v"}"#,
    r#""labels":{"l":"w"}"#,
    r#""labels":{}"#,
    r#""tags":["t1","t2"]"#,
    r#""tags":["t3","t1"]"#,
    r#""tags":[]"#,
    r#""list":[1,2,3]"#,
    r#""list":[3]"#,
    r#""ports":[{"name":"p1"},{"name":"p2","port":8}]"#,
    r#""ports":[{"name":"p3","port":9},{"name":"p1"}]"#,
    r#""ports":[{"name":"p2","port":9},{"name":"p1"}]"#,
    r#""groups":[{"name":"g1"},{"name":"g1","kind":"side","note":"n"}]"#,
    r#""groups":[{"name":"g1","numbers":[1,2]},{"name":"g2","numbers":[2,3]}]"#,
    r#""groups":[{"name":"g2","members":[{"id":1},{"id":2,"on":false}]}]"#,
    r#""groups":[{"name":"g2","members":[{"id":2,"note":null},{"id":3,"note":"m"}]},{"name":"g1"}]"#,
    r#""whole":{"x":1,"w":"z"}"#,
    r#""whole":{"w":"v"}"#,
    r#""nest":{"level":2}"#,
    r#""nest":{"inner":{"flag":true}}"#,
    r#""nest":{"extra":{"a":1}}"#,
    r#""nest":{}"#,
];

const METADATA: &[&str] = &[
    r#""labels":{"app":"x"}"#,
    r#""labels":{"app":"y","tier":"z"}"#,
    r#""labels":{"not ok":"x"}"#,
    r#""labels":{"app":"not ok"}"#,
    r#""annotations":{"note":"any thing"}"#,
    r#""annotations":{"/":"x"}"#,
    r#""annotations":null"#,
    r#""finalizers":["e2e.isthmus.dev/one"]"#,
    r#""finalizers":[]"#,
    r#""finalizers":["bad finalizer"]"#,
    r#""generation":9"#,
    r#""uid":"other""#,
    r#""resourceVersion":"1""#,
    r#""bogus":1"#,
    r#""managedFields":[]"#,
    r#""labels":null"#,
    r#""labels":{"app":null}"#,
    r#""labels":{"app":7}"#,
    r#""annotations":{"note":"b","more":"c"}"#,
    r#""finalizers":["e2e.isthmus.dev/one","e2e.isthmus.dev/two"]"#,
    // Of a kind that is not served: the garbage collector leaves alone what it cannot judge.
    r#""ownerReferences":[{"apiVersion":"none.isthmus.dev/v1","kind":"Nothing","name":"o","uid":"1"}]"#,
    r#""ownerReferences":[{"apiVersion":"none.isthmus.dev/v1","kind":"Nothing","name":"o","uid":"2"},{"apiVersion":"none.isthmus.dev/v1","kind":"Nothing","name":"p","uid":"1"}]"#,
    r#""namespace":"elsewhere""#,
    r#""managedFields":[{}]"#,
    r#""managedFields":null"#,
    r#""creationTimestamp":null"#,
];

const STATUS: &[&str] = &[
    r#""phase":"up""#,
    r#""phase":5"#,
    r#""count":7"#,
    r#""count":"7""#,
    r#""seen":"2026-01-01T00:00:00Z""#,
    r#""seen":"never""#,
    r#""other":1"#,
    r#""phase":null"#,
    r#""conditions":[{"type":"Ready","status":"True"}]"#,
    r#""conditions":[{"type":"Warm"},{"type":"Ready"}]"#,
    r#""conditions":[{"status":"True"}]"#,
    r#""conditions":[]"#,
];

const OPERATIONS: &[&str] = &[
    r#"{"op":"replace","path":"/spec/color","value":"blue"}"#,
    r#"{"op":"add","path":"/spec/size","value":4}"#,
    r#"{"op":"add","path":"/spec/size","value":40}"#,
    r#"{"op":"remove","path":"/spec/size"}"#,
    r#"{"op":"test","path":"/spec/color","value":"blue"}"#,
    r#"{"op":"add","path":"/metadata/labels","value":{"by":"patch"}}"#,
    r#"{"op":"add","path":"/spec/tags","value":["p"]}"#,
    r#"{"op":"add","path":"/spec/tags/-","value":"q"}"#,
    r#"{"op":"copy","from":"/spec/color","path":"/spec/code"}"#,
    r#"{"op":"move","from":"/spec/maybe","path":"/spec/code"}"#,
    r#"{"op":"add","path":"/nowhere/at/all","value":1}"#,
    r#"{"op":"replace","path":"/spec/groups/0/note","value":"patched"}"#,
    r#"{"op":"remove","path":"/spec/groups/0"}"#,
    r#"{"op":"add","path":"/spec/nest","value":{"inner":{"flag":true}}}"#,
    r#"{"op":"add","path":"/spec/bogus","value":1}"#,
    r#"{"op":"replace","path":"/status/phase","value":"patched"}"#,
    r#"{"op":"add","path":"/status","value":{"count":3}}"#,
    r#"{"op":"add","path":"/metadata/finalizers","value":["e2e.isthmus.dev/one"]}"#,
    r#"{"op":"replace","path":"/metadata/name","value":"z"}"#,
    r#"{"op":"test","path":"/metadata/name","value":"a"}"#,
    r#"{"op":"replace","path":"/spec/size","value":null}"#,
];

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

/// What reads say besides.
const READING: &[&str] = &[
    "",
    "",
    "includeObject=None",
    "includeObject=Object",
    "includeObject=Metadata",
    "labelSelector=app%3Dx",
    "labelSelector=app%20in%20(x%2Cy)%2Ctier",
    "labelSelector=!app",
    "labelSelector=app%3D%3D%3D",
    "fieldSelector=spec.color%3Dred",
    "fieldSelector=spec.color!%3Dred%2Cmetadata.name%3Da",
    "fieldSelector=spec.size%3D3",
    "limit=1",
    "limit=0",
    "limit=x",
    "resourceVersion=0",
    "resourceVersion=1&resourceVersionMatch=Exact",
    "resourceVersionMatch=Exact",
    "resourceVersion=x",
    "continue=x",
    "pretty=true",
    "timeoutSeconds=x",
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

/// Types of bodies that are not what they say, or that nobody reads. Protobuf is left out: the API server 1.36 panics on it.
const STRANGE: &[(&str, &str)] = &[
    ("json", "{"),
    ("json", r#"{"apiVersion":"test.isthmus.dev/v1","kind":"Gadget","spec":}"#),
    ("json", "\u{1}"),
    ("yaml", "{$K, metadata: {name: y1}, spec: {color: red, size: 3}}"),
    ("yaml", "{$K, metadata: {name: y1}, spec: {color: red, code: abc, size: 0x3, ratio: 1e0}}"),
    ("application/cbor", "\u{a0}"),
    ("text/plain", "{$K}"),
    ("application/json;charset=utf-8", r#"{$K,"metadata":{"name":"y2"},"spec":{"color":"red"}}"#),
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
pub(super) fn questions(seed: u64, count: usize) -> Vec<Question> {
    let mut dice = Dice(seed);
    (0..count).map(|_| question(&mut dice)).collect()
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
    fn new(dice: &mut Dice) -> Self {
        // Of three in four everything is valid.
        let valid = dice.below(4) > 0;
        let mut spec = some(dice, if valid { VALID } else { SPEC }, 5);
        if dice.below(6) > 0 && !spec.iter().any(|member| member.starts_with("\"color\"")) {
            spec.push(r#""color":"blue""#.to_owned());
        }
        if dice.below(30) == 0 {
            // Twice: the last one counts.
            spec.push(r#""size":4"#.to_owned());
            spec.push(r#""size":5"#.to_owned());
        }
        Self {
            name: dice.pick(NAMES).to_owned(),
            metadata: if dice.below(if valid { 4 } else { 2 }) == 0 {
                some(dice, METADATA, 2)
            } else {
                Vec::new()
            },
            spec,
            status: if dice.below(3) == 0 { some(dice, STATUS, 2) } else { Vec::new() },
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

fn question(dice: &mut Dice) -> Question {
    let mut draft = Draft::new(dice);
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
            let operations: Vec<_> = (0..=dice.below(2)).map(|_| dice.pick(OPERATIONS)).collect();
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
            let what = dice.pick(&[
                "labelSelector=app%3Dx",
                "labelSelector=tier",
                "fieldSelector=spec.color%3Dgreen",
                "fieldSelector=metadata.name%3Db",
                "dryRun=All",
                "labelSelector=(",
                "limit=1&dryRun=All",
            ]);
            ask("DELETE", format!("$C?{what}"), "", String::new())
        }
        24..=26 => {
            let (accept, reading) = (dice.pick(ACCEPT), dice.pick(READING));
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
            let (media_type, body) = STRANGE[dice.below(STRANGE.len())];
            let (method, path) = if dice.below(2) == 0 {
                ("POST", "$C?dryRun=All".to_owned())
            } else {
                ("PUT", draft.path(""))
            };
            ask(method, path, media_type, body.to_owned())
        }
    }
}
