//! The hub with many Services and `EndpointSlices`: its memory, what it costs the link and the disk, what it answers after a
//! restart without a link, and what watchers cost it.

mod accounts;
mod bare;
mod client;
mod direct;
mod disk;
mod instrument;
mod kit;
mod load;
mod node;
mod relay;
mod tap;
mod told;
mod watchers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::node::{Node, PROTOBUF, Running};
use self::relay::Relay;
use self::watchers::Watchers;
use crate::report::{Figure, Report};

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const JSON: &str = "application/json";

/// Whose figures stand beside ours: measured before on a machine of the same kind, with as many objects.
const PEER: &str = "OpenYurt's yurthub, earlier run";

/// Of the list of 16 MB and of the link: the same, asked of the API server in this run.
const DIRECT: &str = "the API server, same run";

/// How many clients have the hub as their API server when the link is measured.
const CLIENTS: usize = 6;

/// How many watches there are when events are measured.
const WATCHERS: usize = 100;

/// How long the hub is left alone before its memory is read.
const SETTLE: Duration = Duration::from_secs(10);

/// How long after its start the hub asks for nothing more by itself: last come the documents of `OpenAPI`, two seconds apart, after up to
/// two minutes; with `--openapi=all` some sixty.
const AT_REST: Duration = Duration::from_mins(6);

/// How long the link is cut under the watchers.
const CUT: Duration = Duration::from_secs(15);

/// How long idle accounts are watched: what is reviewed of an open watch is reviewed anew each five minutes, and looked at each minute.
const REVIEWS: Duration = Duration::from_mins(6);

/// The shortest time in which an idle hub does all that it does: each minute it is told versions, each five it asks whether an account that watches still
/// may.
const ALL_IDLE: Duration = Duration::from_mins(11);
const NEARLY_ALL_IDLE: Duration = Duration::from_mins(10);

/// How much is measured.
#[derive(clap::Args)]
pub(crate) struct Size {
    /// Number of Services, and of `EndpointSlices` with endpoints; in the cluster each Service has an empty one besides.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Number of changes in each part that needs some.
    #[arg(long, default_value_t = 2000)]
    changes: usize,
    /// How long the idle hub is watched; from 600 on it is 660 at least, so that what comes each ten minutes is in the figures. In less it may not be.
    #[arg(long, default_value_t = 660, value_name = "SECONDS")]
    idle: u64,
    /// For how long changes are spread over ten streams; in less than 600 no files are rewritten.
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..))]
    spread: u64,
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
    let Size { objects, changes, idle, spread, parts, growth, hub } = size;
    let during = [idle, spread].map(Duration::from_secs);
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
        let measured = measure(&client, &hub, (&relay, &node), [objects, changes], during).await;
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
    figures.extend(all_cut(&figures));
    figures.push(Figure::new("binary_mb", mb(std::fs::metadata(&hub)?.len())).target(12.0));
    let title =
        format!("hub: {objects} Services and {objects} + {objects} EndpointSlices, {changes} changes");
    Ok(Report { title, figures, notes, missing: Vec::new() })
}

/// All watchers that were cut, by whatever of it was measured; nothing, if none of it was.
fn all_cut(figures: &[Figure]) -> Option<Figure> {
    let cut = figures.iter().filter(|figure| figure.key.contains("watchers_cut")).map(|figure| figure.value);
    let sum = cut.reduce(|one, other| one + other)?;
    Some(Figure::new("watchers_cut", sum).against(40.0, PEER).target(0.0))
}

