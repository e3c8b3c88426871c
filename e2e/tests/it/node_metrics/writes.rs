//! Writes through the API server's aggregation: by an account that may do nothing else, and by those that may only read, or nothing. And objects
//! that go with their Nodes and come back with them.

use anyhow::{Context, Result, bail, ensure};
use e2e::cleanup::Cleanup;
use e2e::hub::token;
use e2e::{SYSTEM, eventually, kubectl, kubectl_apply};
use kube::Client;
use kube::config::AuthInfo;
use serde_json::{Value, json};

use super::callers::METRICS;
use super::ground::Ground;
use super::{SOON, WARM};

/// A Node that is fake: nobody reports for it, so nothing but this test writes its object.
const FAKE: &str = "e2e-written";

/// All that the writer may do in the cluster.
pub(super) const WRITER_NAME: &str = "e2e-node-metric-writer";
pub(super) const WRITER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-node-metric-writer}
rules:
- apiGroups: [slo.koordinator.sh]
  resources: [nodemetrics, nodemetrics/status]
  verbs: [get, list, watch, create, update, patch, delete]
";

const NODE: &str = "{apiVersion: v1, kind: Node, metadata: {name: e2e-written}}";

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

#[tokio::test]
async fn objects_are_written_by_who_may_and_go_with_their_nodes() -> Result<()> {
    let ground = Ground::new().await?;
    let mut cleanup = Cleanup::kubectl(&["delete", "clusterrole", WRITER_NAME, "--ignore-not-found"]);
    cleanup.add("kubectl", &["delete", "node", FAKE, "--ignore-not-found"]);
    kubectl_apply(WRITER).await?.ok()?;
    kubectl(&["delete", "node", FAKE, "--ignore-not-found"]).await?.ok()?;
    kubectl_apply(NODE).await?.ok()?;
    let writer = Caller::of(&token(SYSTEM, "e2e-writer", WRITER_NAME).await?).await?;
    let reader = Caller::of(&token(SYSTEM, "e2e-reader", "view").await?).await?;
    let nobody = kubectl(&["-n", SYSTEM, "create", "token", "default"]).await?.ok()?;
    let nobody = Caller::of(nobody.trim()).await?;
    let first = eventually("the Node has an object", WARM, || writer.read()).await?;

    made(&writer).await.context("create, delete")?;
    changed(&writer).await.context("update, patch")?;
    status_written(&writer).await.context("status")?;
    tried(&writer).await.context("dry run")?;
    refused(&reader, 200).await.context("a reader")?;
    refused(&nobody, 403).await.context("who may nothing")?;

    kubectl(&["delete", "node", FAKE]).await?.ok()?;
    eventually("the object went with its Node", SOON, || writer.is_answered("GET", FAKE, 404)).await?;
    writer.is_answered("POST", "", 400).await.context("an object without a Node")?;
    kubectl_apply(NODE).await?.ok()?;
    let last = eventually("the object came back with its Node", SOON, || writer.read()).await?;
    ensure!(last["metadata"]["uid"] != first["metadata"]["uid"], "{last}");
    ensure!(last["metadata"]["labels"].is_null() && last["status"]["nodeMetric"].is_null(), "{last}");
    drop(ground);
    Ok(())
}

/// An object that is there is not made anew; one that was deleted is, unless the manager was faster.
async fn made(writer: &Caller) -> Result<()> {
    writer.is_answered("POST", "", 409).await?;
    eventually("an object is made", SOON, || async {
        let before = writer.read().await?;
        writer.ok("DELETE", FAKE, JSON, &Value::Null).await?;
        let made = writer.ok("POST", "?dryRun=All", JSON, &object(&[("made", "not")])).await?;
        ensure!(made["metadata"]["labels"]["made"] == "not", "{made}");
        let made = writer.ok("POST", "", JSON, &object(&[("made", "yes")])).await?;
        ensure!(made["metadata"]["uid"] != before["metadata"]["uid"], "{made}");
        Ok(())
    })
    .await?;
    writer.has_label("made", Some("yes")).await
}

