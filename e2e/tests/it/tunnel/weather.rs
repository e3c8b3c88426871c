//! A link as sites have them: far away, losing and overtaking packets, thin. What the weather does to the n-th frame is decided by the
//! seed that is printed.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use e2e::ground::{EDGE_GATEWAY, GATEWAYS, ORDINARY, Reach, background, ground, logs, pod, said};
use e2e::keyboard::{Keyboard, Waits, hardly_slower, in_turn, slowest_hardly_slower};
use e2e::run;
use e2e::weather::{Weather, delay_of};
use tokio::io::{AsyncReadExt, copy, sink};
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::io::InspectReader;

use super::held::Held;
use super::reach::link_ports_of;
use super::streams::Followed;

const PATIENCE: Duration = Duration::from_mins(1);

/// Each way.
const DELAY: Duration = Duration::from_millis(40);

const JITTER: Duration = Duration::from_millis(5);

/// Everything arrives whole, a key's echo and a log's line need one round trip, and no link is given up.
#[tokio::test]
async fn f2_f3_f6_over_a_bad_link() -> Result<()> {
    ground(Reach::Names).await?;
    let weather = Weather::over("a", DELAY).await?;
    logs(ORDINARY, PATIENCE).await?;
    let before = link_ports_of(EDGE_GATEWAY).await?;
    let round_trip = (DELAY + JITTER) * 2;
    {
        let (mut ours, mut plain) = (Keyboard::open(ORDINARY).await?, Keyboard::open(GATEWAYS[1]).await?);
        let (keys, beside) = in_turn(&mut ours, &mut plain, 50).await?;
        println!("keys at {round_trip:?}: {keys}; by plain TCP without a delay {beside}");
        hardly_slower(&keys, &beside, round_trip)?;
        let (mut ours, mut plain) = (Followed::of(ORDINARY).await?, Followed::of(GATEWAYS[1]).await?);
        let (mut lines, mut beside) = (Waits::default(), Waits::default());
        for _ in 0..20 {
            lines.add(ours.mark().await?);
            beside.add(plain.mark().await?);
        }
        println!("lines at {round_trip:?}: {lines}; by plain TCP without a delay {beside}");
        hardly_slower(&lines, &beside, round_trip)?;
    }
    let jitter = format!("jitter_ms={}", JITTER.as_millis());
    weather.turns(&[&delay_of(DELAY), &jitter, "loss=0.005", "late=0.01", "late_ms=20"]).await?;
    whole_log().await?;
    copies().await?;
    let after = link_ports_of(EDGE_GATEWAY).await?;
    ensure!(after == before, "links were given up: {before:?}, now {after:?}");
    Ok(())
}

async fn whole_log() -> Result<()> {
    let script = "seq 1 200000 >/proc/1/fd/1; echo the end >/proc/1/fd/1";
    said(&["exec", &pod(ORDINARY), "--", "sh", "-c", script], PATIENCE).await?;
    let began = Instant::now();
    let log = said(&["logs", "--tail=200001", &pod(ORDINARY)], PATIENCE).await?;
    let mut lines = log.lines();
    for number in 1..=200_000 {
        ensure!(lines.next() == Some(&*number.to_string()), "line {number} is another");
    }
    ensure!(lines.next() == Some("the end"), "more than was written");
    println!("log of {} bytes over a losing link in {:.1} s", log.len(), began.elapsed().as_secs_f64());
    Ok(())
}

async fn copies() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("e2e-weather-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (original, returned) = (path("original"), path("returned"));
    let result = async {
        run("dd", &["if=/dev/urandom", &format!("of={original}"), "bs=1M", "count=2"], "").await?.ok()?;
        let there = format!("{}:/tmp-weather", pod(ORDINARY));
        let began = Instant::now();
        said(&["cp", &original, &there], PATIENCE).await?;
        said(&["cp", &there, &returned], PATIENCE).await?;
        println!("2 MiB both ways over a losing link in {:.1} s", began.elapsed().as_secs_f64());
        run("cmp", &[&original, &returned], "").await?.ok()
    };
    let result = result.await;
    std::fs::remove_dir_all(&folder)?;
    result.map(drop)
}

