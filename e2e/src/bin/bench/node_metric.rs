//! `NodeMetric` under load: thousands of simulated nodes that report over connections of their own, watchers that are told, the same objects
//! as a custom resource beside it, and changes of the leader.

mod crd;
mod fleet;
mod informer;
mod link;
mod list;
mod nodes;
mod place;
mod prober;
mod progress;
mod replica;
mod sample;
mod takeover;
mod watchers;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{eventually, hack_cluster, kubectl};
use kube::Client;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use testkit::api_server::pki::Authority;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::fleet::Fleet;
use self::nodes::Stored;
use self::place::Place;
use self::replica::{Replica, pair};
use self::takeover::End;
use self::watchers::{Heard, Watchers, Way};
use crate::report::{Figure, Report, percentile};

const PATH: &str = "/apis/slo.koordinator.sh/v1beta1/nodemetrics";

/// Whose figures stand beside ours.
const CRD: &str = "a CRD in the API server, same run, its highest rate";

/// How much is measured.
#[derive(clap::Args)]
pub(crate) struct Size {
    /// Number of nodes that report each ten seconds.
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Number of pods of each.
    #[arg(long, default_value_t = 110)]
    pods: u64,
    /// Number of watchers.
    #[arg(long, default_value_t = 5)]
    watchers: usize,
    /// How long each measurement is.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    window: u64,
    /// What is measured: the load and its growth, the CRD, 1,000 nodes that report each second, changes of the leader.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["load", "crd", "second", "takeover"])]
    parts: Vec<Part>,
    /// How many nodes there are in each step of the growth; `--nodes` is one of them.
    #[arg(long, value_delimiter = ',', default_values = ["100", "1000", "10000"])]
    growth: Vec<usize>,
    /// Number of objects of the CRD; as many as nodes if nothing is said.
    #[arg(long)]
    crd_objects: Option<usize>,
    /// How often each change of the leader is measured; the longest counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// A part of the benchmark.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Load,
    Crd,
    Second,
    Takeover,
}

/// What all parts use.
struct Bench {
    client: Client,
    /// The administrator's way to the API server.
    api_server: Way,
    place: watch::Receiver<Place>,
    authority: PathBuf,
    size: Size,
    figures: Vec<Figure>,
    notes: Vec<String>,
    /// What could not be measured, and why.
    missing: Vec<String>,
    _following: JoinSet<()>,
}

/// Measures; leaves the cluster without the Nodes that it made, and without kube-controller-manager.
pub(crate) async fn run(client: Client, size: Size) -> Result<Report> {
    // Nobody takes heartbeats of simulated nodes: it would hold them for dead.
    hack_cluster(&["stop", "kube-controller-manager"]).await?.ok()?;
    let mut following = JoinSet::new();
    let place = place::follow(&client, &mut following).await?;
    let (api_server, authority) = administrator()?;
    let title =
        format!("node-metric: {} nodes of {} pods, {} watchers", size.nodes, size.pods, size.watchers);
    let mut bench = Bench {
        client,
        api_server,
        place,
        authority,
        size,
        figures: Vec::new(),
        notes: Vec::new(),
        missing: Vec::new(),
        _following: following,
    };
    for part in [Part::Load, Part::Crd, Part::Second, Part::Takeover] {
        if !bench.size.parts.contains(&part) {
            continue;
        }
        let measured = match part {
            Part::Load => bench.load().await,
            Part::Crd => bench.crd().await,
            Part::Second => bench.second().await,
            Part::Takeover => bench.takeover().await,
        };
        // What was measured before is not lost, and what comes next begins without the nodes of this.
        if let Err(error) = measured {
            bench.missing.push(format!("{part:?}: {error:#}"));
            if let Err(error) = nodes::remove(&bench.client).await {
                bench.missing.push(format!("all after {part:?}: {error:#}"));
                break;
            }
        }
    }
    let Bench { figures, notes, missing, .. } = bench;
    Ok(Report { title, figures, notes, missing })
}

