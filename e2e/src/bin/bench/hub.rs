//! The hub with many Services and `EndpointSlices`: its memory, what it costs the link and the disk, what it answers after a
//! restart without a link, and what watchers cost it.

mod accounts;
mod client;
mod direct;
mod instrument;
mod kit;
mod load;
mod node;
mod relay;
mod tap;
mod watchers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::node::{Node, PROTOBUF, Running};
use self::relay::Relay;
use self::tap::Tap;
use self::watchers::Watchers;
use crate::process::Process;
use crate::report::{Figure, Report, percentile};

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const JSON: &str = "application/json";

/// Whose figures stand beside ours: measured before on a machine of the same kind, with as many objects.
const PEER: &str = "OpenYurt's yurthub, earlier run";

/// Of the list of 16 MB and of the link: the same, asked of the API server in this run.
const DIRECT: &str = "the API server, same run";

/// How many clients change objects when as many events are wanted as the API server gives.
const WRITERS: usize = 16;

/// How many clients have the hub as their API server when the link is measured.
const CLIENTS: usize = 6;

/// How many watches there are when events are measured.
const WATCHERS: usize = 100;

/// How many open and idle watches show what one more takes, after a few that bring what all of them share.
const IDLE_WATCHERS: usize = 800;

/// How many Services change at the rate at which the disk is measured, and that rate, each second.
const SLOW_CHANGES: usize = 600;
const SLOW_RATE: u32 = 20;

/// How long the hub is left alone before its memory is read.
const SETTLE: Duration = Duration::from_secs(10);

/// How long after its start the hub asks for nothing more by itself: last come the documents of `OpenAPI`, some sixty, two seconds apart, after up to
/// two minutes.
const AT_REST: Duration = Duration::from_mins(6);

/// How long the link is cut under the watchers.
const CUT: Duration = Duration::from_secs(15);

/// How much is measured.
#[derive(clap::Args)]
pub(crate) struct Size {
    /// Number of Services, and of `EndpointSlices` with endpoints; in the cluster each Service has an empty one besides.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Number of changes in each part that needs some.
    #[arg(long, default_value_t = 2000)]
    changes: usize,
    /// How long the idle hub is watched.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    idle: u64,
    /// What is measured: the cluster in use, a server that gives events faster than a real one, or how the hub grows.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["cluster", "fast", "growth"])]
    parts: Vec<Part>,
    /// How many objects there are in each step of the growth.
    #[arg(long, value_delimiter = ',', default_values = ["1000", "10000", "30000", "100000"])]
    growth: Vec<usize>,
    /// The hub's binary, as it is released.
    #[arg(long, value_name = "FILE", env = "ISTHMUS_HUB")]
    hub: PathBuf,
}

/// A part of the benchmark.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Cluster,
    Fast,
    Growth,
}

/// Measures; leaves the objects in the cluster.
pub(crate) async fn run(client: Client, size: Size) -> Result<Report> {
    let Size { objects, changes, idle, parts, growth, hub } = size;
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    if parts.contains(&Part::Cluster) {
        let began = Instant::now();
        load::load(&client, objects).await?;
        notes.push(format!(
            "Loaded in {:.0} s, less if the objects were there.",
            began.elapsed().as_secs_f64()
        ));
        let relay = Relay::start(node::api_server().await?).await?;
        let node = Node::prepare(&hub, relay.address()).await?;
        let measured = measure(&client, &hub, (&relay, &node), [objects, changes], idle).await;
        let (found, explained) = measured.with_context(|| format!("the hub said last:\n{}", node.log()))?;
        node.remove()?;
        figures.extend(found);
        notes.extend(explained);
    }
    if parts.contains(&Part::Fast) {
        figures.extend(kit::fast(&hub, objects).await?);
    }
    if parts.contains(&Part::Growth) {
        figures.extend(kit::growth(&hub, &growth).await?);
    }
    figures.push(Figure::new("binary_mb", mb(std::fs::metadata(&hub)?.len())).target(12.0));
    let title =
        format!("hub: {objects} Services and {objects} + {objects} EndpointSlices, {changes} changes");
    Ok(Report { title, figures, notes, missing: Vec::new() })
}

