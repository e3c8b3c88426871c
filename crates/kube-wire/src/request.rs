//! What a request is about, by method and URL: the API server's own rules (`RequestInfoFactory`). It does not know which resources
//! exist. In one thing it is stricter: a path with an empty part (slashes at its end make none), `.` or `..` is no resource here, though those rules
//! read it as one. No route of the API server leads there.

use http::{Method, Uri};

use crate::{list_options, resource::GroupVersionResource};

/// What a request does to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestInfo {
    /// What it does.
    pub verb: Verb,
    /// To what.
    pub path: ApiPath,
}

/// What a request does, in the words of authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one object, or a path that is no resource.
    Get,
    /// Reads many.
    List,
    /// Reads changes.
    Watch,
    /// Makes one.
    Create,
    /// Replaces one.
    Update,
    /// Changes one in part.
    Patch,
    /// Removes one.
    Delete,
    /// Removes many.
    DeleteCollection,
    /// Anything else: `proxy`, other methods, writes to what is no resource.
    Other,
}

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiPath {
    /// A resource.
    Resource(ResourcePath),
    /// Anything else, such as `/healthz`, `/openapi/v3` or discovery.
    NonResource(String),
}

/// Objects of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcePath {
    /// Which resource.
    pub resource: GroupVersionResource,
    /// In which namespace; `None` for all of them, and for cluster-scoped resources. Of a namespace itself, its own name.
    pub namespace: Option<Box<str>>,
    /// Which object. Of a list or watch, the one that its field selector requires, or that its path of old names.
    pub name: Option<Box<str>>,
    /// Which part of it: `status`, `token`, `log`.
    pub subresource: Option<Box<str>>,
    /// Whether it is a watch of before 1.11, `/api/v1/watch/…`, whose selectors are not to be trusted in authorization.
    pub verb_in_path: bool,
}

impl RequestInfo {
    /// Reads method and URL.
    pub fn parse(method: &Method, uri: &Uri) -> Self {
        let path = percent_decoded(uri.path());
        let query = uri.query().unwrap_or_default();
        if let Some((verb, resource)) = resource(method, &path, query) {
            return Self { verb, path: ApiPath::Resource(resource) };
        }
        let verb = if method == Method::GET { Verb::Get } else { Verb::Other };
        Self { verb, path: ApiPath::NonResource(path) }
    }

    /// The resource, if it is about one.
    pub fn resource(&self) -> Option<&ResourcePath> {
        match &self.path {
            ApiPath::Resource(resource) => Some(resource),
            ApiPath::NonResource(_) => None,
        }
    }
}

fn resource(method: &Method, path: &str, query: &str) -> Option<(Verb, ResourcePath)> {
    let path = path.strip_prefix('/').unwrap_or(path).trim_end_matches('/');
    let all: Vec<_> = path.split('/').collect();
    let (group, version, mut parts) = match &all[..] {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return None,
    };
    let mut verb = match *method {
        Method::POST => Verb::Create,
        Method::GET | Method::HEAD => Verb::Get,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => Verb::Other,
    };
    let mut is_proxy = false;
    let verb_in_path = matches!(parts[0], "watch" | "proxy");
    if verb_in_path {
        is_proxy = parts[0] == "proxy";
        verb = if is_proxy { Verb::Other } else { Verb::Watch };
        // Without a resource behind it the API server fails.
        parts = parts.get(1..).filter(|rest| !rest.is_empty())?;
    }
    let mut namespace = "";
    if let ["namespaces", name, rest @ ..] = parts {
        namespace = name;
        // These are parts of the namespace itself, any other is a resource within it.
        if !rest.is_empty() && !matches!(rest[0], "status" | "finalize") {
            parts = rest;
        }
    }
    // What is behind these is not the API server's own: the path of what is proxied.
    let named = all.len() - parts.len() + if is_proxy { 2 } else { 3 };
    if all.iter().take(named).any(|part| matches!(*part, "" | "." | "..")) {
        return None;
    }
    let resource = parts.first().copied().unwrap_or_default();
    let subresource = parts.get(2).copied().filter(|_| !is_proxy).unwrap_or_default();
    let mut name: Option<Box<str>> = parts.get(1).copied().and_then(given);
    if name.is_none() && verb == Verb::Get {
        verb = if list_options::is_watch(query) { Verb::Watch } else { Verb::List };
        name = list_options::named_object(query).filter(|name| is_path_segment(name));
    }
    if name.is_none() && verb == Verb::Delete {
        verb = Verb::DeleteCollection;
    }
    let resource = ResourcePath {
        resource: GroupVersionResource::new(group, version, resource),
        namespace: given(namespace),
        name,
        subresource: given(subresource),
        verb_in_path,
    };
    Some((verb, resource))
}

fn given(text: &str) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}

/// Whether a name can stand in a path.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}

/// The path with its escapes decoded; as it stands, if one is broken.
fn percent_decoded(path: &str) -> String {
    // A plus is a plus in a path.
    let decoded = crate::query::decoded(&path.replace('+', "%2B")).map(std::borrow::Cow::into_owned);
    decoded.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests;
