//! What is held through a fault: sessions, which end with an error or go on, and what the hubs hold of the system, which is afterwards
//! as much as it was before.

// What the hubs hold is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::ground::{EDGE_GATEWAY, GATEWAYS, ORDINARY, TWIN};
use e2e::keyboard::Keyboard;
use e2e::{eventually, hack_cluster};
use futures::future::try_join_all;
use tokio::task::JoinSet;

/// How soon a session of before knows that it was cut.
const CUT: Duration = Duration::from_secs(20);

/// How soon all is as it was: what a client gave up is closed at once, links are made anew after half a minute at the latest, and the API
/// server keeps a connection to a kubelet, which is a stream, for a minute and a half after its last request.
const BACK: Duration = Duration::from_secs(100);

/// How soon hubs are at rest, whatever was before: longer than a connection may stay that nobody uses.
const REST: Duration = Duration::from_mins(3);

/// How far apart two readings are of hubs at rest.
const PAUSE: Duration = Duration::from_secs(10);

/// File handles beside those of links, which come and go: checks of the balancer, links that are dialled, requests of the node's kubelet.
const HANDLES: u64 = 8;

/// Threads: those that block for the runtime take turns, so that what is read each second keeps as many as were once needed at a time.
const THREADS: u64 = 8;

/// Tasks beside those of connections that come and go, as handles do, and of what is asked now: the figures are asked for by one. Fewer
/// than [`SESSIONS`].
const TASKS: u64 = 8;

/// KiB of memory that is its own: what the allocator keeps. How much of its binary was read is not looked at.
const RESIDENT: u64 = 4 << 10;

/// Sessions that are held through a fault: more than [`HANDLES`] and [`TASKS`], so that it is seen if each leaves one behind.
const SESSIONS: usize = 10;

/// What a hub's process holds: handles that are not of links, as many of which there are as are wanted. Each open stream is a task.
#[derive(Debug, Clone, Copy)]
struct Holding {
    handles: u64,
    threads: u64,
    tasks: u64,
    resident_kib: u64,
    streams: u64,
}