async fn measure(
    client: &Client,
    hub: &Path,
    (relay, node): (&Relay, &Node),
    [objects, changes]: [usize; 2],
    idle: u64,
) -> Result<(Vec<Figure>, Vec<String>)> {
    let running = node.start()?;
    let (before, started) = (relay.bytes(), Instant::now());
    let agents = clients(&running, objects).await?;
    let through_hub = relay.bytes() - before;
    let one = direct::one_client(relay, [SERVICES, SLICES]).await?;
    let link =
        format!("Bytes of the link: {through_hub} with the hub, {} for one client without.", one.compressed);
    let mut figures = vec![
        Figure::new("link_ratio_6_clients", ratio(through_hub, one.compressed)).target(1.02),
        Figure::new("link_ratio_6_clients_json", ratio(through_hub, one.json)),
    ];
    sleep(SETTLE).await;
    figures
        .push(Figure::new("resident_mb", running.process.resident_mb()?).against(574.0, PEER).target(48.0));
    sleep(AT_REST.saturating_sub(started.elapsed())).await;
    figures.extend(idling(&running, relay, idle).await?);
    drop(agents);
    // Before the lists, which leave the hub memory that watchers would be given.
    figures.extend(idle_watchers(&running).await?);
    figures.extend(lists(client, &running).await?);
    figures.extend(events(client, hub, objects, changes).await?);
    figures.push(disk(client, &running, objects).await?);
    figures.extend(cut(client, &running, relay, objects, changes).await?);
    let (accounts, reviews) = accounts::list_and_watch(&running, relay, objects).await?;
    figures.push(Figure::new("link_ratio_6_accounts", ratio(through_hub + reviews, one.compressed)));
    drop(accounts);
    let (restart, explained) = offline_restart(relay, node, running, objects).await?;
    figures.extend(restart);
    Ok((figures, vec![link, explained]))
}

/// As many clients as are measured list and watch both kinds.
async fn clients(running: &Running, objects: usize) -> Result<Vec<Watchers>> {
    let paths = [SERVICES, SLICES].map(|path| format!("{path}?resourceVersion=0"));
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        for path in &paths {
            let (client, path) = (running.client, path.clone());
            tasks.spawn(async move {
                loop {
                    match client.get(&path, JSON).await {
                        Ok(answer) if answer.status == 200 => return answer.objects(),
                        Ok(_) | Err(_) => sleep(Duration::from_millis(50)).await,
                    }
                }
            });
        }
    }
    let listed = tokio::time::timeout(Duration::from_mins(2), tasks.join_all()).await.context("lists")?;
    // The API server and the cluster have a few of their own.
    ensure!(listed.iter().all(|held| *held >= objects), "lists of {listed:?}, not of {objects}");
    let mut open = Vec::new();
    for path in [SERVICES, SLICES] {
        open.push(Watchers::open(running.client, &watch(running, path).await?, CLIENTS).await?);
    }
    sleep(Duration::from_secs(1)).await;
    Ok(open)
}

/// The path of a watch from now on.
async fn watch(running: &Running, path: &str) -> Result<String> {
    let list = running.client.get(&format!("{path}?resourceVersion=0"), JSON).await?;
    let version = node::version_of(&list.body())?;
    Ok(format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3000&resourceVersion={version}"))
}

async fn idling(running: &Running, relay: &Relay, seconds: u64) -> Result<Vec<Figure>> {
    let (link, disk) = (relay.bytes(), running.process.written_bytes()?);
    sleep(Duration::from_secs(seconds)).await;
    let minutes = float(seconds) / 60.0;
    let disk = (running.process.written_bytes()? - disk) / minutes;
    Ok(vec![
        // 3 to 6 MB each 5 to 7 minutes.
        Figure::new("idle_link_bytes_per_min", float(relay.bytes() - link) / minutes)
            .against(750_000.0, PEER)
            .target(1000.0),
        Figure::new("idle_disk_bytes_per_min", disk).against(19_000_000.0, PEER).target(0.0),
    ])
}

async fn lists(client: &Client, running: &Running) -> Result<Vec<Figure>> {
    let path = format!("{SLICES}?resourceVersion=0");
    // The second of two: the first finds nothing in the processor's caches.
    let mut took = [Duration::ZERO; 3];
    let mut length = 0;
    for took in &mut took {
        (length, *took) = running.client.drain(&path, PROTOBUF).await?;
    }
    took.sort_unstable();
    let scale = 16e6 / float(length);
    let direct = direct::list(client, &path).await?;
    running.process.forget_peak()?;
    let before = running.process.resident_mb()?;
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (client, path) = (running.client, path.clone());
        tasks.spawn(async move { client.drain(&path, PROTOBUF).await });
    }
    while let Some(answer) = tasks.join_next().await {
        let (came, _) = answer??;
        ensure!(came == length, "a list of 20 had {came} bytes of {length}");
    }
    Ok(vec![
        Figure::new("list16mb_ms", took[1].as_secs_f64() * 1e3 * scale).against(direct, DIRECT).target(15.0),
        Figure::new("lists20_added_mb", running.process.peak_mb()? - before).target(8.0),
    ])
}

