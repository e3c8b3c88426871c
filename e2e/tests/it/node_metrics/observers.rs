//! Those who look on while leaders come and go: a watcher of kube-rs, an informer of client-go, somebody who lists again and again, one
//! who keeps an eye on the APIService, and one on discovery. What must never be is written down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::hub::token;
use e2e::{SYSTEM, eventually, kubectl, run};
use futures::StreamExt;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::ground::Ground;
use super::{NODE, WARM, discovery};

/// How often is listed, and how long an answer may take: less than a frozen leader.
const LIST_EVERY: Duration = Duration::from_millis(100);
pub(super) const LIST_WITHIN: Duration = Duration::from_secs(10);

/// How often is looked at discovery: its document is that of all APIs.
const DISCOVER_EVERY: Duration = Duration::from_millis(250);

/// What one client knows.
#[derive(Debug, Default)]
struct Known {
    versions: BTreeMap<String, u64>,
    /// The highest version in a stream of events.
    last: u64,
    synced: bool,
    events: usize,
    lists: usize,
    /// When it was told something last, and the longest time between two such moments since that was last asked for.
    heard: Option<Instant>,
    silent: Duration,
}

/// What must not be, and what was.
#[derive(Debug, Default)]
struct Record {
    wrong: Vec<String>,
    watcher: Known,
    informer: Known,
    /// When a list was answered last, and the longest time between two of them since that was last asked for.
    answered: Option<Instant>,
    longest: Duration,
    /// Lists that were answered, those that were refused for the time being, those without an answer.
    listed: [usize; 3],
    /// What was said of the last two, each once.
    failed: Vec<String>,
    unavailable: Vec<String>,
    discovered: Discovered,
}

/// What aggregated discovery said of the API.
#[derive(Debug, Default)]
struct Discovered {
    /// Whether it was ever told as current.
    once: bool,
    /// Since when it is not, and what is said instead.
    amiss: Option<(Instant, String)>,
    /// For how long it was not at most, since that was last asked for.
    longest: Duration,
}

impl Discovered {
    fn see(&mut self, freshness: String) {
        if freshness == discovery::CURRENT {
            self.once = true;
            if let Some((since, _)) = self.amiss.take() {
                self.longest = self.longest.max(since.elapsed());
            }
        } else if self.once {
            self.amiss.get_or_insert_with(|| (Instant::now(), freshness));
        }
    }
}

impl Record {
    fn failed(&mut self, how: usize, what: String) {
        self.listed[how] += 1;
        if self.failed.len() < 20 && !self.failed.contains(&what) {
            self.failed.push(what);
        }
    }

    fn wrong(&mut self, what: String) {
        // The first tell enough.
        if self.wrong.len() < 20 {
            self.wrong.push(what);
        }
    }
}

type Shared = Arc<Mutex<Record>>;

/// They look on until this is dropped.
pub(super) struct Observers {
    record: Shared,
    _tasks: JoinSet<()>,
    _informer: Child,
}

impl Observers {
    /// Starts them; all know everything then.
    pub(super) async fn start(ground: &Ground) -> Result<Self> {
        let record = Shared::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(watch(ground.metrics(), ground.nodes.clone(), Arc::clone(&record)));
        tasks.spawn(list(ground.metrics(), ground.nodes.clone(), Arc::clone(&record)));
        tasks.spawn(availability(ground.client.clone(), Arc::clone(&record)));
        tasks.spawn(discover(ground.client.clone(), Arc::clone(&record)));
        let mut informer = inform(discovery::VERSION).await?;
        let out = informer.stdout.take().context("stdout")?;
        tasks.spawn(read(out, Arc::clone(&record)));
        eventually("all are synced", WARM, || async {
            let record = record.lock();
            let all = record.watcher.synced && record.informer.synced && record.discovered.once;
            ensure!(all, "{record:?}");
            Ok(())
        })
        .await?;
        Ok(Self { record, _tasks: tasks, _informer: informer })
    }

    /// Whether nothing happened that must not.
    pub(super) fn check(&self, when: &str) -> Result<()> {
        let record = self.record.lock();
        ensure!(record.wrong.is_empty(), "{when}:\n{}", record.wrong.join("\n"));
        Ok(())
    }

    /// What the APIService said whenever it was not available, and forgets it.
    pub(super) fn unavailable(&self) -> Vec<String> {
        std::mem::take(&mut self.record.lock().unavailable)
    }

