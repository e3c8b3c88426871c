//! Discovery: `/apis` in both forms, `/apis/<group>`, `/apis/<group>/<version>`; computed once, with `ETag`s.

use std::collections::BTreeMap;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kube_wire::{accept::Answer, request::Verb};
use serde_json::{Value, json};
use tls::digest::Sha256Digest;

use crate::{answer::Form, resource::ResourceInfo, verbs::verb_name};

/// The versions of aggregated discovery.
const AGGREGATED: [&str; 2] = ["v2", "v2beta1"];

/// All documents.
pub(crate) struct Discovery {
    /// By version.
    aggregated: Vec<Tagged>,
    /// By path.
    legacy: BTreeMap<String, Value>,
}

struct Tagged {
    content_type: String,
    body: Bytes,
    etag: String,
}

/// A document's name by its content, in quotes.
pub(crate) fn etag(body: &[u8]) -> String {
    format!("\"{}\"", Sha256Digest::of(body).to_string().to_uppercase())
}

/// A document, or that the client has it already.
pub(crate) fn tagged(headers: &HeaderMap, content_type: &str, body: &Bytes, etag: &str) -> Response {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
    let unchanged =
        known.split(',').any(|known| matches!(known.trim(), known if known == etag || known == "*"));
    let mut response = Response::new(if unchanged { Body::empty() } else { Body::from(body.clone()) });
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let out = response.headers_mut();
    for (name, value) in [(header::ETAG, etag), (header::CONTENT_TYPE, content_type)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            out.insert(name, value);
        }
    }
    out.insert(header::VARY, HeaderValue::from_static("Accept"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// Any JSON.
pub(crate) fn json(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The resources of a version, and the versions of a group.
type Version<'a> = (&'a str, Vec<&'a ResourceInfo>);
type Group<'a> = (&'a str, Vec<Version<'a>>);

/// The resources of each version of each group, in the order in which they were given.
fn groups<'a>(resources: &[&'a ResourceInfo]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for info in resources {
        let at = groups.iter().position(|(group, _)| *group == info.group).unwrap_or_else(|| {
            groups.push((&info.group, Vec::new()));
            groups.len() - 1
        });
        let versions = &mut groups[at].1;
        let at = versions.iter().position(|(version, _)| *version == info.version).unwrap_or_else(|| {
            versions.push((&info.version, Vec::new()));
            versions.len() - 1
        });
        versions[at].1.push(info);
    }
    groups
}

fn verbs(info: &ResourceInfo) -> Vec<&'static str> {
    let advertised = info.verbs.iter().filter(|verb| !info.unadvertised.contains(verb));
    let mut names: Vec<_> = advertised.copied().map(verb_name).collect();
    // The API server's order.
    let order = |name: &str| crate::resource::VERBS.iter().position(|verb| verb_name(*verb) == name);
    names.sort_by_key(|name| order(name));
    names
}

fn status_verbs(info: &ResourceInfo) -> Vec<&'static str> {
    [Verb::Get, Verb::Patch, Verb::Update]
        .into_iter()
        .filter(|verb| info.verbs.contains(verb))
        .map(verb_name)
        .collect()
}

impl Discovery {
    pub(crate) fn new(resources: &[&ResourceInfo]) -> Self {
        let groups = groups(resources);
        let aggregated = AGGREGATED.iter().map(|version| aggregated(&groups, version)).collect();
        let mut legacy = BTreeMap::new();
        let mut all = Vec::new();
        for (group, versions) in &groups {
            let named: Vec<_> = versions
                .iter()
                .map(|(version, _)| json!({ "groupVersion": format!("{group}/{version}"), "version": version }))
                .collect();
            let mut described =
                json!({ "name": group, "versions": named, "preferredVersion": named.first() });
            all.push(described.clone());
            described["kind"] = "APIGroup".into();
            described["apiVersion"] = "v1".into();
            legacy.insert(format!("/apis/{group}"), described);
            for (version, resources) in versions {
                let resources: Vec<_> = resources.iter().flat_map(|info| legacy_resource(info)).collect();
                let list = json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"),
                    "resources": resources,
                });
                legacy.insert(format!("/apis/{group}/{version}"), list);
            }
        }
        legacy
            .insert("/apis".to_owned(), json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": all }));
        let paths: Vec<_> = legacy
            .keys()
            .map(String::as_str)
            .chain(["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"])
            .collect();
        let root = json!({ "paths": paths });
        legacy.insert("/".to_owned(), root);
        Self { aggregated, legacy }
    }

    pub(crate) fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        let path = if path == "/" { path } else { path.trim_end_matches('/') };
        let value = self.legacy.get(path)?;
        if path == "/apis"
            && let Some(found) = self.wanted(headers)
        {
            return Some(tagged(headers, &found.content_type, &found.body, &found.etag));
        }
        Some(match Form::negotiate(headers, "", Answer::Object) {
            Ok(form) => {
                let mut response = form.encoded(StatusCode::OK, value);
                if path == "/apis" {
                    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
                }
                response
            }
            Err(status) => crate::answer::failure(&status),
        })
    }

    /// The aggregated form, if the client likes it better than the legacy one.
    fn wanted(&self, headers: &HeaderMap) -> Option<&Tagged> {
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        for clause in values.flat_map(|value| value.split(',')) {
            let mut parts = clause.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let parameters: Vec<_> = parts.filter(|part| !part.starts_with("q=")).collect();
            if media_type != "application/json" {
                continue;
            }
            if parameters.is_empty() {
                return None;
            }
            let is = |name: &str| parameters.contains(&name);
            if is("g=apidiscovery.k8s.io") && is("as=APIGroupDiscoveryList") {
                let at = AGGREGATED.iter().position(|version| is(&format!("v={version}")));
                if let Some(found) = at.and_then(|at| self.aggregated.get(at)) {
                    return Some(found);
                }
            }
        }
        None
    }
}

fn aggregated(groups: &[Group<'_>], form: &str) -> Tagged {
    let items: Vec<_> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<_> = versions
                .iter()
                .map(|(version, resources)| {
                    let resources: Vec<_> = resources.iter().map(|info| aggregated_resource(info)).collect();
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            json!({ "metadata": { "name": group }, "versions": versions })
        })
        .collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{form}"), "metadata": {}, "items": items,
    });
    let body = Bytes::from(list.to_string());
    let content_type = format!("application/json;g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList");
    Tagged { content_type, etag: etag(&body), body }
}

fn aggregated_resource(info: &ResourceInfo) -> Value {
    let kind = json!({ "group": info.group, "version": info.version, "kind": info.kind });
    let mut resource = json!({
        "resource": info.plural,
        "responseKind": kind,
        "scope": if info.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": info.singular,
        "verbs": verbs(info),
    });
    if !info.short_names.is_empty() {
        resource["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        resource["categories"] = json!(info.categories);
    }
    if info.status {
        resource["subresources"] =
            json!([{ "subresource": "status", "responseKind": kind, "verbs": status_verbs(info) }]);
    }
    resource
}

fn legacy_resource(info: &ResourceInfo) -> Vec<Value> {
    let mut resource = json!({
        "name": info.plural,
        "singularName": info.singular,
        "namespaced": info.namespaced,
        "kind": info.kind,
        "verbs": verbs(info),
    });
    if !info.short_names.is_empty() {
        resource["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        resource["categories"] = json!(info.categories);
    }
    let mut all = vec![resource];
    if info.status {
        all.push(json!({
            "name": format!("{}/status", info.plural),
            "singularName": "",
            "namespaced": info.namespaced,
            "kind": info.kind,
            "verbs": status_verbs(info),
        }));
    }
    all
}
