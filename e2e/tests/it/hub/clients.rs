//! Clients as they are written: an operator and a watcher of kube-rs, an informer of client-go, on a custom resource, through the hub;
//! over a cut of two minutes, the death of the hub, and a reboot of the node without a link, after which they begin anew; and what the hub
//! shows when the definition of the resource changes.
//!
//! What they are told is compared with what a watcher straight at the API server is told: the same versions of each object, in the same
//! order, none twice, and no list but the first.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::hub::{HubNode, SECURE, token};
use e2e::{client, eventually, fresh_namespace, kubectl, kubectl_apply, run};
use futures::StreamExt;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{Controller, WatchStreamExt};
use kube::{Api, Client, Config};
use parking_lot::Mutex;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

const NAMESPACE: &str = "e2e-hub-clients";
const NODE: &str = "e2e-clients-1";

/// How long the link is cut.
pub(super) const CUT: Duration = Duration::from_mins(2);

/// How long all may take to be told.
const CONVERGED: Duration = Duration::from_mins(1);

const GADGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.test.isthmus.dev}
spec:
  group: test.isthmus.dev
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// The schema, and one by which each object has a color.
const ANYTHING: &str = "{type: object, x-kubernetes-preserve-unknown-fields: true}";
const COLORED: &str = "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {spec: {
      type: object, x-kubernetes-preserve-unknown-fields: true, properties: {color: {type: string, default: red}}}}}";

/// How soon after the start of a node its clients are to work again.
const WORKS: Duration = Duration::from_secs(30);

/// What a client was told: by object, the versions in their order; a deletion is a `-`.
#[derive(Debug, Default, Clone)]
struct Told {
    lists: usize,
    synced: bool,
    versions: BTreeMap<String, Vec<String>>,
    /// What stands in its store.
    store: BTreeMap<String, String>,
    /// Deletions that it learned of from a list.
    missed: usize,
}

impl Told {
    fn put(&mut self, name: String, version: String) {
        self.versions.entry(name.clone()).or_default().push(version.clone());
        self.store.insert(name, version);
    }

    fn gone(&mut self, name: &str) {
        self.versions.entry(name.to_owned()).or_default().push("-".to_owned());
        self.store.remove(name);
    }
}

type Record = Arc<Mutex<Told>>;

fn gadgets() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("test.isthmus.dev", "v1", "Gadget"), "gadgets")
}

fn api(client: Client) -> Api<DynamicObject> {
    Api::namespaced_with(client, NAMESPACE, &gadgets())
}

#[tokio::test]
async fn operators_and_informers_miss_nothing_and_hear_nothing_twice() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let definition = Cleanup::kubectl(&["delete", "crd", "gadgets.test.isthmus.dev", "--ignore-not-found"]);
    kubectl_apply(GADGETS).await?.ok()?;
    kubectl(&["wait", "crd/gadgets.test.isthmus.dev", "--for=condition=Established", "--timeout=30s"])
        .await?
        .ok()?;
    let node = HubNode::fresh(NODE, &[]).await?;
    let admin = token(NAMESPACE, "admin", "cluster-admin").await?;
    let written = api(client.clone());
    for number in 0..3 {
        written.create(&PostParams::default(), &gadget(number)).await?;
    }

    let reference = Record::default();
    let watching = tokio::spawn(record(written.clone(), reference.clone()));
    let (seen, stop) = (Record::default(), tokio_util::sync::CancellationToken::new());
    let operator = operate(&node, &admin, seen.clone(), stop.clone())?;
    let (informed, mut go_client) = (Record::default(), inform(&node, &admin).await?);
    let reading = tokio::spawn(read(go_client.stdout.take().context("stdout")?, informed.clone()));
    let all = [("the watcher", &seen), ("the informer", &informed)];
    eventually("all are synced", Duration::from_secs(30), || async {
        let synced = all.iter().all(|(_, told)| told.lock().synced) && reference.lock().synced;
        ensure!(synced, "{all:?}");
        Ok(())
    })
    .await?;

    // Who came when, and what the operator had written by then, is of no interest.
    converged(&written, &reference, &all, "at the start").await?;
    for told in [&reference, &seen, &informed] {
        told.lock().versions.clear();
    }

    let mut round = 0;
    change(&written, &mut round, 20).await?;
    converged(&written, &reference, &all, "with a link").await?;

    node.black_hole(true).await?;
    let cut = Instant::now();
    while cut.elapsed() < CUT {
        change(&written, &mut round, 3).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    node.black_hole(false).await?;
    let healed = Instant::now();
    converged(&written, &reference, &all, "after the cut").await?;
    println!(
        "{round} changes; all was told {:.1} s after a cut of two minutes",
        healed.elapsed().as_secs_f64()
    );

    e2e::hack_cluster(&["signal", "KILL", "edge-hub", NODE]).await?.ok()?;
    change(&written, &mut round, 5).await?;
    node.daemon("start", "edge-hub").await?;
    change(&written, &mut round, 5).await?;
    converged(&written, &reference, &all, "after the hub was killed").await?;

    // The node loses its power without a link. What ran there is gone, and an informer and an operator begin anew; those of before are
    // processes of this machine, which outlive it.
    node.black_hole(true).await?;
    let before = informed.lock().store.clone();
    let rebooted = node.reboot().await?;
    change(&written, &mut round, 5).await?;
    let (late, mut other) = (Record::default(), inform(&node, &admin).await?);
    let reading_late = tokio::spawn(read(other.stdout.take().context("stdout")?, late.clone()));
    let late_seen = Record::default();
    let late_operator = operate(&node, &admin, late_seen.clone(), stop.clone())?;
    let all_late = [("the late informer", &late), ("the late operator", &late_seen)];
    let left = WORKS.saturating_sub(rebooted.elapsed());
    eventually("clients that begin after a reboot without a link are synced", left, || async {
        ensure!(all_late.iter().all(|(_, told)| told.lock().synced), "{all_late:?}");
        Ok(())
    })
    .await?;
    println!("an informer and an operator work {:.1} s after the reboot", rebooted.elapsed().as_secs_f64());
    for (who, told) in all_late {
        ensure!(told.lock().store == before, "{who}: {told:?}\nbut {before:?}");
    }
    node.black_hole(false).await?;
    converged(&written, &reference, &all, "after a reboot without a link").await?;
    eventually("the late clients converge", Duration::from_secs(30), || async {
        let truth = reference.lock().store.clone();
        ensure!(all_late.iter().all(|(_, told)| told.lock().store == truth), "{all_late:?}");
        Ok(())
    })
    .await?;
    missed_nothing(&reference, &all)?;
    println!("{round} changes, {} events each", told_of(&reference).values().map(Vec::len).sum::<usize>());
    redefined(&node, &admin).await?;
    stop.cancel();
    watching.abort();
    reading.abort();
    reading_late.abort();
    for operator in [operator, late_operator] {
        tokio::task::spawn_blocking(|| operator.join()).await?.map_err(|_| anyhow::anyhow!("a panic"))??;
    }
    drop(definition);
    node.leave().await
}