/// One label by each kind of write.
async fn changed(writer: &Caller) -> Result<()> {
    // The manager writes it as well, to put its policy in: another version then, and the update is tried again.
    let whole = eventually("an object is replaced", SOON, || async {
        let mut whole = writer.read().await?;
        whole["metadata"]["labels"]["put"] = "yes".into();
        // A status is not written with the rest.
        whole["status"]["nodeMetric"] = json!({ "nodeUsage": { "resources": { "cpu": "9" } } });
        let written = writer.ok("PUT", FAKE, JSON, &whole).await?;
        ensure!(written["status"]["nodeMetric"].is_null(), "{written}");
        Ok(whole)
    })
    .await?;
    let (code, answer) = writer.ask("PUT", FAKE, JSON, &whole).await?;
    ensure!(code == 409, "an update of an earlier version is answered {code}: {answer}");
    let add = json!([{ "op": "add", "path": "/metadata/labels/json", "value": "yes" }]);
    writer.ok("PATCH", FAKE, JSON_PATCH, &add).await?;
    let merge = json!({ "metadata": { "labels": { "merge": "yes" } } });
    writer.ok("PATCH", FAKE, MERGE_PATCH, &merge).await?;
    let apply = format!("{FAKE}?fieldManager=e2e");
    let applied = writer.ok("PATCH", &apply, APPLY_PATCH, &object(&[("apply", "yes")])).await?;
    let managers = applied["metadata"]["managedFields"].as_array().context("no managers of fields")?;
    ensure!(
        managers.iter().any(|one| one["manager"] == "e2e" && one["operation"] == "Apply"),
        "{managers:?}"
    );
    for label in ["made", "put", "json", "merge", "apply"] {
        writer.has_label(label, Some("yes")).await?;
    }
    // What is applied no more goes.
    writer.ok("PATCH", &apply, APPLY_PATCH, &object(&[])).await?;
    writer.has_label("apply", None).await?;
    let (code, answer) = writer.ask("PATCH", FAKE, STRATEGIC_PATCH, &merge).await?;
    ensure!(code == 415, "a strategic merge patch is answered {code}: {answer}");
    Ok(())
}