async fn idle_watchers(running: &Running) -> Result<Vec<Figure>> {
    let path = watch(running, SERVICES).await?;
    let _first = Watchers::open(running.client, &path, CLIENTS).await?;
    sleep(Duration::from_secs(2)).await;
    let before = running.process.resident_mb()?;
    let _idle = Watchers::open(running.client, &path, IDLE_WATCHERS).await?;
    sleep(Duration::from_secs(2)).await;
    let kb_per_watcher = (running.process.resident_mb()? - before) * 1024.0 / float(IDLE_WATCHERS as u64);
    Ok(vec![Figure::new("kb_per_watcher", kb_per_watcher).target(8.0)])
}

/// Many watchers of a hub of its own, whose link is looked at.
async fn events(client: &Client, hub: &Path, objects: usize, changes: usize) -> Result<Vec<Figure>> {
    let server = node::api_server().await?;
    let certificates = node::certificates().await?;
    let tap = Tap::start(server.clone(), &certificates).await?;
    let [_, certificate, key] = certificates;
    let node = Node::with(hub, tap.address(), [tap.authority().to_owned(), certificate, key]).await?;
    let running = node.start()?;
    let measured = watched(client, &server, (&tap, &running), objects, changes).await;
    let figures = measured.with_context(|| format!("the hub said last:\n{}", node.log()))?;
    running.kill().await?;
    node.remove()?;
    Ok(figures)
}

async fn watched(
    client: &Client,
    server: &str,
    (tap, running): (&Tap, &Running),
    objects: usize,
    changes: usize,
) -> Result<Vec<Figure>> {
    let held =
        running.holds(&format!("{SERVICES}?resourceVersion=0"), objects, Duration::from_mins(2)).await.0;
    ensure!(held >= objects, "{held} of {objects} Services");
    sleep(SETTLE).await;
    let path = watch(running, SERVICES).await?;
    let host = server.rsplit_once(':').context("the API server's port")?.0;
    let api_server = Process::find("kube-apiserver", &format!("--bind-address={host}"))?;
    let watchers = Watchers::open(running.client, &path, WATCHERS).await?;
    tap.seen();
    let (cpu, theirs, began) = (running.process.cpu_seconds()?, api_server.cpu_seconds()?, Instant::now());
    load::change(client, objects, 0..changes, WRITERS).await?;
    let rate = float(changes as u64) / began.elapsed().as_secs_f64();
    watchers.told(changes, Duration::from_mins(1)).await.context("watchers of the hub")?;
    let cpu = running.process.cpu_seconds()? - cpu;
    let theirs = api_server.cpu_seconds()? - theirs;
    let (told, seen) = (watchers.events(), tap.seen());
    // One that the link has in two pieces is not found there.
    ensure!(seen.count() * 100 >= changes * 99, "the link showed {} of {changes} changes", seen.count());
    let (mut delays, mut added) = (told.delays(), told.after(&seen));
    let cut = watchers.ended();
    drop(watchers);
    let direct = direct::watchers(&watch(running, SERVICES).await?, WATCHERS).await?;
    let with_theirs = api_server.cpu_seconds()?;
    load::change(client, objects, 0..changes, WRITERS).await?;
    direct.told_or_cut(changes, Duration::from_mins(1)).await.context("watchers of the API server")?;
    // What it costs the API server more to tell as many itself, and not the hub alone.
    let more = api_server.cpu_seconds()? - with_theirs - theirs;
    let told = direct.events();
    let (mut their_delays, mut their_added) = (told.delays(), told.after(&told));
    let each = |seconds: f64| seconds * 1e6 / float((changes * WATCHERS) as u64);
    Ok(vec![
        Figure::new("events_per_s", rate),
        Figure::new("cpu_us_per_event_watcher", each(cpu)).against(each(more), DIRECT).target(5.0),
        Figure::new("p50_delivery_ms", percentile(&mut added, 0.5))
            .against(percentile(&mut their_added, 0.5), DIRECT),
        Figure::new("p99_delivery_ms", percentile(&mut added, 0.99))
            .against(percentile(&mut their_added, 0.99), DIRECT)
            .target(5.0),
        Figure::new("p50_from_patch_ms", percentile(&mut delays, 0.5))
            .against(percentile(&mut their_delays, 0.5), DIRECT),
        Figure::new("p99_from_patch_ms", percentile(&mut delays, 0.99))
            .against(percentile(&mut their_delays, 0.99), DIRECT),
        Figure::new("watchers_cut_by_events", float(cut as u64))
            .against(float(direct.ended() as u64), DIRECT)
            .target(0.0),
    ])
}