/// What a window of time has shown.
struct Seen {
    cores: f64,
    standby_cores: f64,
    resident_mb: f64,
    standby_mb: f64,
    link_mb_per_s: [f64; 2],
    reports_per_s: f64,
    report_bytes: f64,
    failed: f64,
    stored: Stored,
    seconds: f64,
    heard: Vec<Heard>,
}

impl Seen {
    fn p99(&mut self, which: usize) -> f64 {
        self.heard.get_mut(which).map_or(f64::NAN, |heard| percentile(&mut heard.delays, 0.99))
    }

    /// Events by reports and watcher.
    fn told(&self, which: usize, watchers: usize) -> f64 {
        let events = self.heard.get(which).map_or(0, |heard| heard.events);
        float(events) / (self.reports_per_s * self.seconds) / float(watchers as u64)
    }

    /// What nobody should be told where nothing is deleted, by all watchers together.
    fn amiss(&self, which: usize) -> String {
        let (deleted, errors) = self.heard.get(which).map_or((0, 0), |heard| (heard.deleted, heard.errors));
        format!("{deleted} DELETED and {errors} ERROR in all")
    }
}

impl Bench {
    fn fleet(&self, interval: Duration) -> Result<Fleet> {
        let pem = |extension: &str| std::fs::read_to_string(self.authority.with_extension(extension));
        let authority = Authority::from_pem(&pem("crt")?, &pem("key")?)?;
        Ok(Fleet::new(authority, self.place.clone(), self.size.pods, interval))
    }

    /// The administrator's way to the leader.
    fn direct(&self) -> Result<Way> {
        let place = self.place.borrow().clone();
        let tls = certificates(&place.authorities)?;
        Ok(Way { server: place.api, name: place.name, tls, path: PATH.to_owned() })
    }

    /// The load, and how it grows.
    async fn load(&mut self) -> Result<()> {
        let Size { nodes, ref growth, .. } = self.size;
        let mut steps: Vec<usize> = growth.iter().copied().chain([nodes]).collect();
        steps.sort_unstable();
        steps.dedup();
        let mut fleet = self.fleet(Duration::from_secs(10))?;
        let (mut made, mut rows) = (0, Vec::new());
        for step in steps {
            // With more nodes it would not get better.
            if let Err(error) = self.step(&mut fleet, made..step, &mut rows).await {
                self.missing.push(format!("load of {step} nodes or more: {error:#}"));
                break;
            }
            made = step;
        }
        self.notes.push(format!(
            "| nodes | reports/s | CPU of the leader, cores | of the standby | resident MB, leader | standby | p99 direct, ms |\n\
             |---:|---:|---:|---:|---:|---:|---:|\n{}",
            rows.join("\n")
        ));
        nodes::remove(&self.client).await
    }

    /// So many nodes more, and the figures of all of them.
    async fn step(&mut self, fleet: &mut Fleet, more: Range<usize>, rows: &mut Vec<String>) -> Result<()> {
        let Size { nodes, watchers, window, .. } = self.size;
        let (step, window) = (more.end, Duration::from_secs(window));
        nodes::make(&self.client, more).await?;
        fleet.grow(step).await?;
        self.at_rest(step).await;
        let pair = pair(&self.client).await?;
        let watching = Watchers::open(&self.direct()?, watchers).await?;
        watching.caught_up().await?;
        let mut seen = see(fleet, &pair, &[&watching], window).await?;
        drop(watching);
        rows.push(row(step, &mut seen, watchers));
        if step == nodes {
            self.direct_figures(&mut seen, watchers);
            // What comes of more nodes is another matter.
            let listed = self.one_list(&pair.0).await;
            self.measured("one list", listed);
            let through = self.through_the_api_server(fleet, &pair, window).await;
            self.measured("through the API server", through);
        }
        Ok(())
    }

    /// Waits until the cluster is at rest with so many nodes. What overloads this machine is measured nevertheless.
    async fn at_rest(&mut self, nodes: usize) {
        let settled = nodes::settled(nodes).await;
        self.measured(&format!("{nodes} nodes at rest; the figures are of a cluster that is not"), settled);
    }