/// Gives the resource a default, by which objects have other bytes at the same versions, and waits until the hub shows them so.
async fn redefined(node: &HubNode, token: &str) -> Result<()> {
    let path = format!("/apis/test.isthmus.dev/v1/namespaces/{NAMESPACE}/gadgets?resourceVersion=0");
    let items = |list: &str| serde_json::from_str::<Value>(list).map(|list| list["items"].clone());
    let versions = |items: &Value| -> Vec<Value> {
        let items = items.as_array().into_iter().flatten();
        items.map(|item| item["metadata"]["resourceVersion"].clone()).collect()
    };
    let before = items(&node.get(SECURE, Some(token), &path).await?.body)?;
    kubectl_apply(&GADGETS.replace(ANYTHING, COLORED)).await?.ok()?;
    let now = eventually("the API server gives the default", Duration::from_secs(30), || async {
        let now = items(&kubectl(&["get", "--raw", &path]).await?.ok()?)?;
        ensure!(now[0]["spec"]["color"] == "red", "{now}");
        Ok(now)
    })
    .await?;
    ensure!(versions(&before) == versions(&now), "{before}\nand then {now}");
    eventually("the hub shows objects by the new definition", Duration::from_secs(30), || async {
        let shown = items(&node.get(SECURE, Some(token), &path).await?.body)?;
        ensure!(shown == now, "{shown}\nand not {now}");
        Ok(())
    })
    .await
}

/// Who was there from the beginning was told the same as by the API server, and listed once.
fn missed_nothing(reference: &Record, all: &[(&str, &Record)]) -> Result<()> {
    for (who, record) in all {
        let told = record.lock().clone();
        ensure!(
            told.lists == 1 && told.missed == 0,
            "{who} listed {} times, missed {}",
            told.lists,
            told.missed
        );
        ensure!(told.versions == told_of(reference), "{who}: {told:?}\nthe API server: {reference:?}");
    }
    Ok(())
}

fn told_of(record: &Record) -> BTreeMap<String, Vec<String>> {
    record.lock().versions.clone()
}

fn gadget(number: usize) -> DynamicObject {
    DynamicObject::new(&format!("g-{number}"), &gadgets()).data(json!({ "spec": { "n": 0 } }))
}

