//! The same objects as a custom resource, whose statuses the nodes write as Koordinator's agent does: whole, by PUT.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use e2e::{eventually, kubectl_apply};
use futures::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::link::{Kind, Link};
use super::nodes::{Stored, control_plane};
use super::watchers::{Watchers, Way};
use crate::report::percentile;

/// The group takes nothing away from the real one.
const GROUP: &str = "crd.bench.isthmus.dev";
const NAME: &str = "nodemetrics.crd.bench.isthmus.dev";

/// How many nodes write at a time: more gain nothing, as the API server and etcd are full.
const WRITERS: usize = 32;

/// What the API server and etcd made of it.
pub(super) struct Found {
    pub(super) reports_per_s: f64,
    pub(super) cpu_cores: f64,
    pub(super) etcd_bytes_per_s: f64,
    pub(super) etcd_writes_per_s: f64,
    pub(super) p99_ms: f64,
    pub(super) events_per_report: f64,
}

/// As many writes as come through, of `objects` objects, told to `watchers` watchers.
pub(super) async fn measure(
    client: &Client,
    api_server: &Way,
    template: &Value,
    objects: usize,
    watchers: usize,
    window: Duration,
) -> Result<Found> {
    let way = Way { path: format!("/apis/{GROUP}/v1beta1/nodemetrics"), ..api_server.clone() };
    let found = async {
        install(&way).await?;
        under_load(&way, template, objects, watchers, window).await
    };
    let found = found.await;
    // Whatever came of it: what comes next begins without hundreds of megabytes in etcd.
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let removed = crds.delete(NAME, &DeleteParams::default()).await;
    let found = found?;
    removed?;
    Ok(found)
}

async fn under_load(
    way: &Way,
    template: &Value,
    objects: usize,
    watchers: usize,
    window: Duration,
) -> Result<Found> {
    let body = Arc::new(template.clone());
    let made = stream::iter(0..objects)
        .map(|number| {
            let (way, body) = (way.clone(), body.clone());
            async move {
                let mut link = Link::open(&way.server, &way.name, &way.tls, Kind::Reader).await?;
                let text = object(&body, number, None);
                let request = http::Request::post("/").header("content-type", "application/json");
                let response = link.send(request, &way.path, text).await?;
                anyhow::Ok((number, stored(response, 201).await?))
            }
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<_>>()
        .await
        .context("objects of the CRD")?;
    let watching = Watchers::open(way, watchers).await?;
    let written = Arc::new(AtomicU64::new(0));
    let mut writers = JoinSet::new();
    for some in made.chunks(made.len().div_ceil(WRITERS)) {
        let (way, body, written, mut some) = (way.clone(), body.clone(), written.clone(), some.to_vec());
        writers.spawn(async move {
            let mut link = Link::open(&way.server, &way.name, &way.tls, Kind::Reader).await?;
            loop {
                for (number, version) in &mut some {
                    let sampled = (jiff::Timestamp::now(), version.clone());
                    let text = object(&body, *number, Some(sampled));
                    let path = format!("{}/{}/status", way.path, super::fleet::name(*number));
                    let request = http::Request::put("/").header("content-type", "application/json");
                    *version = stored(link.send(request, &path, text).await?, 200).await?;
                    written.fetch_add(1, Relaxed);
                }
            }
        });
    }
    watching.caught_up().await?;
    let processes = [control_plane("kube-apiserver")?, control_plane("etcd")?];
    let cpu = || processes.iter().map(|process| process.cpu_seconds()).sum::<Result<f64>>();
    // To ask for it takes time, which is no part of the window.
    let stored = Stored::now().await?;
    let before = (written.load(Relaxed), cpu()?);
    watching.listen();
    let began = Instant::now();
    tokio::select! {
        () = sleep(window) => {}
        Some(ended) = writers.join_next() => { let ended: Result<()> = ended?; ended.context("a writer")?; }
    }
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let reports = (written.load(Relaxed) - before.0) as f64;
    let used = cpu()? - before.1;
    let seconds = began.elapsed().as_secs_f64();
    let mut heard = watching.heard()?;
    let stored = Stored::now().await?.since(stored);
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let events = heard.events as f64;
    Ok(Found {
        reports_per_s: reports / seconds,
        cpu_cores: used / seconds,
        etcd_bytes_per_s: stored.bytes / seconds,
        etcd_writes_per_s: stored.writes / seconds,
        p99_ms: percentile(&mut heard.delays, 0.99),
        events_per_report: events / reports,
    })
}

/// The schema of the real one under a name of the benchmark's.
async fn install(way: &Way) -> Result<()> {
    let mut crd = serde_json::to_value(api::crds::node_metrics())?;
    crd["metadata"] = json!({ "name": NAME });
    crd["spec"]["group"] = GROUP.into();
    crd["spec"]["names"] = json!({ "kind": "NodeMetric", "plural": "nodemetrics", "singular": "nodemetric" });
    crd["spec"]["conversion"] = Value::Null;
    let versions = crd["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let mut version = versions.into_iter().next().context("no version")?;
    version["name"] = "v1beta1".into();
    version["storage"] = true.into();
    version["served"] = true.into();
    crd["spec"]["versions"] = json!([version]);
    kubectl_apply(&crd.to_string()).await?.ok()?;
    eventually("the CRD is served", Duration::from_secs(30), || async {
        let mut link = Link::open(&way.server, &way.name, &way.tls, Kind::Reader).await?;
        let status = link.send(http::Request::get("/"), &way.path, Bytes::new()).await?.status();
        ensure!(status == 200, "{status}");
        Ok(())
    })
    .await
}

/// The version under which an object was stored.
async fn stored(response: http::Response<Incoming>, expected: u16) -> Result<String> {
    let status = response.status().as_u16();
    let answer = response.into_body().collect().await?.to_bytes();
    ensure!(status == expected, "{status}: {}", String::from_utf8_lossy(&answer));
    let head: Head = serde_json::from_slice(&answer)?;
    Ok(head.metadata.resource_version)
}

#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

fn object(template: &Value, number: usize, sampled: Option<(jiff::Timestamp, String)>) -> Bytes {
    let mut object = template.clone();
    object["apiVersion"] = format!("{GROUP}/v1beta1").into();
    object["metadata"] = json!({ "name": super::fleet::name(number) });
    if let Some((sampled, version)) = sampled {
        object["metadata"]["resourceVersion"] = version.into();
        object["status"]["freshness"]["sampledTime"] = format!("{sampled:.6}").into();
    } else if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    Bytes::from(object.to_string())
}
