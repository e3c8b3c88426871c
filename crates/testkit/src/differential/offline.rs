//! What one server said, against what another says to the same requests when the first can no longer be asked: lists to their last page, and by
//! which rules it may refuse.

use serde_json::{Value, json};

use super::compare::is_json;
use super::{Case, Common, Landmarks, Raw, Reply, Said, Subject, Verb};
use crate::client::connection::{ConnectionError, Endpoint};

/// More than these no list of a test has.
const PAGES_MAX: usize = 1000;

impl Case {
    /// With what status who holds every object of a resource, and has shown all of them as a table, may refuse this in words of his own while nobody else
    /// can be asked, where the API server said `told`: just what he cannot know. All else he has to answer, be it with an error, as that did.
    pub fn refused_offline(&self, subject: &Subject, told: &Reply) -> Option<u16> {
        const NOT_ACCEPTABLE: u16 = 406;
        const TOO_MANY_REQUESTS: u16 = 429;
        const UNAVAILABLE: u16 = 503;
        match told.status {
            200 => self.has_no_cells().then_some(NOT_ACCEPTABLE),
            // Since he heard it last, a definition may have made the field one to select by. A watch is to be asked for again, so that its reader keeps
            // what it has.
            400 if subject.is_custom() && told.is_of_an_unknown_field() => {
                Some(if self.verb == Verb::Watch { TOO_MANY_REQUESTS } else { UNAVAILABLE })
            }
            _ => None,
        }
    }

    /// Whether this asks for a table of which nobody but the API server has the cells.
    fn has_no_cells(&self) -> bool {
        let is_table = self.value("$accept") == "table";
        // Cells are made by code of each kind's own, which the API server has: of what comes while nobody can be asked there are none,
        let of_events = is_table && self.verb == Verb::Watch;
        // and of an object as it was those that were made of it since say nothing.
        let is_exact = self.value("resourceVersionMatch") == "Exact"
            || (self.value("resourceVersionMatch").is_empty() && !self.value("limit").is_empty());
        let of_the_past =
            is_table && self.verb == Verb::List && self.value("resourceVersion") == "$old" && is_exact;
        of_events || of_the_past
    }

    /// The same list in its namespace, if only a selector names that. The API server narrows the first page of such a list to the namespace, and its
    /// token counts from there, but no page behind a token (`SelectionPredicate.MatchesSingleNamespace`), which counts from all
    /// namespaces: objects are left out, or come twice. So it is in v1.36.
    fn where_it_is(&self, subject: &Subject) -> Option<Self> {
        let fields = self.value("fieldSelector");
        let narrowed = self.verb == Verb::List
            && subject.namespaced
            && self.value("$scope") == "cluster"
            && (fields == "$others" || fields.contains("metadata.namespace="))
            && self.value("continue").is_empty();
        let mut there = self.clone();
        for (_, value) in there.values.iter_mut().filter(|(name, _)| *name == "$scope") {
            *value = "namespaced";
        }
        narrowed.then_some(there)
    }
}

impl Reply {
    /// Whether it is the refusal of a field of a custom resource, by which its definition does not let select. Read in JSON: to who wants protobuf of
    /// whole custom resources something else is said.
    fn is_of_an_unknown_field(&self) -> bool {
        let message = self.values.first().and_then(|status| status["message"].as_str());
        message.is_some_and(|message| message.starts_with("field label not supported: "))
    }
}