    /// The longest time for which discovery did not tell of the API as current, since this was last asked: what goes by discovery, as the
    /// deletion of namespaces does, waits meanwhile.
    pub(super) fn longest_undiscovered(&self) -> Duration {
        let mut record = self.record.lock();
        let now = record.discovered.amiss.as_ref().map(|(since, _)| since.elapsed()).unwrap_or_default();
        std::mem::take(&mut record.discovered.longest).max(now)
    }

    /// Waits until it does again, and checks that it took no longer than `most`.
    pub(super) async fn was_discovered(&self, most: Duration) -> Result<()> {
        self.discovered().await?;
        let stale = self.longest_undiscovered();
        ensure!(stale <= most, "discovery was stale for {stale:?}, more than {most:?}");
        Ok(())
    }

    /// Waits until discovery tells of the API as current.
    pub(super) async fn discovered(&self) -> Result<()> {
        eventually("discovery tells of the API as current", WARM, || async {
            let record = self.record.lock();
            ensure!(record.discovered.amiss.is_none(), "{:?}", record.discovered);
            Ok(())
        })
        .await
    }

    /// The longest time for which no list was answered, since this was last asked.
    pub(super) fn longest_without_a_list(&self) -> Duration {
        let mut record = self.record.lock();
        let since = record.answered.map(|at| at.elapsed()).unwrap_or_default();
        std::mem::take(&mut record.longest).max(since)
    }

    /// The longest time for which the watcher or the informer was told nothing, since this was last asked.
    pub(super) fn longest_silence(&self) -> Duration {
        let Record { watcher, informer, .. } = &mut *self.record.lock();
        let longest = |known: &mut Known| {
            let since = known.heard.map(|at| at.elapsed()).unwrap_or_default();
            std::mem::take(&mut known.silent).max(since)
        };
        longest(watcher).max(longest(informer))
    }

    /// What was said of lists that were refused or not answered, and forgets it.
    pub(super) fn failed(&self) -> Vec<String> {
        std::mem::take(&mut self.record.lock().failed)
    }

    /// Waits until both have heard of a report that came just now.
    pub(super) async fn up_to_date(&self, ground: &Ground) -> Result<()> {
        let now = ground.metrics().get(NODE).await?;
        let version: u64 = now.resource_version().unwrap_or_default().parse()?;
        eventually("both hear of the last report", WARM, || async {
            let record = self.record.lock();
            for (who, known) in [("the watcher", &record.watcher), ("the informer", &record.informer)] {
                let heard = known.versions.get(NODE).copied().unwrap_or_default();
                ensure!(heard >= version, "{who} heard of {heard}, not {version}");
            }
            Ok(())
        })
        .await
    }

    /// For people.
    pub(super) fn summary(&self) -> String {
        let Record { watcher, informer, listed: [answered, refused, silent], .. } = &*self.record.lock();
        format!(
            "watcher: {} events, {} lists; informer: {} events; lists: {answered} answered, {refused} refused, {silent} without an answer",
            watcher.events, watcher.lists, informer.events
        )
    }
}

fn version_of(object: &DynamicObject) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

impl Known {
    /// An object as a client was told it; says what is wrong with that.
    fn put(&mut self, who: &str, name: &str, version: u64) -> Option<String> {
        self.events += 1;
        let since = self.heard.replace(Instant::now()).map(|at| at.elapsed());
        self.silent = self.silent.max(since.unwrap_or_default());
        let before = self.versions.insert(name.to_owned(), version).unwrap_or_default();
        (version < before).then(|| format!("{who}: {name} went back from {before} to {version}"))
    }
}

/// A watcher of kube-rs.
async fn watch(api: Api<DynamicObject>, nodes: BTreeSet<String>, record: Shared) {
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let mut record = record.lock();
        let found = match event {
            Ok(Event::Init) => {
                listed.clear();
                record.watcher.lists += 1;
                None
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(object.name_any());
                record.watcher.put("the watcher", &object.name_any(), version_of(&object))
            }
            Ok(Event::InitDone) => {
                record.watcher.synced = true;
                (listed != nodes).then(|| format!("the watcher was given a list of {listed:?}"))
            }
            Ok(Event::Apply(object)) => {
                let (version, last) = (version_of(&object), record.watcher.last);
                record.watcher.last = version.max(last);
                let back = (version < last).then(|| format!("the watcher: {version} after {last}"));
                record.watcher.put("the watcher", &object.name_any(), version).or(back)
            }
            Ok(Event::Delete(object)) => Some(format!("the watcher: {} is deleted", object.name_any())),
            // It tries again, and keeps what it has.
            Err(_) => None,
        };
        if let Some(found) = found {
            record.wrong(found);
        }
    }
}

