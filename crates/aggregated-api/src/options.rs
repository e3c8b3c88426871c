//! Options of writes: the query of the URL, and the body of a deletion. Refused in the API server's words.

use http::{HeaderMap, header};
use kube_wire::{resource_version::ResourceVersion, status::Status};
use serde::Deserialize;

use crate::field_error::{FieldError, FieldErrors};

/// The first value of a parameter that is given.
pub(crate) fn first(query: &str, name: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// All values of a parameter.
pub(crate) fn all(query: &str, name: &str) -> Vec<String> {
    form_urlencoded::parse(query.as_bytes())
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
        .collect()
}

/// What becomes of members that the schema does not know, and of those that stand twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Which write it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind {
    Create,
    Update,
    Patch,
    Apply,
}

/// Options of a creation, update or patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    pub(crate) kind: WriteKind,
    pub(crate) dry_run: bool,
    pub(crate) validation: FieldValidation,
    /// Who the fields written belong to.
    pub(crate) manager: String,
    pub(crate) force: bool,
}

/// The longest name of a manager.
const MANAGER_MAX: usize = 128;

impl WriteOptions {
    pub(crate) fn parse(kind: WriteKind, query: &str, headers: &HeaderMap) -> Result<Self, Status> {
        let mut errors = FieldErrors::default();
        let force = first(query, "force");
        let manager = first(query, "fieldManager").unwrap_or_default();
        if kind == WriteKind::Apply && manager.is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if kind == WriteKind::Patch && force.is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        check_manager(&manager, &mut errors);
        let dry_run = check_dry_run(&all(query, "dryRun"), &mut errors);
        let validation = match first(query, "fieldValidation").unwrap_or_default().as_str() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = r#""", "Ignore", "Strict", "Warn""#;
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    &kube_wire::quoting::quoted(other),
                    supported,
                ));
                FieldValidation::Warn
            }
        };
        let options = match kind {
            WriteKind::Create => "CreateOptions",
            WriteKind::Update => "UpdateOptions",
            WriteKind::Patch | WriteKind::Apply => "PatchOptions",
        };
        errors.check("meta.k8s.io", options, "")?;
        let manager = if manager.is_empty() { user_agent(headers) } else { manager };
        let force = force.is_some_and(|force| is_true(&force));
        Ok(Self { kind, dry_run, validation, manager, force })
    }
}

fn is_true(text: &str) -> bool {
    !(text == "0" || text.eq_ignore_ascii_case("false"))
}

fn check_manager(manager: &str, errors: &mut FieldErrors) {
    if manager.len() > MANAGER_MAX {
        errors.push(FieldError::too_long("fieldManager", MANAGER_MAX as u64));
    }
    for (at, character) in manager.char_indices().filter(|(_, character)| !is_printable(*character)) {
        let words = format!("invalid character U+{:04X} (at position {at})", u32::from(character));
        errors.push(FieldError::invalid("fieldManager", &kube_wire::quoting::quoted(manager), &words));
    }
}

fn check_dry_run(values: &[String], errors: &mut FieldErrors) -> bool {
    if values.iter().any(|value| value != "All") {
        let shown: Vec<_> = values.iter().map(|value| kube_wire::quoting::quoted(value)).collect();
        let shown = format!("[{}]", shown.join(","));
        errors.push(FieldError::not_supported("dryRun", &shown, "\"All\""));
    }
    !values.is_empty()
}

/// What Go calls printable, but for characters that nobody has assigned yet: of all that is blank only the space.
fn is_printable(character: char) -> bool {
    let formats = matches!(
        character,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}'
    );
    character == ' ' || !(character.is_control() || character.is_whitespace() || formats)
}

/// Without a manager it is the client by what it calls itself, up to its version.
fn user_agent(headers: &HeaderMap) -> String {
    let agent = headers.get(header::USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    let name = agent.as_deref().and_then(|agent| agent.split('/').next()).unwrap_or_default();
    let printable = name.chars().filter(|character| is_printable(*character));
    let printable: String = printable
        .scan(0, |length, character| {
            *length += character.len_utf8();
            (*length <= MANAGER_MAX).then_some(character)
        })
        .collect();
    if printable.is_empty() { "unknown".to_owned() } else { printable }
}

/// What happens to dependents of what is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Options of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    /// What is not said is as the object's finalizers have it.
    pub(crate) propagation: Option<Propagation>,
    /// Whether the caller is told of a deletion that only begins: who said `orphanDependents=false`, which is out of use.
    pub(crate) waits: bool,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DeleteBody {
    kind: String,
    api_version: String,
    dry_run: Vec<String>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    preconditions: Option<Preconditions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    /// The body counts if there is one, otherwise the query.
    pub(crate) fn parse(query: &str, body: &serde_json::Value) -> Result<Self, Status> {
        let mut errors = FieldErrors::default();
        let given = if body.is_null() {
            DeleteBody {
                dry_run: all(query, "dryRun"),
                propagation_policy: first(query, "propagationPolicy"),
                orphan_dependents: first(query, "orphanDependents").map(|text| is_true(&text)),
                ..DeleteBody::default()
            }
        } else {
            DeleteBody::deserialize(body).map_err(|error| Status::bad_request(error.to_string()))?
        };
        let DeleteBody { kind, api_version, dry_run, propagation_policy, orphan_dependents, preconditions } =
            given;
        if !kind.is_empty() && kind != "DeleteOptions" {
            return Err(Status::bad_request(format!(
                "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                kube_wire::quoting::quoted(&kind),
                kube_wire::quoting::quoted(&api_version),
            )));
        }
        if propagation_policy.is_some() && orphan_dependents.is_some() {
            let words = "orphanDependents and deletionPropagation cannot be both set";
            let policy = kube_wire::quoting::quoted(propagation_policy.as_deref().unwrap_or_default());
            errors.push(FieldError::invalid("propagationPolicy", &policy, words));
        }
        let propagation = match propagation_policy.as_deref() {
            None => orphan_dependents
                .map(|orphans| if orphans { Propagation::Orphan } else { Propagation::Background }),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let supported = r#""Foreground", "Background", "Orphan", "nil""#;
                let shown = kube_wire::quoting::quoted(other);
                errors.push(FieldError::not_supported("propagationPolicy", &shown, supported));
                None
            }
        };
        let dry_run = check_dry_run(&dry_run, &mut errors);
        errors.check("meta.k8s.io", "DeleteOptions", "")?;
        let Preconditions { uid, resource_version } = preconditions.unwrap_or_default();
        let waits = orphan_dependents == Some(false);
        Ok(Self { dry_run, propagation, waits, uid, version: resource_version })
    }
}

/// What `resourceVersion` of a GET asks for: nothing in particular, or a state not older than this.
pub(crate) fn at_least(query: &str) -> Result<Option<ResourceVersion>, Status> {
    let text = first(query, "resourceVersion").unwrap_or_default();
    if matches!(text.as_str(), "" | "0") {
        return Ok(None);
    }
    text.parse::<u64>().map(ResourceVersion::new).map_err(|_| {
        let shown = kube_wire::quoting::quoted(&text);
        Status::untranslated(format!(
            "resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: invalid syntax"
        ))
    })
}
