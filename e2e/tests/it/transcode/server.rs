//! The API server, asked for the same thing in JSON and in protobuf.

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use kube_wire::resource::GroupVersionResource;
use kube_wire::transcode;
use serde_json::Value;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A client that leaves the bytes of answers as they are.
pub(super) struct Server(Client);

/// A built-in resource that discovery lists.
#[derive(Clone)]
pub(super) struct Resource {
    pub(super) gvr: GroupVersionResource,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<String>,
}

impl Resource {
    pub(super) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|can| can == verb)
    }

    /// The path of its objects, in one namespace or in all.
    pub(super) fn collection(&self, namespace: Option<&str>) -> String {
        let GroupVersionResource { group, version, resource } = &self.gvr;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{resource}"),
            None => format!("{root}/{resource}"),
        }
    }
}

impl Server {
    pub(super) async fn connect() -> Result<Self> {
        Ok(Self(e2e::client().await?))
    }

    /// The built-in resources, without subresources.
    pub(super) async fn resources(&self) -> Result<Vec<Resource>> {
        let groups: Value = serde_json::from_slice(&self.get_json("/apis").await?)?;
        let groups = groups["groups"].as_array().into_iter().flatten();
        let versions = groups.flat_map(|group| group["versions"].as_array().into_iter().flatten());
        let versions = versions
            .filter_map(|version| version["groupVersion"].as_str())
            .map(|path| format!("/apis/{path}"));
        let mut resources = Vec::new();
        for path in std::iter::once("/api/v1".to_owned()).chain(versions) {
            let Ok(list) = self.get_json(&path).await else { continue };
            let list: Value = serde_json::from_slice(&list)?;
            let (group, version) = match list["groupVersion"].as_str().unwrap_or_default() {
                version if !version.contains('/') => ("", version),
                both => both.split_once('/').unwrap_or_default(),
            };
            for entry in list["resources"].as_array().into_iter().flatten() {
                let name = entry["name"].as_str().unwrap_or_default();
                // Kinds of the groups that Kubernetes itself defines; custom resources have no protobuf.
                let built_in = !group.contains('.') || group.ends_with(".k8s.io");
                if built_in && !name.contains('/') {
                    resources.push(Resource {
                        gvr: GroupVersionResource::new(group, version, name),
                        kind: entry["kind"].as_str().unwrap_or_default().to_owned(),
                        namespaced: entry["namespaced"] == true,
                        verbs: serde_json::from_value(entry["verbs"].clone())?,
                    });
                }
            }
        }
        ensure!(resources.len() > 60, "discovery lists only {} resources", resources.len());
        ensure!(resources.iter().any(|resource| transcode::knows(&resource.gvr)), "none is known");
        Ok(resources)
    }

    pub(super) async fn get_json(&self, path: &str) -> Result<Vec<u8>> {
        self.accepted(Method::GET, path, JSON, "", Vec::new()).await
    }

    /// The message in the envelope.
    pub(super) async fn get_protobuf(&self, path: &str) -> Result<Vec<u8>> {
        raw(&self.accepted(Method::GET, path, PROTOBUF, "", Vec::new()).await?)
    }

    pub(super) async fn post_json(&self, path: &str, object: &Value) -> Result<Vec<u8>> {
        self.accepted(Method::POST, path, JSON, JSON, object.to_string().into()).await
    }

    pub(super) async fn post_protobuf(&self, path: &str, object: &Value) -> Result<Vec<u8>> {
        raw(&self.accepted(Method::POST, path, PROTOBUF, JSON, object.to_string().into()).await?)
    }

    pub(super) async fn merge(&self, path: &str, change: &Value) -> Result<Vec<u8>> {
        self.accepted(Method::PATCH, path, JSON, "application/merge-patch+json", change.to_string().into())
            .await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Vec<u8>> {
        self.accepted(Method::DELETE, path, JSON, "", Vec::new()).await
    }

    /// The refusal of a request, as JSON and as a message.
    pub(super) async fn error(&self, path: &str) -> Result<(Vec<u8>, Vec<u8>)> {
        let (json_code, json) = self.send(Method::GET, path, JSON, "", Vec::new()).await?;
        let (code, enveloped) = self.send(Method::GET, path, PROTOBUF, "", Vec::new()).await?;
        ensure!(json_code == code && code >= 400, "{path}: {code}");
        Ok((json, raw(&enveloped)?))
    }

    /// The metadata of an object, as JSON and as a message.
    pub(super) async fn metadata(&self, path: &str) -> Result<(Vec<u8>, Vec<u8>)> {
        let accept = |encoding: &str| format!("{encoding};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        let json = self.accepted(Method::GET, path, &accept(JSON), "", Vec::new()).await?;
        let enveloped = self.accepted(Method::GET, path, &accept(PROTOBUF), "", Vec::new()).await?;
        Ok((json, raw(&enveloped)?))
    }

    /// All groups, as JSON and as protobuf.
    pub(super) async fn discovery(&self, path: &str) -> Result<(Vec<u8>, Vec<u8>)> {
        let accept =
            |encoding: &str| format!("{encoding};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
        let json = self.accepted(Method::GET, path, &accept(JSON), "", Vec::new()).await?;
        Ok((json, self.accepted(Method::GET, path, &accept(PROTOBUF), "", Vec::new()).await?))
    }

    async fn accepted(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        sent: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let (code, answer) = self.send(method, path, accept, sent, body).await?;
        ensure!(code < 300, "{path}: {code}: {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        sent: &str,
        body: Vec<u8>,
    ) -> Result<(u16, Vec<u8>)> {
        let mut request = Request::builder().method(method).uri(path).header("accept", accept);
        if !sent.is_empty() {
            request = request.header("content-type", sent);
        }
        let answer = self.0.send(request.body(Body::from(body))?).await?;
        let code = answer.status().as_u16();
        Ok((code, answer.into_body().collect_bytes().await?.to_vec()))
    }
}

/// What lies in the envelope of an answer.
fn raw(enveloped: &[u8]) -> Result<Vec<u8>> {
    let unknown = enveloped.strip_prefix(b"k8s\0").context("not protobuf")?;
    let raw = fields(unknown)?.into_iter().find(|(number, _)| *number == 2);
    Ok(raw.context("an empty envelope")?.1.to_vec())
}

/// The items of a list's message.
pub(super) fn items(list: &[u8]) -> Result<Vec<&[u8]>> {
    Ok(fields(list)?.into_iter().filter(|(number, _)| *number == 2).map(|(_, item)| item).collect())
}

/// The fields of a message that has only fields with a length. Written apart from the code under test.
fn fields(mut message: &[u8]) -> Result<Vec<(u64, &[u8])>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        ensure!(tag & 7 == 2, "a field of another wire type");
        let length = usize::try_from(varint(&mut message)?)?;
        let (field, rest) = message.split_at_checked(length).context("a cut field")?;
        fields.push((tag >> 3, field));
        message = rest;
    }
    Ok(fields)
}

fn varint(message: &mut &[u8]) -> Result<u64> {
    let length = message.iter().position(|byte| *byte < 0x80).context("a cut varint")? + 1;
    let (bytes, rest) = message.split_at(length);
    *message = rest;
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
}