/// Changes objects in turn; each seventh change deletes and makes one anew.
async fn change(api: &Api<DynamicObject>, round: &mut usize, times: usize) -> Result<()> {
    for _ in 0..times {
        *round += 1;
        let name = format!("g-{}", *round % 3);
        if (*round).is_multiple_of(7) {
            api.delete(&name, &DeleteParams::default()).await?;
            api.create(&PostParams::default(), &gadget(*round % 3)).await?;
        } else {
            let patch = json!({ "spec": { "n": *round } });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
    }
    Ok(())
}

/// Waits until the operator has seen to everything and everybody's store is the API server's.
async fn converged(
    api: &Api<DynamicObject>,
    reference: &Record,
    all: &[(&str, &Record)],
    when: &str,
) -> Result<()> {
    eventually(&format!("all converge {when}"), CONVERGED, || async {
        let mut truth = BTreeMap::new();
        for object in api.list(&kube::api::ListParams::default()).await? {
            let (name, version) = name_and_version(&object);
            ensure!(
                object.data["status"]["seen"] == object.data["spec"]["n"],
                "the operator has not seen {name}"
            );
            truth.insert(name, version);
        }
        ensure!(
            reference.lock().store == truth,
            "the API server's own watcher: {:?}",
            reference.lock().store
        );
        for (who, told) in all {
            let store = told.lock().store.clone();
            ensure!(store == truth, "{who}: {store:?} and not {truth:?}");
        }
        Ok(())
    })
    .await
}

fn name_and_version(object: &DynamicObject) -> (String, String) {
    (
        object.metadata.name.clone().unwrap_or_default(),
        object.metadata.resource_version.clone().unwrap_or_default(),
    )
}

/// Writes down what a watcher of kube-rs tells.
async fn record(api: Api<DynamicObject>, told: Record) {
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let mut told = told.lock();
        match event {
            Ok(Event::Init) => told.lists += 1,
            Ok(Event::InitDone) => told.synced = true,
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                let (name, version) = name_and_version(&object);
                told.put(name, version);
            }
            Ok(Event::Delete(object)) => told.gone(&name_and_version(&object).0),
            // It tries again; what it was told stands.
            Err(_) => {}
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the status cannot be written: {0}")]
struct NotWritten(#[from] kube::Error);

/// Runs a watcher and an operator on the node, through the hub, until `stop`.
fn operate(
    node: &HubNode,
    token: &str,
    told: Record,
    stop: tokio_util::sync::CancellationToken,
) -> Result<std::thread::JoinHandle<Result<()>>> {
    let network = File::open(&node.network)?;
    let mut config = Config::new(SECURE.parse()?);
    let roots = CertificateDer::pem_file_iter(&node.authority)?;
    config.root_cert = Some(roots.map(|root| root.map(|root| root.to_vec())).collect::<Result<_, _>>()?);
    config.auth_info.token = Some(token.to_owned().into());
    // Writes fail at once without a link, and the operator tries again in its own time. The client would do so, each pause twice the last:
    // two minutes without a link make the next one eighty seconds.
    config.default_retry = false;
    // A thread of its own goes into the node's network, where the hub's port is, and stays there to its end.
    Ok(std::thread::spawn(move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let gadgets = api(Client::try_from(config)?);
            let reconcile = |object: Arc<DynamicObject>, gadgets: Arc<Api<DynamicObject>>| async move {
                let (name, _) = name_and_version(&object);
                if object.data["status"]["seen"] != object.data["spec"]["n"] {
                    let patch = json!({ "status": { "seen": object.data["spec"]["n"] } });
                    gadgets.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
                }
                Ok::<_, NotWritten>(Action::await_change())
            };
            let again = |_, _: &NotWritten, _| Action::requeue(Duration::from_secs(1));
            let controller =
                Controller::new_with(gadgets.clone(), watcher::Config::default(), self::gadgets());
            let operator = controller.run(reconcile, again, Arc::new(gadgets.clone())).for_each(|_| async {});
            tokio::select! {
                () = operator => {}
                () = record(gadgets, told) => {}
                () = stop.cancelled() => {}
            }
            Ok(())
        })
    }))
}

/// Starts the informer of client-go on the node.
async fn inform(node: &HubNode, token: &str) -> Result<Child> {
    let built = run("hack/build-tools", &["informer", "--print-path"], "").await?.ok()?;
    let binary = built.split_whitespace().last().context("the path of the informer")?;
    let authority = node.authority.to_str().context("a path")?;
    let words = [binary, "--server", SECURE, "--certificate-authority", authority, "--token", token];
    node.start(
        &[&words[..], &["--group", "test.isthmus.dev", "--resource", "gadgets", "--namespace", NAMESPACE]]
            .concat(),
    )
}

async fn read(out: tokio::process::ChildStdout, told: Record) -> Result<()> {
    let mut lines = BufReader::new(out).lines();
    told.lock().lists = 1;
    while let Some(line) = lines.next_line().await? {
        let line: Value = serde_json::from_str(&line)?;
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let mut told = told.lock();
        match line["event"].as_str() {
            Some("add" | "update") => told.put(text("name"), text("version")),
            Some("delete") => told.gone(&text("name")),
            Some("synced") => told.synced = true,
            _ => told.missed += 1,
        }
    }
    Ok(())
}