    /// What was found; or it is told that it could not be measured, and what comes next is.
    fn measured<T>(&mut self, what: &str, found: Result<T>) -> Option<T> {
        found.map_err(|error| self.missing.push(format!("{what}: {error:#}"))).ok()
    }

    fn direct_figures(&mut self, seen: &mut Seen, watchers: usize) {
        let p99 = seen.p99(0);
        let [received, sent] = seen.link_mb_per_s;
        self.figures.extend([
            Figure::new("cpu_cores", seen.cores).target(0.25),
            Figure::new("resident_mb", seen.resident_mb).target(512.0),
            Figure::new("p99_direct_ms", p99).target(200.0),
            Figure::new("etcd_writes_per_s", seen.stored.writes / seen.seconds).target(0.0),
            Figure::new("etcd_bytes_per_s", seen.stored.bytes / seen.seconds),
            Figure::new("lease_writes_per_s", seen.stored.leases / seen.seconds),
            Figure::new("reports_per_s", seen.reports_per_s),
            Figure::new("report_bytes", seen.report_bytes),
            Figure::new("reports_failed_per_s", seen.failed / seen.seconds),
            Figure::new("link_received_mb_per_s", received),
            Figure::new("link_sent_mb_per_s", sent),
            Figure::new("standby_cpu_cores", seen.standby_cores),
            Figure::new("standby_resident_mb", seen.standby_mb),
        ]);
        self.notes.push(format!(
            "Each of {watchers} watchers was told {:.3} events a report, {:.1} kB each; {}.",
            seen.told(0, watchers),
            seen.heard.first().map_or(0.0, |heard| float(heard.bytes) / float(heard.events.max(1)) / 1e3),
            seen.amiss(0),
        ));
    }

    /// What an informer begins with that asks for no pages.
    async fn one_list(&mut self, leader: &Replica) -> Result<()> {
        let list::Listed { megabytes, seconds, peak_mb } = list::once(&self.direct()?, leader).await?;
        self.figures.push(Figure::new("list_peak_mb", peak_mb));
        self.notes.push(format!(
            "One list in one piece (resourceVersion=0): {megabytes:.0} MB in {seconds:.1} s; {peak_mb:.0} MB were resident in the leader at most."
        ));
        Ok(())
    }

    /// All watchers but one are direct, as the cost of the API server is not ours.
    async fn through_the_api_server(
        &mut self,
        fleet: &Fleet,
        pair: &(Replica, Replica),
        window: Duration,
    ) -> Result<()> {
        let direct = Watchers::open(&self.direct()?, self.size.watchers.saturating_sub(1)).await?;
        let aggregated = Watchers::open(&self.api_server, 1).await?;
        direct.caught_up().await?;
        aggregated.caught_up().await?;
        let mut seen = see(fleet, pair, &[&direct, &aggregated], window).await?;
        let told = seen.told(1, 1);
        let p99 = seen.p99(1);
        self.figures.push(Figure::new("p99_aggregated_ms", p99).target(500.0));
        self.notes.push(format!(
            "One of the watchers through the API server: it was told {told:.3} events a report; {}.",
            seen.amiss(1),
        ));
        Ok(())
    }

