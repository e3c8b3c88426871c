//! The hub before the test kit's API server: faster than a real one, and with as many objects as wanted.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::api_server::access::User;
use testkit::api_server::pki::Authority;
use testkit::api_server::{Cluster, FakeApiServer, ServerOptions, Tls};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::bare::Bare;
use super::load::{self, SENT, nanoseconds};
use super::node::{Node, PROTOBUF, Running};
use super::relay::Relay;
use super::watchers::Watchers;
use super::{SERVICES, SETTLE, SLICES, WATCHERS, float, watch};
use crate::report::{Figure, percentile};

/// So many events a second, some of them at once.
#[derive(Clone, Copy)]
struct Pace {
    rate: usize,
    bunch: usize,
}

/// What a real API server does not reach on this machine.
const FAST: Pace = Pace { rate: 1000, bunch: 5 };

/// What a real API server gives here, each event by itself.
const SINGLE: Pace = Pace { rate: 420, bunch: 1 };

/// For how many seconds watchers are told.
const SECONDS: usize = 6;

/// No hub takes so long until it has everything, on however slow a machine.
const HELD: Duration = Duration::from_mins(2);

/// The table of growth has this for each of its steps.
const GROWTH_EVENTS: usize = 1000;
const GROWTH_WATCHERS: usize = 10;

/// A hub and its server with `objects` Services and as many `EndpointSlices`.
struct Kit {
    server: FakeApiServer,
    relay: Relay,
    node: Node,
    objects: usize,
}

impl Kit {
    async fn start(hub: &Path, objects: usize) -> Result<Self> {
        let authority = Authority::generate("bench")?;
        let options = ServerOptions { tls: Some(Tls::of(&authority)?), ..ServerOptions::default() };
        let server = FakeApiServer::serve(Cluster::default(), options).await?;
        for i in 0..objects {
            let (mut service, mut slice) = (load::service(i), load::slice(i));
            for object in [&mut service, &mut slice] {
                object["metadata"]["namespace"] = load::namespace(i).into();
            }
            let created = server.cluster().create("services", service);
            ensure!(
                created.is_ok() && server.cluster().create("endpointslices.discovery.k8s.io", slice).is_ok()
            );
        }
        let relay = Relay::start(server.address().to_string()).await?;
        let identity = authority.client(&User::new("system:node:bench", &["system:nodes"]))?;
        let certificates =
            [authority.pem().to_owned(), identity.certificate_pem.clone(), identity.key_pem.clone()];
        let node = Node::with(hub, relay.address(), certificates).await?;
        Ok(Self { server, relay, node, objects })
    }

    /// Waits until the hub answers with everything, and says when that was.
    async fn held(&self, running: &Running, within: Duration) -> Result<Instant> {
        let [services, slices] = [SERVICES, SLICES].map(|path| format!("{path}?resourceVersion=0"));
        let (a, b) = tokio::join!(
            running.holds(&services, self.objects, within),
            running.holds(&slices, self.objects, within)
        );
        ensure!(
            a.0 == self.objects && b.0 == self.objects,
            "{} and {} objects of {}",
            a.0,
            b.0,
            self.objects
        );
        Ok(a.1.max(b.1))
    }

    /// Changes Services.
    async fn change(&self, events: usize, Pace { rate, bunch }: Pace) -> Result<()> {
        let mut ticks = interval(Duration::from_secs(1) * u32::try_from(bunch)? / u32::try_from(rate)?);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for i in 0..events {
            if i % bunch == 0 {
                ticks.tick().await;
            }
            let i = i % self.objects;
            let patch = json!({ "metadata": { "annotations": { SENT: nanoseconds().to_string() } } });
            let key = format!("{}/{}", load::namespace(i), load::name(i));
            ensure!(self.server.cluster().merge_patch("services", &key, &patch).is_ok(), "{key}");
        }
        Ok(())
    }
}