/// Somebody who lists again and again.
async fn list(api: Api<DynamicObject>, nodes: BTreeSet<String>, record: Shared) {
    let mut last = 0;
    record.lock().answered = Some(Instant::now());
    loop {
        match timeout(LIST_WITHIN, api.list(&ListParams::default())).await {
            Ok(Ok(answer)) => {
                let names: BTreeSet<_> = answer.iter().map(ResourceExt::name_any).collect();
                let version: u64 = answer
                    .metadata
                    .resource_version
                    .and_then(|version| version.parse().ok())
                    .unwrap_or_default();
                let mut record = record.lock();
                record.listed[0] += 1;
                let since = record.answered.replace(Instant::now()).map(|at| at.elapsed());
                record.longest = record.longest.max(since.unwrap_or_default());
                if names != nodes {
                    record.wrong(format!("a list of {names:?}"));
                }
                if version < last {
                    record.wrong(format!("a list at {version} after one at {last}"));
                }
                last = version.max(last);
            }
            Ok(Err(error)) => record.lock().failed(1, error.to_string()),
            Err(_) => record.lock().failed(2, format!("no answer within {LIST_WITHIN:?}")),
        }
        tokio::time::sleep(LIST_EVERY).await;
    }
}

/// Keeps an eye on the APIService.
async fn availability(client: Client, record: Shared) {
    let name = "v1beta1.slo.koordinator.sh";
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let services = watcher(Api::<APIService>::all(client), config).default_backoff().applied_objects();
    let mut services = services.boxed();
    while let Some(service) = services.next().await {
        let Ok(service) = service else { continue };
        let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
        for condition in conditions.into_iter().filter(|one| one.type_ == "Available" && one.status != "True")
        {
            record.lock().unavailable.push(condition.message.unwrap_or_default());
        }
    }
}

/// Looks again and again what aggregated discovery says. Where the API server itself does not answer, nothing is known.
async fn discover(client: Client, record: Shared) {
    loop {
        if let Ok(Ok(freshness)) = timeout(LIST_WITHIN, discovery::freshness(&client)).await {
            record.lock().discovered.see(freshness);
        }
        tokio::time::sleep(DISCOVER_EVERY).await;
    }
}

/// The informer of client-go, at the API server.
pub(super) async fn inform(version: &str) -> Result<Child> {
    let built = run("hack/build-tools", &["informer", "--print-path"], "").await?.ok()?;
    let binary = built.split_whitespace().last().context("the path of the informer")?;
    let view = |path| ["config", "view", "--minify", "--raw", "-o", path];
    let server = kubectl(&view("jsonpath={.clusters[0].cluster.server}")).await?.ok()?;
    let authority =
        kubectl(&view("jsonpath={.clusters[0].cluster.certificate-authority-data}")).await?.ok()?;
    let file = std::env::temp_dir().join(format!("e2e-node-metrics-{}.crt", std::process::id()));
    std::fs::write(&file, decoded(&authority)?)?;
    let token = token(SYSTEM, "e2e-informer", "view").await?;
    let mut command = Command::new(binary);
    command.args(["--server", &server, "--token", &token, "--certificate-authority"]).arg(&file);
    command.args(["--group", "slo.koordinator.sh", "--version", version, "--resource", "nodemetrics"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).kill_on_drop(true);
    command.spawn().context("the informer")
}

fn decoded(text: &str) -> Result<Vec<u8>> {
    use base64::Engine as _;
    Ok(base64::engine::general_purpose::STANDARD.decode(text.trim())?)
}

/// Reads what the informer says.
async fn read(out: tokio::process::ChildStdout, record: Shared) {
    let mut lines = BufReader::new(out).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let mut record = record.lock();
        let found = match line["event"].as_str() {
            Some("add" | "update") => {
                let version = text("version").parse().unwrap_or_default();
                record.informer.put("the informer", &text("name"), version)
            }
            Some("synced") => {
                record.informer.synced = true;
                None
            }
            _ => Some(format!("the informer: {line}")),
        };
        if let Some(found) = found {
            record.wrong(found);
        }
    }
    record.lock().wrong("the informer has ended".to_owned());
}
