//! The hub and the API server, asked the same: every kind of list and watch, and what differs in the answers.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use e2e::cleanup::Cleanup;
use e2e::hub::{HubNode, token};
use e2e::{client, fresh_namespace, kubectl, kubectl_apply};
use kube_wire::frame::read::{ITEM_MAX, ListReader};
use kube_wire::object::Encoding;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use testkit::client::connection::Endpoint;
use testkit::differential::{Case, Landmarks, Subject, compare, populate};
use tokio::task::JoinSet;

const NAMESPACE: &str = "e2e-hub-differential";

/// How many lists and watches are drawn of all combinations, for each resource; the corners come to that. With `--long` so many times that.
const LISTS: usize = 120;
const WATCHES: usize = 60;
const LONG: usize = 20;

/// The least share of the corners that the hub is to answer by itself, in percent: the others are errors, which are the API server's
/// to word, or of versions that the hub does not have. Who hands everything on has none.
const HELD: u64 = 10;

/// Where the hub counts.
const METRICS: &str = "127.0.0.1:10267";

const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.isthmus.dev}
spec:
  group: test.isthmus.dev
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test]
async fn lists_and_watches_are_answered_as_by_the_api_server() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let node = HubNode::fresh("e2e-differential-1", &[]).await?;
    let admin = token(NAMESPACE, "admin", "cluster-admin").await?;
    // Left over from a run that was killed; objects cannot be made in a namespace that is on its way out.
    kubectl(&["delete", "namespace", "dt-a", "dt-a-b", "--ignore-not-found"]).await?.ok()?;
    let mut made = Cleanup::kubectl(&["delete", "crd", "widgets.test.isthmus.dev", "--ignore-not-found"]);
    made.add("kubectl", &["delete", "namespace", "dt-a", "dt-a-b", "--ignore-not-found"]);
    kubectl_apply(WIDGETS).await?.ok()?;
    let established =
        ["wait", "crd/widgets.test.isthmus.dev", "--for=condition=Established", "--timeout=30s"];
    kubectl(&established).await?.ok()?;
    let seed = usize::try_from(e2e::seed::seed()?)?;

    let network = File::open(&node.network)?;
    let (authority, server) = (node.authority.clone(), node.api_server.clone());
    // A thread of its own goes into the node's network, where the hub's port is, and stays there to its end.
    let asking = std::thread::spawn(move || -> Result<String> {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(ask(&authority, &server, &admin, seed))
    });
    let report = tokio::task::spawn_blocking(|| asking.join()).await?.map_err(|_| anyhow!("a panic"))??;
    ensure!(report.is_empty(), "the hub differs from the API server:\n{report}");
    drop(made);
    node.leave().await
}

fn endpoint(authority: &Path, address: &str, token: &str) -> Result<Endpoint> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority)? {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let address: SocketAddr = address.parse()?;
    Ok(Endpoint::tls(address, config, ServerName::IpAddress(address.ip().into())).with_token(token))
}

/// Each difference, one of a kind, or nothing.
// How many were asked is what the run is read for.
#[allow(clippy::print_stdout)]
async fn ask(authority: &Path, server: &str, token: &str, seed: usize) -> Result<String> {
    let real = endpoint(authority, server.strip_prefix("https://").context("https")?, token)?;
    let hub = endpoint(authority, "127.0.0.1:10268", token)?;
    let subjects = [
        ("/api/v1", "services", json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}})),
        ("/api/v1", "limitranges", json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}})),
        (
            "/apis/test.isthmus.dev/v1",
            "widgets",
            json!({"apiVersion": "test.isthmus.dev/v1", "kind": "Widget", "spec": {"n": 1}}),
        ),
        // Last, when the namespaces have their ServiceAccounts. Nobody schedules them, so that nobody but the test writes them.
        (
            "/api/v1",
            "pods",
            json!({"spec": {
                "schedulerName": "nobody", "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "isthmus.dev/busybox:1"}],
            }}),
        ),
    ];
    let times = if e2e::ground::long() { LONG } else { 1 };
    let mut report = Vec::new();
    for (root, resource, template) in subjects {
        let subject = Subject { root: root.to_owned(), resource: resource.to_owned(), template };
        // From here on the hub watches it, and so has the history that is asked for.
        read(&hub, &subject.path(false)).await?;
        let landmarks = populate(&real, &subject).await?;
        read(&hub, &format!("{}?resourceVersion={}", subject.path(false), landmarks.current)).await?;
        let free = ["resourceVersion", "resourceVersionMatch", "sendInitialEvents"];
        let mut corners = Case::corners(true, &free);
        corners.extend(Case::corners(false, &["resourceVersion", "resourceVersionMatch", "limit"]));
        let drawn = Case::sample(false, LISTS * times, seed).chain(Case::sample(true, WATCHES * times, seed));
        let mut drawn: Vec<Case> = drawn.collect();
        let mut kinds = BTreeMap::<String, (usize, String)>::new();
        for (what, cases) in [("corners", &mut corners), ("drawn", &mut drawn)] {
            let before = Answered::read().await?;
            // Together, or each batch waits for one of them.
            cases.sort_by_key(Case::waits);
            for some in cases.chunks(48) {
                let mut tasks = JoinSet::new();
                for case in some {
                    let case = case.clone();
                    let (real, hub, subject) = (real.clone(), hub.clone(), subject.clone());
                    let landmarks = landmarks.clone();
                    tasks.spawn(async move { difference(&case, &subject, &real, &hub, &landmarks).await });
                }
                for found in tasks.join_all().await {
                    if let Some((kind, example)) = found? {
                        kinds.entry(kind).or_insert((0, example)).0 += 1;
                    }
                }
            }
            let after = Answered::read().await?;
            for verb in ["List", "Watch"] {
                let [held, all] = after.since(&before, verb);
                println!(
                    "{resource}, {what}: of {all} requests of verb {verb} the hub answered {held} by itself"
                );
                ensure!(
                    what != "corners" || held * 100 >= all * HELD,
                    "{resource}: of {all} requests of verb {verb} the hub answered {held} by itself"
                );
            }
        }
        let differing: usize = kinds.values().map(|(count, _)| count).sum();
        println!("{resource}: {} combinations, {differing} differ", corners.len() + drawn.len());
        for (kind, (count, example)) in kinds {
            report.extend([format!("{resource}: {count} x {kind}"), example]);
        }
    }
    Ok(report.join("\n"))
}