/// Many watchers at a thousand events a second, one of which does not read.
pub(super) async fn fast(hub: &Path, objects: usize) -> Result<Vec<Figure>> {
    let kit = Kit::start(hub, objects).await?;
    let running = kit.node.start_first()?;
    kit.held(&running, HELD).await.with_context(|| kit.node.log())?;
    let path = watch(&running, SERVICES).await?;
    let stopped = running.client.watch(&path).await?;
    let watchers = Watchers::open(running.client, &path, WATCHERS).await?;
    sleep(Duration::from_secs(1)).await;
    let (mut figures, mut costs) = (Vec::new(), Vec::new());
    for (name, pace) in [("fast_", FAST), ("fast_single_", SINGLE)] {
        let (told, cost) = tell(&kit, &running, &watchers, pace, name).await?;
        figures.extend(told);
        costs.push((name, pace, cost));
    }
    figures.push(Figure::new("fast_watchers_cut", float(watchers.ended() as u64)).target(0.0));
    drop((stopped, watchers));
    for (name, pace, cost) in costs {
        let (events, bare) = (SECONDS * pace.rate, Bare::open(&running).await?);
        let told = bare.tell(events, (float(pace.rate as u64), pace.bunch), name, cost);
        // Beside the same work of the server and of the hub's link.
        let (changed, told) = tokio::join!(kit.change(events, pace), told);
        changed?;
        figures.extend(told?);
    }
    running.kill().await?;
    kit.node.remove()?;
    Ok(figures)
}

/// What it costs to tell all watchers of changes at that pace, and how late they are told; then processor time for an event and watcher, µs.
async fn tell(
    kit: &Kit,
    running: &Running,
    watchers: &Watchers,
    pace: Pace,
    name: &str,
) -> Result<(Vec<Figure>, f64)> {
    let events = SECONDS * pace.rate;
    let (cpu, began) = (running.process.cpu_seconds()?, Instant::now());
    kit.change(events, pace).await?;
    let rate = float(events as u64) / began.elapsed().as_secs_f64();
    watchers.told_or_cut(events, Duration::from_mins(1)).await?;
    let cpu = running.process.cpu_seconds()? - cpu;
    let mut delays = watchers.events().delays();
    // Those that were cut are a figure of their own, and cost nothing after.
    let each = cpu * 1e6 / float(delays.len().max(1) as u64);
    let figures = vec![
        Figure::new(format!("{name}events_per_s"), rate).target(float(pace.rate as u64)),
        Figure::new(format!("{name}cpu_us_per_event_watcher"), each).target(5.0),
        Figure::new(format!("{name}p50_delivery_ms"), percentile(&mut delays, 0.5)),
        Figure::new(format!("{name}p99_delivery_ms"), percentile(&mut delays, 0.99)).target(5.0),
    ];
    Ok((figures, each))
}

/// How memory and processor time grow with the objects; half of them are Services.
pub(super) async fn growth(hub: &Path, sizes: &[usize]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for size in sizes {
        let kit = Kit::start(hub, size / 2).await?;
        let running = kit.node.start()?;
        kit.held(&running, HELD).await.with_context(|| kit.node.log())?;
        let first = running.process.cpu_seconds()?;
        sleep(SETTLE).await;
        let resident = running.process.resident_mb()?;
        let mut held = 0;
        for path in [SERVICES, SLICES] {
            held += running.client.get(&format!("{path}?resourceVersion=0"), PROTOBUF).await?.raw.len();
        }
        let watchers =
            Watchers::open(running.client, &watch(&running, SERVICES).await?, GROWTH_WATCHERS).await?;
        let cpu = running.process.cpu_seconds()?;
        kit.change(GROWTH_EVENTS, FAST).await?;
        watchers.told(GROWTH_EVENTS, Duration::from_mins(1)).await?;
        let cpu = running.process.cpu_seconds()? - cpu;
        drop(watchers);
        sleep(Duration::from_secs(3)).await;
        kit.relay.cut();
        running.kill().await?;
        let began = Instant::now();
        let running = kit.node.start()?;
        let restart = kit.held(&running, HELD).await?.duration_since(began);
        running.kill().await?;
        kit.node.remove()?;
        let mut tell = |name: &str, value| figures.push(Figure::new(format!("{name}_at_{size}"), value));
        tell("object_mb", super::mb(held as u64));
        tell("resident_mb", resident);
        tell("first_list_cpu_ms", first * 1e3);
        tell("cpu_us_per_event", cpu * 1e6 / float(GROWTH_EVENTS as u64));
        tell("offline_restart_ms", restart.as_secs_f64() * 1e3);
    }
    Ok(figures)
}