    async fn crd(&mut self) -> Result<()> {
        let Size { nodes, watchers, window, crd_objects, .. } = self.size;
        let crd_objects = crd_objects.unwrap_or(nodes);
        let mut fleet = self.fleet(Duration::from_secs(10))?;
        nodes::make(&self.client, 0..1).await?;
        fleet.grow(1).await?;
        let template = eventually("an object", Duration::from_mins(2), || async {
            let text = kubectl(&["get", "--raw", &format!("{PATH}/{}", fleet::name(0))]).await?.ok()?;
            let object: Value = serde_json::from_str(&text)?;
            ensure!(object["status"]["podsMetric"].is_array(), "no report yet");
            anyhow::Ok(object)
        })
        .await?;
        drop(fleet);
        nodes::remove(&self.client).await?;
        let window = Duration::from_secs(window);
        let found =
            crd::measure(&self.client, &self.api_server, &template, crd_objects, watchers, window).await?;
        self.figures.extend([
            Figure::new("crd_reports_per_s", found.reports_per_s),
            Figure::new("crd_cpu_cores", found.cpu_cores),
            Figure::new("crd_p99_ms", found.p99_ms),
            Figure::new("crd_etcd_writes_per_s", found.etcd_writes_per_s),
            Figure::new("crd_etcd_bytes_per_s", found.etcd_bytes_per_s),
        ]);
        for figure in &mut self.figures {
            let (value, key) = match &*figure.key {
                "cpu_cores" => (found.cpu_cores, CRD),
                "p99_direct_ms" => (found.p99_ms, CRD),
                "etcd_writes_per_s" => (found.etcd_writes_per_s, CRD),
                "etcd_bytes_per_s" => (found.etcd_bytes_per_s, CRD),
                "reports_per_s" => (found.reports_per_s, CRD),
                _ => continue,
            };
            figure.baseline = Some((value, key));
        }
        self.notes.push(format!(
            "The CRD: {crd_objects} objects of {} bytes, CPU of kube-apiserver and etcd together; each watcher was told {:.2} events a write.",
            template.to_string().len(),
            found.events_per_report / float(watchers as u64),
        ));
        Ok(())
    }

    /// A tenth of the nodes, ten times as often.
    async fn second(&mut self) -> Result<()> {
        const NODES: usize = 1000;
        let Size { watchers, window, .. } = self.size;
        let mut fleet = self.fleet(Duration::from_secs(1))?;
        nodes::make(&self.client, 0..NODES).await?;
        fleet.grow(NODES).await?;
        self.at_rest(NODES).await;
        let pair = pair(&self.client).await?;
        let watching = Watchers::open(&self.direct()?, watchers).await?;
        watching.caught_up().await?;
        let mut seen = see(&fleet, &pair, &[&watching], Duration::from_secs(window)).await?;
        let p99 = seen.p99(0);
        self.figures.extend([
            Figure::new("second_reports_per_s", seen.reports_per_s),
            Figure::new("second_cpu_cores", seen.cores),
            Figure::new("second_standby_cpu_cores", seen.standby_cores),
            Figure::new("second_p99_direct_ms", p99),
        ]);
        self.notes.push(format!(
            "Of each second's report a watcher was told {:.3} events; {}.",
            seen.told(0, watchers),
            seen.amiss(0),
        ));
        nodes::remove(&self.client).await
    }

    async fn takeover(&mut self) -> Result<()> {
        // One more than report by themselves: the probe.
        let nodes = self.size.nodes;
        let mut fleet = self.fleet(Duration::from_secs(10))?;
        nodes::make(&self.client, 0..nodes + 1).await?;
        fleet.grow(nodes).await?;
        self.at_rest(nodes).await;
        let ends = [
            (End::Term, "takeover_term_s", 1.0),
            (End::Kill, "takeover_kill_s", 2.0),
            (End::Frozen, "takeover_frozen_s", 5.0),
            (End::CutOff, "takeover_cut_off_s", 5.0),
        ];
        let mut measured = Vec::new();
        for (end, key, target) in ends {
            let mut costs = Vec::new();
            for round in 1..=self.size.rounds {
                let admin = self.direct()?;
                let probe = (&fleet.shared, nodes);
                let ways = (&admin, &self.api_server);
                // The other rounds, and the other ends, are figures of their own.
                let cost = takeover::change(&self.client, end, probe, &self.place, ways).await;
                costs.extend(self.measured(&format!("{end:?}, round {round}"), cost));
            }
            if costs.is_empty() {
                continue;
            }
            // A round that came to no end took longest of all: without it there is no worst one.
            if costs.len() == self.size.rounds {
                let longest = costs.iter().map(takeover::Cost::seconds).fold(0.0, f64::max);
                self.figures.push(Figure::new(key, longest).target(target));
            }
            self.notes.push(takeover::after(end, nodes, &costs));
            measured.push((end, costs));
        }
        self.notes.push(takeover::table(&measured));
        nodes::remove(&self.client).await
    }
}