/// What the hub has counted: its metrics as text.
struct Answered(String);

impl Answered {
    async fn read() -> Result<Self> {
        let mut answer = Endpoint::plain(METRICS.parse()?).get("/metrics", "text/plain").await?;
        Ok(Self(String::from_utf8(answer.bytes().await?.to_vec())?))
    }

    /// How many requests of a verb it answered from what it holds, and how many there were.
    fn count(&self, verb: &str) -> [u64; 2] {
        let mut counts = [0, 0];
        let (verb, held) = (format!("verb=\"{verb}\""), "outcome=\"Held\"");
        for line in self.0.lines().filter(|line| line.contains("hub_requests_total{") && line.contains(&verb))
        {
            let value = line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
            counts[0] += value * u64::from(line.contains(held));
            counts[1] += value;
        }
        counts
    }

    fn since(&self, before: &Self, verb: &str) -> [u64; 2] {
        let (now, then) = (self.count(verb), before.count(verb));
        [now[0] - then[0], now[1] - then[1]]
    }
}

async fn read(endpoint: &Endpoint, path: &str) -> Result<()> {
    let mut answer = endpoint.get(path, "application/json").await?;
    let body = answer.bytes().await?;
    ensure!(answer.status.is_success(), "{path}: {} {}", answer.status, String::from_utf8_lossy(&body));
    Ok(())
}

/// What kind of difference there is, and the case; lists in protobuf are read as well.
async fn difference(
    case: &Case,
    subject: &Subject,
    real: &Endpoint,
    hub: &Endpoint,
    landmarks: &Landmarks,
) -> Result<Option<(String, String)>> {
    if let Some(found) = compare(case, subject, (real, landmarks), (hub, landmarks)).await? {
        let said =
            |values: &[Value]| values.first().map_or(String::new(), |value| value["message"].to_string());
        let (left, right) = (&found.left, &found.right);
        let kind =
            format!("{} {} | {} {}", left.status, said(&left.values), right.status, said(&right.values));
        return Ok(Some((kind, found.to_string())));
    }
    if case.watch || !case.is_protobuf() {
        return Ok(None);
    }
    let (path, accept) = case.request(subject, landmarks);
    let (left, right) = (protobuf(real, &path, accept).await?, protobuf(hub, &path, accept).await?);
    Ok((left != right).then(|| ("protobuf".to_owned(), format!("{path}\n  {left:?}\n  {right:?}"))))
}

/// The objects of a list, in their order and to the byte; nothing if it is no list.
async fn protobuf(endpoint: &Endpoint, path: &str, accept: &str) -> Result<Option<Vec<Vec<u8>>>> {
    let mut answer = endpoint.get(path, accept).await?;
    let body = answer.bytes().await?;
    let kind = answer.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !answer.status.is_success() || !kind.starts_with("application/vnd.kubernetes.protobuf") {
        return Ok(None);
    }
    let mut reader = ListReader::new(Encoding::Protobuf, ITEM_MAX);
    let mut objects = Vec::new();
    reader.push(&body, &mut objects)?;
    reader.finish()?;
    Ok(Some(objects.iter().map(|object| object.body().to_vec()).collect()))
}
