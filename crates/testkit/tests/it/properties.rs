//! The fake server and the client of it keep every guarantee, whatever is written and whatever breaks.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::json;
use testkit::api_server::{Cluster, FakeApiServer, ServerOptions};
use testkit::client::connection::Endpoint;
use testkit::client::{ClientOptions, Recorder, TestClient};
use testkit::history::{check, check_converged};

use crate::support::{CONFIGMAPS, SOON, config_map};

#[derive(Debug, Clone)]
enum Step {
    Write(u8, u64),
    Delete(u8),
    Compact(u64),
    Restore(u64),
    Cut,
    Heal,
    Reset,
    BreakOff(u64),
    Fail(u16),
    Lag,
    CatchUp,
    Bookmarks,
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_u8, any::<u64>()).prop_map(|(name, n)| Step::Write(name, n % 1000)),
        3 => (0..6_u8).prop_map(Step::Delete),
        1 => (0..4_u64).prop_map(Step::Compact),
        1 => (0..6_u64).prop_map(Step::Restore),
        1 => Just(Step::Cut),
        2 => Just(Step::Heal),
        2 => Just(Step::Reset),
        2 => (0..800_u64).prop_map(Step::BreakOff),
        2 => prop_oneof![Just(429), Just(500), Just(503)].prop_map(Step::Fail),
        1 => Just(Step::Lag),
        1 => Just(Step::CatchUp),
        2 => Just(Step::Bookmarks),
        4 => Just(Step::Wait),
    ]
}

struct World {
    server: FakeApiServer,
    recorder: Recorder,
    clients: Vec<TestClient>,
    generation: usize,
}

impl World {
    async fn new() -> Self {
        let options = ServerOptions { fresh_timeout: Duration::from_millis(20), ..ServerOptions::default() };
        let server = FakeApiServer::serve(Cluster::default(), options).await.unwrap();
        let mut world = Self { server, recorder: Recorder::default(), clients: Vec::new(), generation: 0 };
        world.restart_clients();
        world
    }

    /// New clients know nothing: what an operator does after a restore.
    fn restart_clients(&mut self) {
        self.generation += 1;
        let variants = [
            ("plain", "", None, false),
            ("paged", "", Some(2), false),
            ("odd", "n=odd", None, false),
            ("streaming", "n=even", None, true),
        ];
        self.clients = variants
            .into_iter()
            .map(|(name, labels, page_size, watch_list)| {
                let mut options = ClientOptions::new(&format!("{name} {}", self.generation), CONFIGMAPS);
                labels.clone_into(&mut options.labels);
                options.page_size = page_size;
                options.watch_list = watch_list;
                options.backoff = Duration::from_millis(1);
                TestClient::start(Endpoint::plain(self.server.address()), options, &self.recorder).unwrap()
            })
            .collect();
    }

    async fn step(&mut self, step: &Step) {
        let cluster = self.server.cluster();
        match *step {
            Step::Write(name, n) => {
                let object = config_map("a", &format!("o-{name}"), n);
                if cluster.update("configmaps", &object).is_err() {
                    cluster.create("configmaps", object).unwrap();
                }
            }
            Step::Delete(name) => _ = cluster.delete("configmaps", &format!("a/o-{name}")),
            Step::Compact(back) => self.server.compact(cluster.revision().saturating_sub(back)),
            Step::Restore(back) => {
                let rv = cluster.revision().saturating_sub(back).max(1);
                self.server.lag(None);
                for client in std::mem::take(&mut self.clients) {
                    client.stop().await;
                }
                self.server.restore(rv);
                self.restart_clients();
            }
            Step::Cut => self.server.cut(),
            Step::Heal => self.server.heal(),
            Step::Reset => self.server.reset_connections(),
            Step::BreakOff(bytes) => self.server.cut_after_bytes(bytes),
            Step::Fail(status) => self.server.fail_next(status),
            Step::Lag => self.server.lag(Some(cluster.revision())),
            Step::CatchUp => self.server.lag(None),
            Step::Bookmarks => self.server.send_bookmarks(),
            Step::Wait => tokio::time::sleep(Duration::from_millis(3)).await,
        }
    }

    /// Leaves the cluster alone until every client has what it has.
    async fn settle(&mut self) {
        self.server.heal();
        self.server.lag(None);
        let last = config_map("a", "last", 0);
        self.server.cluster().create("configmaps", last).unwrap();
        self.server
            .cluster()
            .merge_patch("configmaps", "a/last", &json!({"metadata": {"labels": {"n": "odd"}}}))
            .unwrap();
        let revision = self.server.cluster().revision();
        // The last write concerns each of them, so each is shown its version.
        let deadline = tokio::time::Instant::now() + SOON;
        for client in &self.clients {
            while client.progress().resource_version.parse() != Ok(revision) {
                assert!(
                    tokio::time::Instant::now() < deadline,
                    "{:?} {:?}",
                    client.progress(),
                    client.state().keys()
                );
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        // What came is recorded before it is in the state; what should not come has this long to.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn run(steps: &[Step]) {
    let mut world = World::new().await;
    for step in steps {
        world.step(step).await;
    }
    world.settle().await;
    let current = format!(" {}", world.generation);
    world.recorder.mark_quiescent(|client| client.ends_with(&current));
    let model = world.server.cluster().history("configmaps");
    let sessions = world.recorder.sessions();
    if let Err(violation) = check(&model, &sessions) {
        panic!("{violation}\n{:#?}", sessions[violation.session]);
    }
    for client in &world.clients {
        check_converged(&model, client.scope(), &client.state()).unwrap();
    }
}

proptest! {
    #![proptest_config(Config { cases: 40, ..Config::default() })]

    #[test]
    fn every_guarantee_holds(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(&steps));
    }
}
