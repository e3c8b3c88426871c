//! In what form an answer is wanted: objects in one of their encodings, or a table.

use axum::body::Body;
use http::{HeaderValue, Response, header, request::Parts};
use kube_wire::{
    accept::{Answer, As, MediaType, Representation, check_route, negotiate, negotiate_custom},
    deadline,
    request::Verb,
    resource::GroupVersionResource,
    status::Status,
    transcode,
};
use watch_cache::Page;

use super::{Asked, Wanted};

/// What is said to who would rather have had a table.
const NO_COLUMNS: &str = "299 edge-hub \"no link to the API server: only names and ages are known in this form; -o yaml or -o name shows all that is held\"";

/// What the hub writes.
const WRITTEN: [MediaType; 2] = [MediaType::Json, MediaType::Protobuf];

/// What the API server writes, in its order.
const OF_THE_API_SERVER: [MediaType; 3] = [MediaType::Json, MediaType::Yaml, MediaType::Protobuf];

/// Whether the client would rather have a table, and in which version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rather {
    /// No: it asked for objects.
    Objects,
    /// Yes, and objects will do.
    Table(&'static str),
    /// Yes, and nothing else.
    TableOnly(&'static str),
}

fn accepted(request: &Parts) -> &str {
    request.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// How a form is chosen for a resource.
fn choice(resource: &GroupVersionResource) -> fn(&str, &[MediaType]) -> Result<Representation, Status> {
    if transcode::knows(resource) { negotiate } else { negotiate_custom }
}

/// What the API server would write.
fn negotiated(accept: &str, resource: &GroupVersionResource, kind: Answer) -> Result<Representation, Status> {
    if transcode::knows(resource) {
        check_route(accept, kind)?;
    }
    choice(resource)(accept, &OF_THE_API_SERVER)
}

/// What is said to who is `refused` for its options, and may accept no answer either: the API server looks at that first, and before it at `timeout` alone.
pub(super) fn refused_first(
    request: &Parts,
    resource: &GroupVersionResource,
    verb: Verb,
    refused: Status,
) -> Status {
    let kind = match verb {
        Verb::List => Answer::List,
        Verb::Watch => Answer::Watch,
        _ => Answer::Object,
    };
    let query = request.uri.query().unwrap_or_default();
    if verb != Verb::Watch && deadline::check(query).is_err() {
        return refused;
    }
    negotiated(accepted(request), resource, kind).err().unwrap_or(refused)
}

/// How to answer; `None` if only the API server can answer so.
pub(super) fn representation(
    request: &Parts,
    resource: &GroupVersionResource,
    wanted: &Wanted,
    up: bool,
) -> Result<Option<(Representation, Rather)>, Status> {
    let accept = accepted(request);
    let (kind, pretty) = match wanted {
        Wanted::List(_) => (Answer::List, true),
        Wanted::Watch(_) => (Answer::Watch, false),
        Wanted::Get => (Answer::Object, true),
    };
    let choose = choice(resource);
    let mut representation = match negotiated(accept, resource, kind) {
        Ok(best) if best.encoding != MediaType::Yaml => best,
        // YAML is the API server's to write; without a link the client gets what it likes next.
        Ok(_) if up => return Ok(None),
        Ok(_) => choose(accept, &WRITTEN).map_err(|_| no_yaml())?,
        Err(refused) => return Err(refused),
    };
    let mut table = Rather::Objects;
    if representation.as_ == As::Table {
        if up {
            return Ok(None);
        }
        // Columns are the API server's to make. kubectl accepts plain objects, too, and then shows names and ages.
        let version = representation.meta_version;
        let plain: Vec<&str> = accept.split(',').filter(|clause| !clause.contains("as=Table")).collect();
        let as_asked = !request.uri.query().unwrap_or_default().contains("includeObject");
        table = match (as_asked, plain.is_empty()) {
            (false, true) => return Err(Status::not_acceptable(&["application/json"])),
            (false, false) => Rather::Objects,
            (true, false) => Rather::Table(version),
            (true, true) => Rather::TableOnly(version),
        };
        representation = if plain.is_empty() {
            Representation { as_: As::Object, ..representation }
        } else {
            choose(&plain.join(","), &WRITTEN)?
        };
    }
    // What one object cannot be shown as is said of one that is there ([`check_one`]), and what an event cannot ends the watch.
    let is_of_lists = kind == Answer::Watch && representation.as_ == As::PartialObjectMetadataList;
    if kind != Answer::Object && !is_of_lists {
        representation.check(kind)?;
    }
    if pretty && up && (representation.pretty || is_for_people(request)) {
        return Ok(None);
    }
    Ok(Some((representation, table)))
}

/// Checks that one object of the resource can be shown so, as the API server does when it has it: what is not there is 404 in any form.
pub(super) fn check_one(
    representation: &Representation,
    resource: &GroupVersionResource,
) -> Result<(), Status> {
    if !transcode::knows(resource) && representation.as_ == As::PartialObjectMetadataList {
        // What stands for any custom resource in the API server could be a list.
        return Err(Status::untranslated("content is not a list"));
    }
    representation.check(Answer::Object)
}

/// Status 503 and not 406: with a link there is YAML.
fn no_yaml() -> Status {
    Status::service_unavailable(
        "edge-hub: no link to the API server, which alone writes YAML: application/json is answered without one",
    )
}

/// The API server indents JSON for browsers and command-line tools, and when asked.
fn is_for_people(request: &Parts) -> bool {
    let agent =
        request.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let asked =
        request.uri.query().is_some_and(|query| query.split('&').any(|part| part.starts_with("pretty=")));
    asked || ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}

impl Asked<'_> {
    /// These objects as the table that the client would rather have. `Ok(None)`: they are to be answered as they are.
    pub(super) fn table(&self, page: &Page) -> Result<Option<Response<Body>>, Box<Status>> {
        let (Rather::Table(version) | Rather::TableOnly(version)) = self.table else { return Ok(None) };
        let table = self.hub.tables.answer(&self.named.owner, &self.key().resource, version, page);
        match table {
            Some(table) => Ok(Some(Response::new(Body::from(table.to_string())))),
            None if matches!(self.table, Rather::TableOnly(_)) => {
                Err(Box::new(Status::not_acceptable(&["application/json"])))
            }
            None => Ok(None),
        }
    }

    /// Says in an answer of objects that they are no table though one was wanted: kubectl shows names and ages of them, and nothing else would say why.
    pub(super) fn tell_of_columns(&self, response: &mut Response<Body>) {
        if matches!(self.table, Rather::Table(_)) {
            response.headers_mut().append(header::WARNING, HeaderValue::from_static(NO_COLUMNS));
        }
    }
}