/// Everything that a server says to a request: of a list each page, by the tokens that it gives itself, to the last one or to an
/// error; of anything else the one answer. `token`: finds the token for the next page in an answer; see [`token`].
pub async fn pages<E: From<ConnectionError>>(
    endpoint: &Endpoint,
    case: &Case,
    subject: &Subject,
    landmarks: &Landmarks,
    token: impl Fn(&Said) -> Result<Option<String>, E>,
) -> Result<Vec<Said>, E> {
    let mut pages = Vec::new();
    let mut request = case.request(subject, landmarks);
    loop {
        let raw = Raw::fetch_path(endpoint, &request.0, &request.1).await?;
        let mut said = raw.read(case, landmarks, Common::Cluster);
        said.reply.values.iter_mut().for_each(some_rows);
        let is_page = case.verb == Verb::List && said.reply.status == 200;
        let next = if is_page { token(&said)? } else { None };
        pages.push(said);
        match next {
            Some(next) if pages.len() < PAGES_MAX => {
                request = case.request_of_page(subject, landmarks, Some(&next));
            }
            _ => return Ok(pages),
        }
    }
}

/// What is to be said to a request by whoever stands for this API server: what that says itself; but behind the first page of a list that a selector
/// narrows to a namespace, where it loses objects, what it says of the same list in that namespace.
pub async fn told<E: From<ConnectionError>>(
    server: &Endpoint,
    case: &Case,
    subject: &Subject,
    landmarks: &Landmarks,
    token: impl Fn(&Said) -> Result<Option<String>, E> + Copy,
) -> Result<Vec<Said>, E> {
    let mut said = pages(server, case, subject, landmarks, token).await?;
    if let Some(there) = case.where_it_is(subject).filter(|_| said.len() > 1) {
        let rest = pages(server, &there, subject, landmarks, token).await?;
        said.truncate(1);
        said.extend(rest.into_iter().skip(1));
    }
    Ok(said)
}

/// The token of a page in JSON; none on the last one, and in protobuf, which is not read here.
pub fn token(said: &Said) -> Option<String> {
    let page: Value = serde_json::from_slice(&said.body).ok().filter(|_| is_json(&said.headers))?;
    page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
}

/// A table without rows has `null` for them or an empty list, as the code of its kind has it; to readers both are none.
fn some_rows(body: &mut Value) {
    if body["kind"] == "Table" && body["rows"].is_null() {
        body["rows"] = json!([]);
    }
}

/// Whether both said the same, page by page.
pub fn is_same(one: &[Said], other: &[Said]) -> bool {
    one.iter().map(|said| &said.reply).eq(other.iter().map(|said| &said.reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case with these values alone.
    fn case(verb: Verb, values: &[(&'static str, &'static str)]) -> Case {
        Case { verb, values: values.to_vec() }
    }

    fn told(status: u16, message: &str) -> Reply {
        Reply { status, headers: Vec::new(), values: vec![json!({ "message": message })], in_time: None }
    }

    #[test]
    fn only_what_cannot_be_known_may_be_refused_in_other_words() {
        let subject = |template: Value| Subject {
            root: "/apis/example.com/v1".to_owned(),
            resource: "widgets".to_owned(),
            namespaced: true,
            template,
        };
        let (custom, built_in) = (subject(json!({ "spec": { "n": 1 } })), subject(json!({})));
        let table = ("$accept", "table");
        let past = [table, ("resourceVersion", "$old"), ("limit", "1")];
        for (verb, values, allowed) in [
            (Verb::List, &[table][..], None),
            (Verb::Watch, &[table][..], Some(406)),
            (Verb::List, &past[..], Some(406)),
            (Verb::List, &past[1..], None),
        ] {
            assert_eq!(case(verb, values).refused_offline(&custom, &told(200, "")), allowed, "{values:?}");
            // Errors are to be said as they are.
            assert_eq!(case(verb, values).refused_offline(&custom, &told(422, "")), None, "{values:?}");
        }
        let unknown = told(400, "field label not supported: spec.nodeName");
        for (verb, status) in [(Verb::List, 503), (Verb::Watch, 429)] {
            assert_eq!(case(verb, &[]).refused_offline(&custom, &unknown), Some(status));
            assert_eq!(case(verb, &[]).refused_offline(&built_in, &unknown), None);
            assert_eq!(case(verb, &[]).refused_offline(&custom, &told(400, "invalid continue token")), None);
        }
    }
}