impl Holding {
    async fn of(node: &str) -> Result<Self> {
        let script = "set -e
pid=$(ss -Hltnp 'sport = :10267' | sed 's/.*pid=//; s/,.*//')
metrics=$(curl -sfm5 http://127.0.0.1:10267/metrics)
links=$(awk '/^isthmus_hub_tunnel_links\\{/ { links += $2 } END { print links }' <<<\"$metrics\")
echo $(($(ls /proc/$pid/fd | wc -l) - links))
ls /proc/$pid/task | wc -l
awk '/^isthmus_hub_tasks / { print $2 }' <<<\"$metrics\"
awk '/^RssAnon:/ { print $2 }' /proc/$pid/status
awk '/^isthmus_hub_tunnel_open_streams / { print $2 }' <<<\"$metrics\"";
        let found = hack_cluster(&["exec", node, "--", "bash", "-c", script]).await?.ok()?;
        let figures: Result<Vec<u64>, _> = found.split_whitespace().map(str::parse).collect();
        let [handles, threads, tasks, resident_kib, streams] = figures?[..] else {
            anyhow::bail!("the hub of {node} holds {found:?}");
        };
        Ok(Self { handles, threads, tasks, resident_kib, streams })
    }

    /// Whether it is as `other`, but for what comes and goes: nothing of before is on its way out, which would pass for what a fault left.
    fn is_at_rest_since(&self, other: &Self) -> bool {
        self.handles.abs_diff(other.handles) <= HANDLES / 2
            && self.tasks.abs_diff(other.tasks) <= TASKS / 2
            && self.streams == other.streams
    }

    /// Whether it is no more than `before`, but for what comes and goes, and for memory where that is not wanted.
    fn is_as_before(&self, before: &Self, with_memory: bool) -> bool {
        self.handles <= before.handles + HANDLES
            && self.threads <= before.threads + THREADS
            && self.tasks <= before.tasks + TASKS
            && (!with_memory || self.resident_kib <= before.resident_kib + RESIDENT)
            && self.streams <= before.streams
    }
}

/// What the hubs that a fault concerns hold at rest.
#[derive(Debug)]
pub(super) struct Held(Vec<(&'static str, Holding)>);

impl Held {
    /// Once they are at rest: a hub that was started a moment ago, or lost links in the test before, has not all that it will have.
    pub(super) async fn at_rest() -> Result<Self> {
        let began = Instant::now();
        let mut last = Self::now().await?;
        loop {
            tokio::time::sleep(PAUSE).await;
            let now = Self::now().await?;
            let mut both = now.0.iter().zip(&last.0);
            if both.all(|((_, now), (_, last))| now.is_at_rest_since(last)) {
                return Ok(now);
            }
            ensure!(began.elapsed() <= REST, "the hubs do not come to rest: {last:?}, {now:?}");
            last = now;
        }
    }

    async fn now() -> Result<Self> {
        let nodes = GATEWAYS.into_iter().chain([EDGE_GATEWAY, ORDINARY, TWIN]);
        let holdings = nodes.map(|node| async move {
            let holding = Holding::of(node).await.with_context(|| format!("the hub of {node}"))?;
            anyhow::Ok((node, holding))
        });
        try_join_all(holdings).await.map(Self)
    }

    /// Waits until no hub holds more, though it may be another process now.
    pub(super) async fn is_all_there_is(&self) -> Result<()> {
        self.comes_back(true).await
    }

    /// The same of all but memory: what much data needed on its way the allocator keeps (docs/performance.md).
    pub(super) async fn is_all_there_is_but_memory(&self) -> Result<()> {
        self.comes_back(false).await
    }

    async fn comes_back(&self, with_memory: bool) -> Result<()> {
        let began = Instant::now();
        let nodes = self.0.iter().map(|(node, before)| async move {
            let now = eventually("nothing is left behind", BACK, || async {
                let now = Holding::of(node).await?;
                let is_as_before = now.is_as_before(before, with_memory);
                ensure!(is_as_before, "{node} holds {now:?}, before the fault {before:?}");
                Ok(now)
            })
            .await?;
            println!(
                "{node}: handles {} -> {}, threads {} -> {}, tasks {} -> {}, resident {} -> {} KiB, streams {} -> {}",
                before.handles,
                now.handles,
                before.threads,
                now.threads,
                before.tasks,
                now.tasks,
                before.resident_kib,
                now.resident_kib,
                before.streams,
                now.streams,
            );
            anyhow::Ok(())
        });
        try_join_all(nodes).await?;
        println!("all is as it was after {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Sessions on a node: the balancer gives each gateway some of them.
pub(super) async fn sessions(node: &'static str) -> Result<Vec<Keyboard>> {
    let mut opening = JoinSet::new();
    for _ in 0..SESSIONS {
        opening.spawn(Keyboard::open(node));
    }
    opening.join_all().await.into_iter().collect()
}

/// Each of them takes a key, and shows it.
pub(super) async fn press_all(sessions: &mut [Keyboard]) -> Result<()> {
    for session in sessions {
        session.press().await.context("a session of before")?;
    }
    Ok(())
}

/// Sessions of before a fault at `began`: each goes on, or has ended with an error in time. How many went on, and how many ended.
pub(super) async fn fates(sessions: Vec<Keyboard>, began: Instant) -> Result<(usize, usize)> {
    let (mut alive, mut ended) = (0, 0);
    for mut session in sessions {
        let left = CUT.saturating_sub(began.elapsed());
        if matches!(tokio::time::timeout(left, session.press()).await, Ok(Ok(_))) {
            alive += 1;
        } else {
            session.breaks(CUT.saturating_sub(began.elapsed())).await?;
            ended += 1;
        }
    }
    Ok((alive, ended))
}