async fn measure(
    client: &Client,
    hub: &Path,
    (relay, node): (&Relay, &Node),
    [objects, changes]: [usize; 2],
    [idle, spread]: [Duration; 2],
) -> Result<(Vec<Figure>, Vec<String>)> {
    let running = node.start()?;
    let (before, started) = (relay.bytes(), Instant::now());
    let agents = clients(&running, objects).await?;
    let through_hub = relay.bytes() - before;
    let one = direct::one_client(relay, [SERVICES, SLICES]).await?;
    let listed_directly = relay.bytes();
    let link =
        format!("Bytes of the link: {through_hub} with the hub, {} for one client without.", one.compressed);
    let mut figures = vec![
        Figure::new("link_ratio_6_clients", ratio(through_hub, one.compressed)).target(1.02),
        Figure::new("link_ratio_6_clients_json", ratio(through_hub, one.json)),
    ];
    sleep(SETTLE).await;
    let early = running.process.resident_mb()?;
    sleep(AT_REST.saturating_sub(started.elapsed())).await;
    // With the documents of OpenAPI by now.
    let resident = early.max(running.process.resident_mb()?);
    let at_rest = ratio(through_hub + relay.bytes() - listed_directly, one.compressed);
    figures.push(Figure::new("link_ratio_6_clients_at_rest", at_rest).target(1.02));
    figures.push(Figure::new("resident_mb", resident).against(574.0, PEER).target(48.0));
    figures.push(Figure::new("peak_mb", running.process.peak_mb()?));
    let window = if idle < NEARLY_ALL_IDLE { idle } else { idle.max(ALL_IDLE) };
    let [bytes, disk] = idling(&running, relay, window).await?;
    // 3 to 6 MB each 5 to 7 minutes.
    let idle_link = Figure::new("idle_link_bytes_per_min", bytes).against(750_000.0, PEER).target(1000.0);
    let disk = Figure::new("idle_disk_bytes_per_min", disk).against(19_000_000.0, PEER).target(0.0);
    figures.extend([idle_link, disk, Figure::new("idle_window_s", window.as_secs_f64())]);
    let rare = if window < ALL_IDLE { ": what comes each five or ten minutes may not be in it" } else { "" };
    let idle = format!("Idle for {} s, {} s after the start{rare}.", window.as_secs(), AT_REST.as_secs());
    drop(agents);
    // Before the lists, which leave the hub memory that watchers would be given.
    figures.push(told::idle_watchers(&running).await?);
    figures.push(told::idle_tls_watchers(node, &running).await?);
    figures.extend(lists(client, &running).await?);
    figures.extend(told::events(client, hub, objects, changes).await?);
    figures.push(disk::of_one_stream(client, &running, objects, spread / 3).await?);
    figures.extend(cut(client, &running, relay, objects, changes).await?);
    let (accounts, reviews) = accounts::list_and_watch(&running, relay, objects).await?;
    figures.push(Figure::new("link_ratio_6_accounts", ratio(through_hub + reviews, one.compressed)));
    let [bytes, _] = idling(&running, relay, REVIEWS).await?;
    figures.push(Figure::new("idle_link_bytes_per_min_6_accounts", bytes));
    drop(accounts);
    // After all that counts the link's bytes: the hub follows ten streams more from here on.
    let (of_streams, streams) = disk::of_ten_streams(client, &running, spread).await?;
    figures.extend([of_streams, Figure::new("resident_end_mb", running.process.resident_mb()?)]);
    let (restart, explained) = offline_restart(relay, node, running, objects).await?;
    figures.extend(restart);
    Ok((figures, vec![link, idle, streams, explained]))
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

/// Bytes a minute of the link, and of the disk.
async fn idling(running: &Running, relay: &Relay, during: Duration) -> Result<[f64; 2]> {
    let (link, disk) = (relay.bytes(), running.process.written_bytes()?);
    sleep(during).await;
    let minutes = during.as_secs_f64() / 60.0;
    let disk = running.process.written_bytes()? - disk;
    Ok([float(relay.bytes() - link) / minutes, disk / minutes])
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

async fn cut(
    client: &Client,
    running: &Running,
    relay: &Relay,
    objects: usize,
    changes: usize,
) -> Result<[Figure; 2]> {
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
    Ok([
        Figure::new("reconnect_bytes_per_changed_byte", float(bytes) / given).target(1.2),
        Figure::new("watchers_cut_without_link", float(watchers.ended() as u64)).target(0.0),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_are_cut_by_anything_that_cuts_them() {
        let sum = |figures: &[(&'static str, f64)]| {
            let figures: Vec<Figure> = figures.iter().map(|(key, value)| Figure::new(*key, *value)).collect();
            all_cut(&figures).map(|all| (all.key.to_string(), all.value.to_string()))
        };
        let all = |sum: &str| Some(("watchers_cut".to_owned(), sum.to_owned()));
        assert_eq!(sum(&[("events_per_s", 400.0)]), None);
        assert_eq!(sum(&[("a_watchers_cut", 0.0), ("binary_mb", 11.0)]), all("0"));
        let each = [("watchers_cut_by_a", 1.0), ("b_watchers_cut", 2.0), ("c_watchers_cut_by_d", 4.0)];
        assert_eq!(sum(&each), all("7"));
    }
}
