//! What a change of the leader costs those who need it: a node that reports each [`TURN`], a reader that asks the API server for it as often, each time over
//! a connection of its own, and a watcher. A read or an event counts if it shows a later report than all before, so that neither an old
//! answer nor one under way hides a gap.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use e2e::eventually;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::fleet::{self, Reporter, Shared};
use super::link::{self, Kind, Link};
use super::place::Place;
use super::progress::Progress;
use super::watchers::{Way, marked};

/// Between two reports, and between two reads: the resolution of what is measured, with the time that a report and an answer take.
pub(super) const TURN: Duration = Duration::from_millis(40);

/// So long a reader waits for one answer. It asks on meanwhile.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How often is looked whether all flows again, and for how long it is looked at after that: what is lost once more counts, too.
const LOOK: Duration = Duration::from_millis(20);
const SETTLED: Duration = Duration::from_secs(1);

/// Of what is seen, the longest time without anything new.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gaps {
    /// Reads through the API server that show a later report than all before.
    pub(super) reads: Duration,
    /// Events of a watch that do.
    pub(super) reports: Duration,
    /// Answers to reads, whatever they show.
    pub(super) answers: Duration,
    /// How many reads came to an end, and how many of them had no answer, or another than an object, within [`PATIENCE`].
    pub(super) asked: usize,
    pub(super) unanswered: usize,
}

#[derive(Default)]
struct Seen {
    reads: Progress,
    reports: Progress,
    answers: Progress,
    asked: usize,
    unanswered: usize,
}

/// They go on until this is dropped.
pub(super) struct Prober {
    seen: Arc<Mutex<Seen>>,
    began: Instant,
    _tasks: JoinSet<()>,
}

impl Prober {
    /// Begins, and is shown what it reports. `watched` is where it watches, `read` where it reads.
    pub(super) async fn start(
        (shared, number): (&Arc<Shared>, usize),
        place: &watch::Receiver<Place>,
        (watched, read): (&Way, &Way),
    ) -> Result<Self> {
        let (seen, began, mut tasks) = (Arc::<Mutex<Seen>>::default(), Instant::now(), JoinSet::new());
        // Of one pod: what is asked so often is to cost little beside what is measured.
        let reporter = Reporter::new(shared, number, Duration::from_secs(1))?.of_pods(1);
        tasks.spawn(report(Arc::clone(shared), reporter, place.clone()));
        let name = fleet::name(number);
        let (way, to) = (watched.clone(), Arc::clone(&seen));
        let path = format!("{}?watch=1&fieldSelector=metadata.name%3D{name}&timeoutSeconds=3000", way.path);
        tasks.spawn(async move {
            loop {
                // It asks again, and is shown the state first.
                let _ = follow(&way, &path, &to, began).await;
                sleep(LOOK).await;
            }
        });
        let (way, path) = (read.clone(), format!("{}/{name}", read.path));
        tasks.spawn(ask(way, path, Arc::clone(&seen), began));
        let prober = Self { seen, began, _tasks: tasks };
        let now = now_us();
        eventually("what is reported is read and told", Duration::from_mins(1), || async {
            ensure!(prober.is_past(now), "not yet");
            anyhow::Ok(())
        })
        .await?;
        Ok(prober)
    }

    /// From now on gaps are counted anew; returns those until now.
    pub(super) fn begin(&self) -> Gaps {
        let gaps = self.gaps();
        let seen = &mut *self.seen.lock();
        for progress in [&mut seen.reads, &mut seen.reports, &mut seen.answers] {
            progress.begin();
        }
        (seen.asked, seen.unanswered) = (0, 0);
        gaps
    }

    /// Waits until a leader of a later term takes reports, which are read and told, and a moment longer.
    pub(super) async fn over(&self, (shared, number): (&Shared, usize), epoch: u64) -> Gaps {
        while shared.term(number) <= epoch {
            sleep(LOOK).await;
        }
        let now = now_us();
        while !self.is_past(now) {
            sleep(LOOK).await;
        }
        sleep(SETTLED).await;
        self.gaps()
    }

    fn is_past(&self, stamp: i64) -> bool {
        let seen = self.seen.lock();
        seen.reads.is_past(stamp) && seen.reports.is_past(stamp)
    }

    fn gaps(&self) -> Gaps {
        let (now, seen) = (self.began.elapsed(), self.seen.lock());
        Gaps {
            reads: seen.reads.longest(now),
            reports: seen.reports.longest(now),
            answers: seen.answers.longest(now),
            asked: seen.asked,
            unanswered: seen.unanswered,
        }
    }
}

/// Microseconds since 1970, as what is reported is stamped.
fn now_us() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

/// Reports to the leader that the cluster names, and lets go of one that it names no more.
async fn report(shared: Arc<Shared>, mut reporter: Reporter, mut place: watch::Receiver<Place>) {
    let mut link: Option<(String, Link)> = None;
    let mut turn = interval(TURN);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        let now = place.borrow_and_update().clone();
        let Some(server) = now.servers.first().cloned() else { continue };
        link = link.filter(|(to, _)| *to == server);
        let posted = async {
            let mut open = if let Some((_, open)) = link.take() {
                open
            } else {
                let (certificate, key) = reporter.begin();
                let tls = link::config(&now.authorities, certificate, key, Kind::Reporter)?;
                Link::open(&server, &now.name, &tls, Kind::Reporter).await?
            };
            let elsewhere = reporter.post(&shared, &mut open).await?;
            ensure!(elsewhere.is_none(), "{server} does not lead");
            anyhow::Ok(open)
        };
        let posted = tokio::select! {
            posted = posted => posted,
            () = fleet::other(&mut place, &server) => continue,
        };
        link = posted.ok().map(|open| (server, open));
    }
}

/// One watch, to its end.
async fn follow(way: &Way, path: &str, seen: &Mutex<Seen>, began: Instant) -> Result<()> {
    way.each_event(path, "application/json", |event| {
        if let Some(stamp) = marked(event) {
            seen.lock().reports.saw(began.elapsed(), stamp);
        }
        Ok(())
    })
    .await
}

/// Asks on, whatever becomes of what was asked before.
async fn ask(way: Way, path: String, seen: Arc<Mutex<Seen>>, began: Instant) {
    let mut turn = interval(TURN);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = JoinSet::new();
    loop {
        turn.tick().await;
        while asked.try_join_next().is_some() {}
        let (way, path, seen) = (way.clone(), path.clone(), Arc::clone(&seen));
        asked.spawn(async move {
            let number = now_us();
            let answer = timeout(PATIENCE, read(&way, &path)).await;
            let mut seen = seen.lock();
            let now = began.elapsed();
            seen.asked += 1;
            match answer {
                Ok(Ok(stamp)) => {
                    // Answers may pass one another: the one that was asked last is the latest.
                    seen.answers.saw(now, number);
                    seen.reads.saw(now, stamp);
                }
                Ok(Err(_)) | Err(_) => seen.unanswered += 1,
            }
        });
    }
}

/// Reads the object, over a connection of its own; returns when what it shows was sampled.
async fn read(way: &Way, path: &str) -> Result<i64> {
    let mut link = Link::open(&way.server, &way.name, &way.tls, Kind::Reader).await?;
    let request = http::Request::get("/").header(http::header::ACCEPT, "application/json");
    let response = link.send(request, path, Bytes::new()).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(status == 200, "{status}");
    marked(&body).context("no report yet")
}
