//! Random histories through the hub: whatever is written and whatever breaks, clients see what the API guarantees.

use std::time::Duration;

use proptest::{prelude::*, test_runner::Config};
use serde_json::{Value, json};
use testkit::{
    client::{Recorder, TestClient},
    history::{End, check, check_converged},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::history_clients::{self, Reader};
use super::site::{SERVICES, SOON, Site, WIDGETS, get, service, widget, widget_kind};

const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// A case takes a second or two, so there are few unless more are asked for: of what `PROPTEST_CASES` says, this part.
const SHARE: u32 = 128;

#[derive(Debug, Clone)]
enum Step {
    Write(u8, u64),
    Delete(u8),
    Compact(u64),
    Restore(u64),
    Cut,
    Heal,
    Reset,
    BlackHole,
    BreakOff(u64),
    Fail(u16),
    Lag,
    CatchUp,
    Bookmarks,
    Redefine,
    Kill,
    SlowReader,
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (0..8_u8, any::<u64>()).prop_map(|(name, n)| Step::Write(name, n % 1000)),
        6 => (0..8_u8).prop_map(Step::Delete),
        1 => (0..4_u64).prop_map(Step::Compact),
        1 => (1..6_u64).prop_map(Step::Restore),
        2 => Just(Step::Cut),
        4 => Just(Step::Heal),
        3 => Just(Step::Reset),
        1 => Just(Step::BlackHole),
        2 => (0..800_u64).prop_map(Step::BreakOff),
        2 => prop_oneof![Just(429), Just(500), Just(503)].prop_map(Step::Fail),
        1 => Just(Step::Lag),
        2 => Just(Step::CatchUp),
        2 => Just(Step::Bookmarks),
        1 => Just(Step::Redefine),
        2 => Just(Step::Kill),
        1 => Just(Step::SlowReader),
        6 => (1..60_u8).prop_map(Step::Wait),
    ]
}

struct World {
    site: Site,
    recorder: Recorder,
    clients: Vec<(&'static str, TestClient)>,
    slow: JoinSet<()>,
    generation: usize,
}

impl World {
    async fn new() -> Self {
        let site = Site::started().await;
        let mut world = Self {
            site,
            recorder: Recorder::default(),
            clients: Vec::new(),
            slow: JoinSet::new(),
            generation: 0,
        };
        world.restart_clients();
        world
    }

    fn restart_clients(&mut self) {
        self.generation += 1;
        let backoff = Duration::from_millis(5);
        self.clients =
            history_clients::start(|| self.site.plain(), self.generation, backoff, &self.recorder, None);
    }

    fn write(&self, name: u8, n: u64) {
        let cluster = self.site.server.cluster();
        let (id, object) = match name % 4 {
            0 => ("widgets.example.com", widget(&format!("o-{name}"), n)),
            1 => ("services", history_clients::written("b", &format!("o-{name}"), n)),
            _ => ("services", history_clients::written("a", &format!("o-{name}"), n)),
        };
        if cluster.update(id, &object).is_err() {
            // The definition may have gone.
            let _ = cluster.create(id, object);
        }
    }

    fn delete(&self, name: u8) {
        let (id, namespace) = match name % 4 {
            0 => ("widgets.example.com", "a"),
            1 => ("services", "b"),
            _ => ("services", "a"),
        };
        // It may not be there.
        let _ = self.site.server.cluster().delete(id, &format!("{namespace}/o-{name}"));
    }

    /// Going back is told to clients whose connections stay. One that comes back with a version of the time that was undone, and
    /// to which the server has come again, cannot be told, by an API server neither: so these begin anew.
    async fn restore(&mut self, back: u64) {
        self.site.server.heal();
        self.site.server.lag(None);
        for (_, client) in std::mem::take(&mut self.clients) {
            client.stop().await;
        }
        self.slow.shutdown().await;
        let ours = self.site.server.cluster().revision();
        self.site.server.restore(ours.saturating_sub(back).max(2));
        self.noticed().await;
        self.restart_clients();
    }

    /// Waits until the hub lists what the server has, at a version that the server has.
    async fn noticed(&self) {
        let hub = self.site.plain();
        let direct = self.site.direct();
        for path in [SERVICES, WIDGETS] {
            let path = format!("{path}?resourceVersion=0");
            self.site
                .until("the restore is noticed", async || {
                    let (Some((status, ours)), Some((_, theirs))) =
                        (get(&hub, &path).await, get(&direct, &path).await)
                    else {
                        return false;
                    };
                    let version = |list: &Value| {
                        list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok())
                    };
                    status == 404 || (ours["items"] == theirs["items"] && version(&ours) <= version(&theirs))
                })
                .await;
        }
    }