/// Bulk data of a node's pod, which flows until it is stopped, or cut.
pub(super) struct Bulk {
    kubectl: Child,
    passed: Arc<AtomicU64>,
    drained: JoinHandle<std::io::Result<u64>>,
}

impl Bulk {
    /// Once some of it has come.
    pub(super) async fn flows(node: &str) -> Result<Self> {
        const SOME: u64 = 4_000_000;
        let mut kubectl = background(&["exec", &pod(node), "--", "dd", "if=/dev/zero", "bs=65536"])?;
        let mut output = kubectl.stdout.take().context("its output")?;
        let some = async { copy(&mut (&mut output).take(SOME), &mut sink()).await };
        let some = timeout(PATIENCE, some).await.context("no bulk data")??;
        ensure!(some == SOME, "bulk data ended after {some} bytes");
        let passed = Arc::<AtomicU64>::default();
        let count = passed.clone();
        let mut output = InspectReader::new(output, move |piece| {
            count.fetch_add(piece.len() as u64, Ordering::Relaxed);
        });
        let drained = tokio::spawn(async move { copy(&mut output, &mut sink()).await });
        Ok(Self { kubectl, passed, drained })
    }

    /// How much came since it flowed.
    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Stops it.
    pub(super) async fn stopped(self) -> Result<()> {
        drop(self.kubectl);
        self.drained.await??;
        Ok(())
    }

    /// Waits until it was cut, which is an error to kubectl.
    pub(super) async fn breaks(mut self, within: Duration) -> Result<()> {
        let ended = timeout(within, self.kubectl.wait()).await.context("bulk data hangs")??;
        ensure!(!ended.success(), "bulk data that was cut ended with {ended}");
        Ok(())
    }
}

/// Bulk on a thin line: a key waits behind what the line's own queue and the kernel's hold (96 KiB, `TCP_NOTSENT_LOWAT`), and not
/// behind megabytes in a send buffer.
#[tokio::test]
async fn x10_a_key_beside_bulk_on_a_thin_line() -> Result<()> {
    const RATE_KBIT: u32 = 16_000;
    const QUEUE_KB: u32 = 128;
    ground(Reach::Names).await?;
    let held = Held::at_rest().await?;
    let mut ours = Keyboard::open(ORDINARY).await?;
    let mut plain = Keyboard::open(GATEWAYS[1]).await?;
    let weather = Weather::over("a", Duration::from_millis(10)).await?;
    let (rate, queue) = (format!("rate_kbit={RATE_KBIT}"), format!("queue_kb={QUEUE_KB}"));
    weather.turns(&["delay_ms=10", &rate, &queue]).await?;
    let bulk = Bulk::flows(ORDINARY).await?;
    // Twice the queue: what was lost at its end comes once more.
    let queued = f64::from(2 * QUEUE_KB + 96) * 1024.0 * 8.0 / (f64::from(RATE_KBIT) * 1000.0);
    let line = Duration::from_millis(20) + Duration::from_secs_f64(queued);
    // What bulk holds up it holds up in each round; a slow key or two are the machine's.
    let mut slowest = Err(anyhow!("no keys"));
    for _ in 0..3 {
        let (before, began) = (bulk.passed(), Instant::now());
        let (keys, beside) = in_turn(&mut ours, &mut plain, 200).await?;
        let rate = u128::from(bulk.passed() - before) * 8 / began.elapsed().as_millis();
        println!("keys beside {rate} kbit/s of bulk: {keys}; by plain TCP without bulk {beside}");
        ensure!(rate > u128::from(RATE_KBIT) / 2, "no bulk: {rate} kbit/s");
        hardly_slower(&keys, &beside, line)?;
        slowest = slowest_hardly_slower(&keys, &beside, line);
        if slowest.is_ok() {
            break;
        }
    }
    slowest?;
    bulk.stopped().await?;
    drop((ours, plain, weather));
    held.is_all_there_is_but_memory().await
}
