//! Requests while something breaks. Each opens a connection of its own to a kubelet: by those that the API server keeps nothing would
//! be seen of who takes new ones. None waits for another: one that hangs would keep those away that show for how long.

// Each that fails is told with its error.
#![allow(clippy::print_stdout)]

use std::fmt::{Display, Formatter};
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use e2e::ground::{GATEWAYS, exec, required};
use e2e::hack_cluster;
use e2e::keyboard::Waits;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep_until};

use super::identity::words_to_kubelet;

/// How long a request may take before it counts as failed: it hangs.
fn patience() -> Duration {
    required(Duration::from_secs(5))
}

/// From one request to the next: each is a kubectl of its own, or curl.
fn pace() -> Duration {
    required(Duration::from_millis(250))
}

/// A node that is reached without a tunnel.
const PLAIN: &str = GATEWAYS[1];

/// What came of requests.
#[derive(Debug, Default)]
pub(super) struct Asked {
    requests: Vec<Request>,
    // For a node that is reached without a tunnel, in turn with them, if that was wanted.
    pub(super) plain: Waits,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    begun: Duration,
    took: Duration,
    answered: bool,
}

impl Asked {
    /// How many of those that were begun at `since` or later failed.
    pub(super) fn failed(&self, since: Duration) -> usize {
        self.requests.iter().filter(|request| !request.answered && request.begun >= since).count()
    }

    /// Whether one was answered that was begun in that time.
    pub(super) fn answered(&self, begun: Range<Duration>) -> bool {
        self.requests.iter().any(|request| request.answered && begun.contains(&request.begun))
    }

    /// How long they took, those that failed as well: by leaving them out what hangs would look fast.
    pub(super) fn waits(&self) -> Waits {
        let mut waits = Waits::default();
        self.requests.iter().for_each(|request| waits.add(request.took));
        waits
    }
}

impl Display for Asked {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} requests failed", self.failed(Duration::ZERO), self.requests.len())?;
        if let Some(last) = self.requests.iter().rfind(|request| !request.answered) {
            write!(f, ", the last begun after {:.1?}", last.begun)?;
        }
        write!(f, "; {}", self.waits())
    }
}

/// Asks the nodes in turn, until so long after `began`, and waits for all answers; in turn with them one that is reached by plain TCP,
/// which by an `EgressSelector` none is.
pub(super) async fn ask_until(
    period: Duration,
    began: Instant,
    nodes: &[&'static str],
    beside: bool,
) -> Result<Asked> {
    let (mut asking, mut plainly, mut next) = (JoinSet::new(), JoinSet::new(), interval(pace()));
    let turns = nodes.iter().copied().map(Some).chain(beside.then_some(None)).cycle();
    for turn in turns {
        next.tick().await;
        if began.elapsed() >= period {
            break;
        }
        match turn {
            Some(node) => drop(asking.spawn(ask(node, began))),
            None => drop(plainly.spawn(plain())),
        }
    }
    let mut asked = Asked { requests: asking.join_all().await, plain: Waits::default() };
    asked.requests.sort_by_key(|request| request.begun);
    for took in plainly.join_all().await {
        asked.plain.add(took?);
    }
    Ok(asked)
}

async fn ask(node: &'static str, start: Instant) -> Request {
    let begun = start.elapsed();
    let answer = exec(node, patience()).await;
    let took = start.elapsed().saturating_sub(begun);
    if let Err(error) = &answer {
        println!("failed, begun after {begun:.1?}, in {took:.1?}: {error:#}");
    }
    Request { begun, took, answered: answer.is_ok() }
}

/// Asks the kubelet of a node by the internal Service's own address from a cloud node, where kube-proxy chooses among the gateways, until
/// so long after `began`. Nobody shows credentials, so what counts as an answer is the kubelet's own refusal.
pub(super) async fn ask_by_service(period: Duration, began: Instant, node: &str) -> Result<Asked> {
    let (requests, pace) = (period.as_millis() / pace().as_millis(), pace().as_secs_f64());
    let words = words_to_kubelet(node).await?;
    let script = format!(
        "for ((i = 0; i < {requests}; i++)); do
           (begun=$EPOCHREALTIME; said=$(\"$@\" -m {} -o /dev/null -w '%{{http_code}}'); echo $begun $EPOCHREALTIME $said) &
           sleep {pace}
         done
         wait",
        patience().as_secs()
    );
    let ask = ["exec", PLAIN, "--", "bash", "-c", &script, "ask"];
    let words = ask.into_iter().chain(words.iter().map(String::as_str));
    let said = hack_cluster(&words.collect::<Vec<_>>()).await?.ok()?;
    let start = SystemTime::now().duration_since(UNIX_EPOCH)?.saturating_sub(began.elapsed());
    let mut asked = Asked::default();
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [from, to, status] = words[..] else { bail!("{line:?}") };
        let [from, to] = [from, to].map(|time| time.parse().map(Duration::from_secs_f64));
        let (from, to) = (from?, to?);
        let request = Request {
            begun: from.saturating_sub(start),
            took: to.saturating_sub(from),
            answered: status == "401",
        };
        if !request.answered {
            println!("failed by the Service: {status}, {request:.1?}");
        }
        asked.requests.push(request);
    }
    ensure!(!asked.requests.is_empty(), "nothing was asked");
    Ok(asked)
}

/// Runs `hack/cluster` beside requests. How long after `began` the command had ended, and with that what it brings about had begun.
pub(super) async fn done(began: Instant, words: &[&str]) -> Result<Duration> {
    hack_cluster(words).await?.ok()?;
    Ok(began.elapsed())
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