/// What a quiet cluster's changes cost the disk: whole pages for a few changes each.
async fn disk(client: &Client, running: &Running, objects: usize) -> Result<Figure> {
    let object = running.client.get(&load::path(0), "application/vnd.kubernetes.protobuf").await?;
    // What changed before has come to the disk by then, and again what changes now.
    sleep(Duration::from_secs(4)).await;
    let before = running.process.written_bytes()?;
    load::change_slowly(client, objects, SLOW_CHANGES, SLOW_RATE).await?;
    sleep(Duration::from_secs(4)).await;
    let given = float((object.body().len() * SLOW_CHANGES) as u64);
    let written = running.process.written_bytes()? - before;
    Ok(Figure::new("disk_bytes_per_changed_byte", written / given).target(2.0))
}

async fn cut(
    client: &Client,
    running: &Running,
    relay: &Relay,
    objects: usize,
    changes: usize,
) -> Result<Vec<Figure>> {
    let changes = changes.min(objects);
    let object = running.client.get(&load::path(0), "application/vnd.kubernetes.protobuf").await?;
    let given = float((object.body().len() * changes) as u64);
    let watchers = Watchers::open(running.client, &watch(running, SERVICES).await?, WATCHERS).await?;
    relay.cut();
    let began = Instant::now();
    load::change(client, objects, 0..changes, 4).await?;
    sleep(CUT.saturating_sub(began.elapsed())).await;
    let before = relay.bytes();
    relay.heal();
    // Watchers that were cut are told nothing: what is missing shows in the count.
    let told = watchers.told(changes, Duration::from_mins(1)).await;
    let bytes = relay.bytes() - before;
    if watchers.ended() == 0 {
        told?;
    }
    Ok(vec![
        Figure::new("watchers_cut", float(watchers.ended() as u64)).against(40.0, PEER).target(0.0),
        Figure::new("reconnect_bytes_per_changed_byte", float(bytes) / given).target(1.2),
    ])
}

/// Ends the hub at once, cuts the link, and starts it again.
async fn offline_restart(
    relay: &Relay,
    node: &Node,
    running: Running,
    objects: usize,
) -> Result<(Vec<Figure>, String)> {
    let paths = [SERVICES, SLICES].map(|path| format!("{path}?resourceVersion=0"));
    // What the node may read was allowed before, and is stored by then.
    let counts = [objects, 2 * objects];
    for (path, count) in paths.iter().zip(counts) {
        let held = running.holds(path, count, Duration::from_secs(10)).await.0;
        ensure!(held >= count, "{path} has {held} of {count} objects");
    }
    sleep(Duration::from_secs(3)).await;
    relay.cut();
    running.kill().await?;
    let began = Instant::now();
    let running = node.start()?;
    let [services, slices] = &paths;
    let limit = Duration::from_secs(30);
    let ((a, a_at), (b, b_at)) =
        tokio::join!(running.holds(services, counts[0], limit), running.holds(slices, counts[1], limit));
    let took = a_at.max(b_at).duration_since(began).as_secs_f64() * 1e3;
    let held = a.min(counts[0]) + b.min(counts[1]);
    sleep(SETTLE).await;
    let resident = running.process.resident_mb()?;
    running.kill().await?;
    relay.heal();
    let figures = vec![
        Figure::new("offline_restart_ms", took).against(9200.0, PEER).target(300.0),
        Figure::new("offline_restart_objects", float(held as u64))
            .against(8836.0, PEER)
            .target(float(3 * objects as u64)),
        Figure::new("offline_resident_mb", resident),
    ];
    let explained = "After kill -9 without a link: from the start of the process until both lists came whole, as protobuf, to a client.";
    Ok((figures, explained.to_owned()))
}

fn ratio(ours: u64, theirs: u64) -> f64 {
    float(ours) / float(theirs)
}

fn mb(bytes: u64) -> f64 {
    float(bytes) / f64::from(1 << 20)
}

#[expect(clippy::cast_precision_loss, reason = "figures of a benchmark")]
fn float(number: u64) -> f64 {
    number as f64
}