    /// A watch that is read a line in a while.
    fn slow_reader(&mut self) {
        let (hub, recorder) = (self.site.plain(), self.recorder.clone());
        let name = format!("slow {} {}", self.generation, self.slow.len());
        self.slow.spawn(async move {
            let Some(mut reader) = Reader::open(&hub, &recorder, &name).await else { return };
            while let Some(event) = reader.lines.next().await {
                if !reader.note(&event) {
                    break;
                }
                sleep(Duration::from_millis(30)).await;
            }
            reader.end(End::Broken);
        });
    }

    async fn step(&mut self, step: &Step) {
        let server = &self.site.server;
        let cluster = server.cluster();
        match *step {
            Step::Write(name, n) => self.write(name, n),
            Step::Delete(name) => self.delete(name),
            Step::Compact(back) => server.compact(cluster.revision().saturating_sub(back)),
            Step::Restore(back) => self.restore(back).await,
            Step::Cut => server.cut(),
            Step::Heal => server.heal(),
            Step::Reset => server.reset_connections(),
            Step::BlackHole => server.black_hole(),
            Step::BreakOff(bytes) => server.cut_after_bytes(bytes),
            Step::Fail(status) => server.fail_next(status),
            Step::Lag => server.lag(Some(cluster.revision())),
            Step::CatchUp => server.lag(None),
            Step::Bookmarks => server.send_bookmarks(),
            Step::Redefine => {
                if cluster.delete(CRDS, "widgets.example.com").is_ok() {
                    sleep(Duration::from_millis(20)).await;
                }
                cluster.create(CRDS, widget_kind().crd()).unwrap();
            }
            Step::Kill => {
                self.site.kill();
                self.site.start();
            }
            Step::SlowReader => self.slow_reader(),
            Step::Wait(milliseconds) => sleep(Duration::from_millis(milliseconds.into())).await,
        }
    }

    /// Leaves the cluster alone until every client has what it has.
    async fn settle(&mut self) {
        self.site.server.heal();
        self.site.server.lag(None);
        let cluster = self.site.server.cluster();
        let deadline = Instant::now() + SOON * 2;
        for (id, last) in [("services", service("a", "last", 0)), ("widgets.example.com", widget("last", 0))]
        {
            cluster.create(id, last).unwrap();
            cluster.merge_patch(id, "a/last", &json!({ "metadata": { "labels": { "n": "odd" } } })).unwrap();
        }
        for (id, client) in &self.clients {
            loop {
                let converged = check_converged(&cluster.history(id), client.scope(), &client.state());
                if client.progress().synced && converged.is_ok() {
                    break;
                }
                let progress = client.progress();
                assert!(
                    Instant::now() < deadline,
                    "{id} {progress:?} {converged:?}\n{}",
                    self.site.last_log()
                );
                sleep(Duration::from_millis(5)).await;
            }
        }
        // What came is recorded before it is in the state; what should not come has this long to.
        sleep(Duration::from_millis(50)).await;
    }
}

async fn run(steps: &[Step]) {
    let mut world = World::new().await;
    for step in steps {
        world.step(step).await;
    }
    world.settle().await;
    world.slow.shutdown().await;
    let sessions = world.recorder.sessions();
    let cluster = world.site.server.cluster();
    for id in ["services", "widgets.example.com"] {
        let resource = id.split('.').next().unwrap();
        let of: Vec<_> = sessions.iter().filter(|session| session.resource == resource).cloned().collect();
        if let Err(violation) = check(&cluster.history(id), &of) {
            let at = violation.session;
            panic!("{violation}\n{:#?}\n{}", &of[at.saturating_sub(1)..=at], world.site.last_log());
        }
    }
    for (id, client) in &world.clients {
        check_converged(&cluster.history(id), client.scope(), &client.state()).unwrap();
    }
}

fn cases() -> u32 {
    (Config::default().cases / SHARE).max(1) * 3
}

proptest! {
    #![proptest_config(Config { cases: cases(), max_shrink_iters: 20, ..Config::default() })]

    #[test]
    fn every_guarantee_holds(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(&steps));
    }
}