async fn see(
    fleet: &Fleet,
    (leader, standby): &(Replica, Replica),
    watching: &[&Watchers],
    window: Duration,
) -> Result<Seen> {
    // To ask for it takes time, which is no part of the window.
    let stored = Stored::now().await?;
    let before = (leader.used()?, standby.used()?, fleet.counts());
    for watchers in watching {
        watchers.listen();
    }
    let began = Instant::now();
    sleep(window).await;
    let after = (leader.used()?, standby.used()?, fleet.counts());
    let seconds = began.elapsed().as_secs_f64();
    let heard = watching.iter().map(|watchers| watchers.heard()).collect::<Result<Vec<_>>>()?;
    let stored = Stored::now().await?.since(stored);
    let [taken, bytes, failed] = [0, 1, 2].map(|which: usize| float(after.2[which] - before.2[which]));
    let link = [0, 1].map(|way: usize| (after.0.link_bytes[way] - before.0.link_bytes[way]) / seconds / 1e6);
    Ok(Seen {
        cores: (after.0.cpu_seconds - before.0.cpu_seconds) / seconds,
        standby_cores: (after.1.cpu_seconds - before.1.cpu_seconds) / seconds,
        resident_mb: leader.process.resident_mb()?,
        standby_mb: standby.process.resident_mb()?,
        link_mb_per_s: link,
        reports_per_s: taken / seconds,
        report_bytes: bytes / taken,
        failed,
        stored,
        seconds,
        heard,
    })
}

fn row(step: usize, seen: &mut Seen, watchers: usize) -> String {
    let p99 = seen.p99(0);
    let Seen { cores, standby_cores, resident_mb, standby_mb, reports_per_s, .. } = &*seen;
    let told = seen.told(0, watchers);
    let row = format!(
        "| {step} | {reports_per_s:.0} | {cores:.3} | {standby_cores:.3} | {resident_mb:.0} | {standby_mb:.0} | {p99:.0} |"
    );
    // Shown as it comes: the whole takes minutes.
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{row} told {told:.3}\n"));
    row
}

/// The administrator's way to the API server, and where the authority of client certificates is, without an extension.
fn administrator() -> Result<(Way, PathBuf)> {
    let file = PathBuf::from(std::env::var_os("KUBECONFIG").context("KUBECONFIG")?);
    let folder = file.parent().context("the cluster's folder")?.join("pki");
    let text = std::fs::read_to_string(&file)?;
    let config: Value = serde_saphyr::from_str(&text)?;
    let server = config["clusters"][0]["cluster"]["server"].as_str().context("the API server's address")?;
    let server = server.strip_prefix("https://").context("the API server's address")?.to_owned();
    let name = server.rsplit_once(':').map_or(server.as_str(), |(host, _)| host).to_owned();
    let tls = certificates(&std::fs::read_to_string(folder.join("ca.crt"))?)?;
    Ok((Way { server, name, tls, path: PATH.to_owned() }, folder.join("ca")))
}

/// The administrator's certificate, and trust in these authorities.
fn certificates(authorities: &str) -> Result<std::sync::Arc<rustls::ClientConfig>> {
    let file = PathBuf::from(std::env::var_os("KUBECONFIG").context("KUBECONFIG")?);
    let folder = file.parent().context("the cluster's folder")?.join("pki");
    let certificate = CertificateDer::from_pem_file(folder.join("admin.crt"))?;
    let key = PrivateKeyDer::from_pem_file(folder.join("admin.key"))?;
    link::config(authorities, certificate, key, link::Kind::Reader)
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[expect(clippy::cast_precision_loss, reason = "a count")]
fn float(count: u64) -> f64 {
    count as f64
}