/// A status counts as a report of the moment.
async fn status_written(writer: &Caller) -> Result<()> {
    let used =
        |cpu: &str| json!({ "status": { "nodeMetric": { "nodeUsage": { "resources": { "cpu": cpu } } } } });
    let path = format!("{FAKE}/status");
    let is_used = |object: &Value, cpu: &str| {
        let status = &object["status"];
        ensure!(status["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == cpu, "{status}");
        ensure!(status["freshness"]["state"] == "Fresh" && status["updateTime"].is_string(), "{status}");
        ensure!(object["metadata"]["labels"]["status"].is_null(), "metadata was written: {object}");
        Ok(())
    };
    is_used(&writer.ok("PATCH", &path, MERGE_PATCH, &used("1500m")).await?, "1500m")?;
    let path_of_cpu = "/status/nodeMetric/nodeUsage/resources/cpu";
    let replace = json!([{ "op": "replace", "path": path_of_cpu, "value": "2" }]);
    is_used(&writer.ok("PATCH", &path, JSON_PATCH, &replace).await?, "2")?;
    // The server writes it as well when the node falls silent: another version then, and the update is tried again.
    eventually("a status is replaced", SOON, || async {
        let mut whole = writer.read().await?;
        whole["status"]["nodeMetric"] = used("2500m")["status"]["nodeMetric"].clone();
        whole["metadata"]["labels"]["status"] = "written".into();
        is_used(&writer.ok("PUT", &path, JSON, &whole).await?, "2500m")
    })
    .await?;
    let mut apply = object(&[]);
    apply["status"] = used("3")["status"].clone();
    let path = format!("{path}?fieldManager=e2e-status&force=true");
    is_used(&writer.ok("PATCH", &path, APPLY_PATCH, &apply).await?, "3")?;
    let read = writer.read().await?;
    ensure!(read["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "3", "{}", read["status"]);
    Ok(())
}

/// A dry run is answered as the write would be, and changes nothing.
async fn tried(writer: &Caller) -> Result<()> {
    let path = format!("{FAKE}?dryRun=All");
    let merge = json!({ "metadata": { "labels": { "tried": "yes" } } });
    let tried = writer.ok("PATCH", &path, MERGE_PATCH, &merge).await?;
    ensure!(tried["metadata"]["labels"]["tried"] == "yes", "{tried}");
    // The server writes it as well when the node falls silent: another version then, and the update is tried again.
    eventually("an update is tried", SOON, || async {
        let mut whole = writer.read().await?;
        whole["metadata"]["labels"]["tried"] = "yes".into();
        writer.ok("PUT", &path, JSON, &whole).await
    })
    .await?;
    let used = json!({ "status": { "nodeMetric": { "nodeUsage": { "resources": { "cpu": "7" } } } } });
    writer.ok("PATCH", &format!("{FAKE}/status?dryRun=All"), MERGE_PATCH, &used).await?;
    let uid = writer.read().await?["metadata"]["uid"].clone();
    writer.ok("DELETE", &path, JSON, &Value::Null).await?;
    let after = writer.read().await?;
    ensure!(after["metadata"]["uid"] == uid, "it was deleted: {after}");
    ensure!(after["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "3", "{}", after["status"]);
    writer.has_label("tried", None).await
}

/// Who may not write is refused whatever is tried; a read is answered `reads`.
async fn refused(caller: &Caller, reads: u16) -> Result<()> {
    caller.is_answered("GET", FAKE, reads).await?;
    let merge = json!({ "metadata": { "labels": { "refused": "not" } } });
    let add = json!([{ "op": "add", "path": "/metadata/labels/refused", "value": "not" }]);
    let whole = object(&[("refused", "not")]);
    for (method, path, kind, body) in [
        ("POST", "", JSON, &whole),
        ("POST", "?dryRun=All", JSON, &whole),
        ("PUT", "{}", JSON, &whole),
        ("PATCH", "{}", MERGE_PATCH, &merge),
        ("PATCH", "{}", JSON_PATCH, &add),
        ("PATCH", "{}?fieldManager=e2e", APPLY_PATCH, &whole),
        ("PATCH", "{}?dryRun=All", MERGE_PATCH, &merge),
        ("PUT", "{}/status", JSON, &whole),
        ("PATCH", "{}/status", MERGE_PATCH, &merge),
        ("DELETE", "{}", JSON, &Value::Null),
    ] {
        let (code, answer) = caller.ask(method, &path.replace("{}", FAKE), kind, body).await?;
        ensure!(code == 403, "{method} {path} as {kind} is answered {code}: {answer}");
    }
    Ok(())
}

fn object(labels: &[(&str, &str)]) -> Value {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    let metadata = json!({ "name": FAKE, "labels": labels });
    json!({ "apiVersion": "slo.koordinator.sh/v1beta1", "kind": "NodeMetric", "metadata": metadata })
}

/// Somebody who has a token and nothing else, at the API server.
struct Caller(Client);

impl Caller {
    async fn of(token: &str) -> Result<Self> {
        let mut config = kube::Config::infer().await?;
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        Ok(Self(Client::try_from(config)?))
    }

    /// The status, 200 for all that is well, and the answer. `path` is what follows the collection's.
    async fn ask(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<(u16, Value)> {
        let slash = if path.is_empty() || path.starts_with('?') { "" } else { "/" };
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let request = http::Request::builder().method(method).uri(format!("{METRICS}{slash}{path}"));
        let request = request.header(http::header::CONTENT_TYPE, kind).body(body)?;
        match self.0.request::<Value>(request).await {
            Ok(answer) => Ok((200, answer)),
            Err(kube::Error::Api(status)) => Ok((status.code, json!(status.message))),
            Err(error) => bail!("{method} {path}: {error}"),
        }
    }

    /// What is answered to a request that must be well.
    async fn ok(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value> {
        let (code, answer) = self.ask(method, path, kind, body).await?;
        ensure!(code == 200, "{method} {path} as {kind} is answered {code}: {answer}");
        Ok(answer)
    }

    async fn is_answered(&self, method: &str, path: &str, expected: u16) -> Result<()> {
        let body = if method == "POST" { object(&[]) } else { Value::Null };
        let (code, answer) = self.ask(method, path, JSON, &body).await?;
        ensure!(code == expected, "{method} {path} is answered {code}, not {expected}: {answer}");
        Ok(())
    }

    async fn read(&self) -> Result<Value> {
        self.ok("GET", FAKE, JSON, &Value::Null).await
    }

    async fn has_label(&self, label: &str, expected: Option<&str>) -> Result<()> {
        let object = self.read().await?;
        let found = object["metadata"]["labels"][label].as_str();
        ensure!(found == expected, "label {label} is {found:?}, not {expected:?}: {object}");
        Ok(())
    }
}
