//! Documents about a kind: aggregated discovery, and `OpenAPI` of both versions. The API server's tell of many kinds, so what is compared is what is said of
//! this one, and that a client which has a document already is told so.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::eventually;
use http::{HeaderMap, Request};
use serde_json::{Map, Value};
use testkit::client::connection::Endpoint;

use super::answers::walk;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The API server puts its documents together some time after a kind was made.
const PUT_TOGETHER: Duration = Duration::from_mins(1);

/// The kind that is asked about.
pub(super) struct About {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
}

/// Both servers: the real one, and ours.
pub(super) type Both<'a> = (&'a Endpoint, &'a Endpoint);

impl About {
    /// As documents call it.
    fn definition(&self) -> String {
        let group: Vec<_> = self.group.split('.').rev().collect();
        format!("{}.{}.{}", group.join("."), self.version, self.kind)
    }

    /// Aggregated discovery, and that it is told apart from an older one by its `ETag`.
    pub(super) async fn discovery(&self, (real, ours): Both<'_>) -> Result<()> {
        let of = async |server: &Endpoint| {
            let (status, headers, document) = get(server, "/apis", AGGREGATED, "").await?;
            ensure!(status == 200, "/apis: {status} {document}");
            let groups = document["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            let group = groups.iter().find(|group| group["metadata"]["name"] == self.group);
            let versions = group.with_context(|| format!("no group {} yet", self.group))?["versions"].clone();
            let kinds = versions.to_string();
            ensure!(kinds.contains(&format!("\"kind\":\"{}\"", self.kind)), "not yet: {kinds}");
            anyhow::Ok((headers, versions))
        };
        let (their_headers, theirs) =
            eventually("the API server has discovered it", PUT_TOGETHER, || of(real)).await?;
        let (our_headers, own) = of(ours).await?;
        same("aggregated discovery", &theirs, &own)?;
        let [theirs, own] = [&their_headers, &our_headers].map(|headers| header(headers, "content-type"));
        ensure!(theirs == own, "the type of /apis: {theirs} | {own}");
        for (who, server, headers) in [("theirs", real, &their_headers), ("ours", ours, &our_headers)] {
            let tag = header(headers, "etag");
            ensure!(tag.starts_with('"') && tag.ends_with('"'), "{who}: ETag {tag}");
            // Another kind may come or go in the API server meanwhile, and be gone from the document again.
            eventually("it is known already", PUT_TOGETHER, || async {
                let (status, _, _) = get(server, "/apis", AGGREGATED, &tag).await?;
                ensure!(status == 304, "{who}: {status} to a client that has it");
                Ok(())
            })
            .await?;
            let (status, _, _) = get(server, "/apis", AGGREGATED, "\"another\"").await?;
            ensure!(status == 200, "{who}: {status} to a client that has another");
        }
        Ok(())
    }

    /// What `kubectl explain` and `kubectl apply` go by: the schema of the kind, and what can be done with it.
    pub(super) async fn openapi_v3(&self, (real, ours): Both<'_>) -> Result<()> {
        let of = async |server: &Endpoint| {
            let (_, _, root) = get(server, "/openapi/v3", "application/json", "").await?;
            let path = format!("apis/{}/{}", self.group, self.version);
            let url = root["paths"][&path]["serverRelativeURL"].as_str();
            let url = url.with_context(|| format!("no document of {path} yet"))?;
            let (status, headers, document) = get(server, url, "application/json", "").await?;
            ensure!(status == 200, "{url}: {status}");
            ensure!(!header(&headers, "etag").is_empty(), "{url} has no ETag");
            let schema = document["components"]["schemas"][&self.definition()].clone();
            ensure!(schema.is_object(), "no schema {} yet", self.definition());
            anyhow::Ok((told(&schema), operations(&document)))
        };
        let (theirs, their_paths) =
            eventually("the API server has described it", PUT_TOGETHER, || of(real)).await?;
        let (own, our_paths) = of(ours).await?;
        same("the schema of OpenAPI v3", &theirs, &own)?;
        let only = |some: &BTreeSet<String>, others: &BTreeSet<String>| {
            some.difference(others).cloned().collect::<Vec<_>>()
        };
        let (missing, more) = (only(&their_paths, &our_paths), only(&our_paths, &their_paths));
        ensure!(
            missing.is_empty() && more.is_empty(),
            "operations: theirs alone {missing:?}, ours alone {more:?}"
        );
        Ok(())
    }

    /// The older form knows less, and what it leaves out is the server's choice: members and their types are compared.
    pub(super) async fn openapi_v2(&self, (real, ours): Both<'_>) -> Result<()> {
        let of = async |server: &Endpoint| {
            let (status, _, document) = get(server, "/openapi/v2", "application/json", "").await?;
            ensure!(status == 200, "/openapi/v2: {status}");
            let definition = document["definitions"][&self.definition()].clone();
            ensure!(definition.is_object(), "no definition {} yet", self.definition());
            anyhow::Ok(outline(&told(&definition)))
        };
        let theirs = eventually("the API server has defined it", PUT_TOGETHER, || of(real)).await?;
        same("the definition of OpenAPI v2", &theirs, &of(ours).await?)
    }
}

/// What is said of a kind but for its metadata, which stands in another place of each document.
fn told(schema: &Value) -> Value {
    let mut told = Map::new();
    for name in ["type", "description", "required", "x-kubernetes-group-version-kind"] {
        told.insert(name.to_owned(), schema[name].clone());
    }
    let mut properties = schema["properties"].clone();
    if let Some(properties) = properties.as_object_mut() {
        properties.remove("metadata");
    }
    told.insert("properties".to_owned(), properties);
    Value::Object(told)
}

/// Names and types of members, all the way down.
fn outline(schema: &Value) -> Value {
    let mut shown = Map::new();
    shown.insert("type".to_owned(), schema["type"].clone());
    if let Some(properties) = schema["properties"].as_object() {
        let members = properties.iter().map(|(name, member)| (name.clone(), outline(member)));
        shown.insert("properties".to_owned(), Value::Object(members.collect()));
    }
    if schema["items"].is_object() {
        shown.insert("items".to_owned(), outline(&schema["items"]));
    }
    Value::Object(shown)
}

/// `GET /apis/…` and so on: each method of each path.
fn operations(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let of_path = |(path, item): (&String, &Value)| {
        let methods = ["get", "put", "post", "delete", "patch"];
        let there = methods.iter().filter(|method| item[**method].is_object());
        there.map(|method| format!("{method} {path}")).collect::<Vec<_>>()
    };
    paths.flat_map(of_path).collect()
}

fn same(what: &str, theirs: &Value, ours: &Value) -> Result<()> {
    let mut found = Vec::new();
    walk(theirs, ours, "", &mut found);
    ensure!(found.is_empty(), "{what}, theirs | ours:\n{}", found.join("\n"));
    Ok(())
}

fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Status, headers and body of a document, for a client that has the version `known` of it.
async fn get(server: &Endpoint, path: &str, accept: &str, known: &str) -> Result<(u16, HeaderMap, Value)> {
    let mut request = Request::get(path).header("accept", accept).header("user-agent", "test");
    if !known.is_empty() {
        request = request.header("if-none-match", known);
    }
    let mut answer = server.ask(request, "").await?;
    let body = answer.bytes().await?;
    let document = serde_json::from_slice(&body).unwrap_or_default();
    Ok((answer.status.as_u16(), answer.headers.clone(), document))
}
