//! Watchers: what each takes while nothing happens, and what it costs to tell them of many events.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::{Client, Config};
use tokio::time::{Instant, sleep};

use super::bare::Bare;
use super::node::{self, Node, Running};
use super::tap::Tap;
use super::watchers::Watchers;
use super::{DIRECT, SERVICES, SETTLE, WATCHERS, accounts, direct, float, load, watch};
use crate::process::Process;
use crate::report::{Figure, percentile};

/// How many open and idle watches there are before, and how many more show what one takes: the first find room that what came before them has left.
const IDLE_WATCHERS: [usize; 2] = [800, 1600];

/// The same of watches by HTTPS, whose clients are in this process and take more.
const IDLE_TLS_WATCHERS: [usize; 2] = [100, 300];

/// How many clients change objects when as many events are wanted as the API server gives.
const WRITERS: usize = 16;

pub(super) async fn idle_watchers(running: &Running) -> Result<Figure> {
    let path = watch(running, SERVICES).await?;
    let each =
        kb_of_one(running, IDLE_WATCHERS, async |count| Watchers::open(running.client, &path, count).await);
    Ok(Figure::new("kb_per_watcher", each.await?).target(8.0))
}

/// As programs of Go and Rust have them that show a token, each over a connection of its own.
pub(super) async fn idle_tls_watchers(node: &Node, running: &Running) -> Result<Figure> {
    let path = watch(running, SERVICES).await?;
    let config = node.https(&accounts::account("bench-0").await?)?;
    let each = kb_of_one(running, IDLE_TLS_WATCHERS, async |count| {
        direct::watchers_of(config.clone(), &path, count).await
    });
    Ok(Figure::new("tls_kb_per_watcher", each.await?))
}

/// What the hub needs for one more of those that `open` opens, after the `first` of them.
async fn kb_of_one(
    running: &Running,
    [first, more]: [usize; 2],
    open: impl AsyncFn(usize) -> Result<Watchers>,
) -> Result<f64> {
    let _first = open(first).await?;
    sleep(Duration::from_secs(2)).await;
    let before = running.process.resident_mb()?;
    let _more = open(more).await?;
    sleep(Duration::from_secs(2)).await;
    Ok((running.process.resident_mb()? - before) * 1024.0 / float(more as u64))
}

/// Many watchers of a hub of its own, whose link is looked at.
pub(super) async fn events(
    client: &Client,
    hub: &Path,
    objects: usize,
    changes: usize,
) -> Result<Vec<Figure>> {
    let server = node::api_server().await?;
    let certificates = node::certificates().await?;
    let tap = Tap::start(server.clone(), &certificates).await?;
    let [_, certificate, key] = certificates;
    let node = Node::with(hub, tap.address(), [tap.authority().to_owned(), certificate, key]).await?;
    let running = node.start_first()?;
    let https = node.https(&accounts::account("bench-0").await?)?;
    let measured = watched(client, &server, (&tap, &running, https), objects, changes).await;
    let measured = measured.with_context(|| format!("the hub said last:\n{}", node.log()))?;
    running.kill().await?;
    node.remove()?;
    Ok(measured)
}

async fn watched(
    client: &Client,
    server: &str,
    (tap, running, https): (&Tap, &Running, Config),
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
    // Whoever is cut is a figure of its own, and no end of the benchmark.
    watchers.told_or_cut(changes, Duration::from_mins(1)).await.context("watchers of the hub")?;
    let cpu = running.process.cpu_seconds()? - cpu;
    let theirs = api_server.cpu_seconds()? - theirs;
    let (told, seen) = (watchers.events(), tap.seen());
    // One that the link has in two pieces is not found there.
    ensure!(seen.count() * 100 >= changes * 99, "the link showed {} of {changes} changes", seen.count());
    let (mut delays, mut added) = (told.delays(), told.after(&seen));
    let cut = watchers.ended();
    drop(watchers);
    let each = |seconds: f64, events: usize| seconds * 1e6 / float(events.max(1) as u64);
    // Of those that were cut nobody was told the rest, and nothing of it cost anything.
    let cost = each(cpu, delays.len());
    let bare = bare(client, running, [objects, changes], rate, cost).await?;
    // The same by HTTPS with a token, as the API server is asked.
    let secure = direct::watchers_of(https, &watch(running, SERVICES).await?, WATCHERS).await?;
    tap.seen();
    let before = running.process.cpu_seconds()?;
    load::change(client, objects, 0..changes, WRITERS).await?;
    secure.told_or_cut(changes, Duration::from_mins(1)).await.context("watchers of the hub by HTTPS")?;
    let secure_cpu = running.process.cpu_seconds()? - before;
    let (secure_told, secure_cut) = (secure.events(), secure.ended());
    let (secure_cost, mut secure_added) =
        (each(secure_cpu, secure_told.delays().len()), secure_told.after(&tap.seen()));
    drop(secure);
    let direct = direct::watchers(&watch(running, SERVICES).await?, WATCHERS).await?;
    let with_theirs = api_server.cpu_seconds()?;
    load::change(client, objects, 0..changes, WRITERS).await?;
    direct.told_or_cut(changes, Duration::from_mins(1)).await.context("watchers of the API server")?;
    // What it costs the API server more to tell as many itself, and not the hub alone.
    let more = api_server.cpu_seconds()? - with_theirs - theirs;
    let told = direct.events();
    let (mut their_delays, mut their_added) = (told.delays(), told.after(&told));
    // Those that it cut cost it nothing.
    let is_whole = direct.ended() == 0;
    let beside = |figure: Figure| {
        if is_whole { figure.against(each(more, changes * WATCHERS), DIRECT) } else { figure }
    };
    let mut figures = vec![
        Figure::new("events_per_s", rate),
        beside(Figure::new("cpu_us_per_event_watcher", cost).target(5.0)),
        Figure::new("p50_delivery_ms", percentile(&mut added, 0.5))
            .against(percentile(&mut their_added, 0.5), DIRECT),
        Figure::new("p99_delivery_ms", percentile(&mut added, 0.99))
            .against(percentile(&mut their_added, 0.99), DIRECT)
            .target(5.0),
        Figure::new("p50_from_patch_ms", percentile(&mut delays, 0.5))
            .against(percentile(&mut their_delays, 0.5), DIRECT),
        Figure::new("p99_from_patch_ms", percentile(&mut delays, 0.99))
            .against(percentile(&mut their_delays, 0.99), DIRECT),
        beside(Figure::new("tls_cpu_us_per_event_watcher", secure_cost)),
        Figure::new("tls_p99_delivery_ms", percentile(&mut secure_added, 0.99))
            .against(percentile(&mut their_added, 0.99), DIRECT),
        Figure::new("watchers_cut_by_events", float(cut as u64))
            .against(float(direct.ended() as u64), DIRECT)
            .target(0.0),
        Figure::new("tls_watchers_cut_by_events", float(secure_cut as u64)).target(0.0),
    ];
    figures.extend(bare);
    Ok(figures)
}

/// What bare writes of as many events take, beside the same changes of the API server and the hub's link, which come as fast as it gives them.
async fn bare(
    client: &Client,
    running: &Running,
    [objects, changes]: [usize; 2],
    rate: f64,
    ours: f64,
) -> Result<Vec<Figure>> {
    let told = Bare::open(running).await?.tell(changes, (rate, 1), "", ours);
    let (beside, told) = tokio::join!(load::change(client, objects, 0..changes, WRITERS), told);
    beside?;
    told
}
