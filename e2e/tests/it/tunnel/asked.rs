//! Requests while something breaks. Each opens a connection of its own to a kubelet: by those that the API server keeps nothing would
//! be seen of who takes new ones.

// Each that fails is told with its error.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use e2e::ground::{GATEWAYS, exec};
use e2e::keyboard::Waits;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep_until};

/// How long a request may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node that is reached without a tunnel.
const PLAIN: &str = GATEWAYS[1];

/// What came of requests.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) requests: usize,
    pub(super) failed: usize,
    pub(super) waits: Waits,
    // For a node that is reached without a tunnel, in turn with them, if that was wanted.
    pub(super) plain: Waits,
    // When the last that failed began.
    pub(super) last_failed: Option<Duration>,
}

/// Asks all of the nodes again and again, until so long after `began`; `beside` them one that is reached by plain TCP, which by an
/// `EgressSelector` none is.
pub(super) async fn ask_until(
    period: Duration,
    began: Instant,
    nodes: &[&str],
    beside: bool,
) -> Result<Asked> {
    let mut all = Asked::default();
    while began.elapsed() < period {
        for node in nodes {
            all.requests += 1;
            let at = began.elapsed();
            if let Err(error) = exec(node, PATIENCE).await {
                println!("failed, begun at {:.1} s: {error:#}", at.as_secs_f64());
                all.failed += 1;
                all.last_failed = Some(at);
            } else {
                all.waits.add(began.elapsed().saturating_sub(at));
            }
        }
        if beside {
            all.plain.add(plain().await?);
        }
    }
    Ok(all)
}

/// What a request takes without a tunnel.
pub(super) async fn plain() -> Result<Duration> {
    let began = Instant::now();
    exec(PLAIN, Duration::from_secs(30)).await?;
    Ok(began.elapsed())
}

/// Asks a node until it answers; how long after `began` that was. A request is made each half second, beside those that hang: what
/// hangs says nothing of new ones.
pub(super) async fn reached(node: &'static str, began: Instant, within: Duration) -> Result<Duration> {
    let (mut requests, mut again) = (JoinSet::new(), interval(Duration::from_millis(500)));
    let (deadline, mut last) = (tokio::time::Instant::from_std(began + within), None);
    loop {
        tokio::select! {
            _ = again.tick() => drop(requests.spawn(exec(node, Duration::from_secs(4)))),
            Some(answer) = requests.join_next() => match answer? {
                Ok(()) => return Ok(began.elapsed()),
                Err(error) => last = Some(error),
            },
            () = sleep_until(deadline) => break,
        }
    }
    match last {
        Some(error) => Err(error).with_context(|| format!("{node} is not reached within {within:?}")),
        None => bail!("no answer from {node} within {within:?}"),
    }
}
