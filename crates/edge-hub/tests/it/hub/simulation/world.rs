//! A cluster, a hub and its clients, and what steps do to them.

use std::{thread, time::Duration};

use serde_json::json;
use tempfile::TempDir;
use testkit::{
    api_server::{Cluster, FakeApiServer},
    client::{Recorder, TestClient, connection::Endpoint},
    history::{check, check_converged, check_isolated},
    memory::Port,
};
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep},
};

use super::{
    super::history_clients::{self, AWAY_OF_ANOTHER, AWAY_OF_THE_NODE, WIDGET_ID},
    super::site::{service, widget, widget_kind},
    parts::{Hub, Servers, folder},
    readers,
    reasons::{self, Gathered},
    recent::{BOUND, Recent},
    rights::{RESOURCES, Rights, TOKEN, plural},
    step::{Fault, Repair, Step},
    torn::{Torn, tear},
};

pub(super) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// How long, by the clock that stands still, anything may take that is to happen: longer than any pause of hub and clients.
pub(super) const SOON: Duration = Duration::from_mins(3);

/// How often it is looked whether it has.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// The first pause of clients after an error.
const BACKOFF: Duration = Duration::from_millis(50);

/// Longer than a change waits to be told with the next.
const TOLD: Duration = Duration::from_millis(4);

/// What should not come has so long to.
const LATE: Duration = Duration::from_secs(2);

/// How many sessions of a client are shown before the one that is wrong.
const EARLIER: usize = 3;

/// Everything there is.
pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) servers: Servers,
    pub(super) root: TempDir,
    pub(super) port: Port,
    pub(super) hub: Option<Hub>,
    pub(super) recorder: Recorder,
    pub(super) clients: Vec<(&'static str, TestClient)>,
    /// Those of the second identity, and those that come and go.
    others: Vec<(&'static str, TestClient)>,
    rights: Rights,
    /// Why clients may be told that what they were shown has expired.
    pub(super) gathered: Gathered,
    pub(super) recent: Recent,
    /// Which servers can be reached.
    pub(super) reachable: [bool; 2],
    readers: JoinSet<()>,
    ending: watch::Sender<bool>,
    /// Something is done to anything of this.
    happens: watch::Sender<()>,
    /// How often clients began anew.
    generation: usize,
    /// How often something was written through the hub.
    pub(super) written: usize,
}

impl World {
    pub(super) async fn new() -> Self {
        let cluster = Cluster::default();
        cluster.create(CRDS, widget_kind().crd()).unwrap();
        let rights = Rights::new(&cluster);
        let (servers, root, port) = (Servers::start(&cluster), folder(), Port::default());
        let hub = Some(Hub::start(root.path(), &servers, &port).await);
        let mut world = Self {
            cluster,
            servers,
            root,
            port,
            hub,
            recorder: Recorder::default(),
            clients: Vec::new(),
            others: Vec::new(),
            rights,
            gathered: Gathered::new(),
            recent: Recent::default(),
            reachable: [true; 2],
            readers: JoinSet::new(),
            ending: watch::channel(false).0,
            happens: watch::channel(()).0,
            generation: 0,
            written: 0,
        };
        world.restart_clients();
        world
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint::within(self.port.clone())
    }

    pub(super) fn server(&self, number: usize) -> &FakeApiServer {
        &self.servers.all[number]
    }

    pub(super) fn restart_clients(&mut self) {
        self.generation += 1;
        let generation = self.generation;
        let happens = Some(&self.happens.subscribe());
        self.clients =
            history_clients::start(|| self.endpoint(), generation, BACKOFF, &self.recorder, happens);
        self.start_others();
    }

    pub(super) fn start_others(&mut self) {
        let (generation, recorder) = (self.generation, self.recorder.of_user(TOKEN));
        let happens = Some(&self.happens.subscribe());
        let another = || self.endpoint().with_token(TOKEN);
        let mut others = history_clients::start_of_another(another, generation, BACKOFF, &recorder, happens);
        others.extend(history_clients::start_away(
            &AWAY_OF_ANOTHER,
            another,
            generation,
            BACKOFF,
            &recorder,
            happens,
        ));
        let of_node = || self.endpoint();
        let recorder = &self.recorder;
        others.extend(history_clients::start_away(
            &AWAY_OF_THE_NODE,
            of_node,
            generation,
            BACKOFF,
            recorder,
            None,
        ));
        self.others = others;
    }

    /// Who asks for nothing is not reviewed: of the second identity the hub learns no more until its clients are back.
    pub(super) async fn stop_others(&mut self) {
        for (_, client) in std::mem::take(&mut self.others) {
            client.stop().await;
        }
        self.rights.disturb(false);
    }

    pub(super) async fn stop_clients(&mut self) {
        for (_, client) in std::mem::take(&mut self.clients) {
            client.stop().await;
        }
    }

    fn reader(&mut self, stalls: bool) {
        let name = format!("reader {} {}", self.generation, self.readers.len());
        let ending = self.ending.subscribe();
        self.readers.spawn(readers::read(self.endpoint(), self.recorder.clone(), name, stalls, ending));
    }

    pub(super) fn mend_all(&mut self) {
        for server in &self.servers.all {
            server.heal();
            server.lag(None);
        }
        for server in [0, 1] {
            self.gathered.lags(server, false);
        }
        self.define();
        self.reachable = [true; 2];
        self.disturb();
    }

    /// Something was done to the hub or its link: what it does not know yet it can ask from now on, or not.
    pub(super) fn disturb(&mut self) {
        self.rights.disturb(self.reachable.contains(&true));
    }

    fn unreachable(&mut self, server: usize) {
        self.reachable[server] = false;
        self.disturb();
    }

    pub(super) async fn step(&mut self, step: &Step) {
        let (is_wait, began) = (matches!(step, Step::Wait(_)), Instant::now());
        if !is_wait {
            self.happens.send_replace(());
        }
        match step {
            Step::Write(name, n) => self.write(*name, *n),
            Step::WriteThrough(name, n) => self.write_through(*name, *n).await,
            Step::Burst(name, times) => (0..u64::from(*times)).for_each(|n| self.write(*name, n)),
            Step::Delete(name) => self.delete(*name),
            Step::Wait(pause) => sleep(*pause).await,
            Step::Break(fault) => self.break_(fault).await,
            Step::Mend(repair) => self.mend(repair),
        }
        if !is_wait {
            self.happens.send_replace(());
        }
        self.acknowledge();
        // Before that the most recent state need not have changed for anybody.
        if began.elapsed() > BOUND {
            self.ask().await;
        }
        // Or what follows at once is one step with this one, for all who see it.
        tokio::task::yield_now().await;
    }

    async fn break_(&mut self, fault: &Fault) {
        match *fault {
            Fault::Cut(Some(server)) => self.server(server).cut(),
            Fault::Cut(None) => self.servers.all.iter().for_each(FakeApiServer::cut),
            Fault::BlackHole(server) => self.server(server).black_hole(),
            Fault::Compact(back) => self.compact(back),
            Fault::Lag(server) => self.lag(server, Some(self.cluster.revision())),
            Fault::Restore(back) => self.restore(back).await,
            Fault::RestoreUnseen(ref unseen) => self.restore_unseen(unseen).await,
            // It may be gone already.
            Fault::Undefine => self.undefine(),
            Fault::Kill(torn, down) => self.kill(torn, down).await,
            Fault::SlowReader => self.reader(false),
            Fault::StalledReader => self.reader(true),
            Fault::Reset(server) => self.server(server).reset_connections(),
            Fault::BreakOff(server, bytes) => self.server(server).cut_after_bytes(bytes),
            Fault::Fail(server, status) => self.server(server).fail_next(status),
            Fault::Deny(right, pause) => {
                self.rights.deny(RESOURCES[right]);
                sleep(pause).await;
                return;
            }
        }
        match *fault {
            Fault::Cut(Some(server)) | Fault::BlackHole(server) => self.unreachable(server),
            Fault::Cut(None) => [0, 1].into_iter().for_each(|server| self.unreachable(server)),
            Fault::Compact(_) | Fault::Undefine | Fault::SlowReader | Fault::StalledReader => {}
            _ => self.disturb(),
        }
    }

    fn mend(&mut self, repair: &Repair) {
        match *repair {
            Repair::Heal(server) => {
                self.server(server).heal();
                self.reachable[server] = true;
                self.disturb();
            }
            Repair::CatchUp(server) => self.lag(server, None),
            Repair::Define => self.define(),
            Repair::Bookmarks => self.servers.all.iter().for_each(FakeApiServer::send_bookmarks),
            Repair::Allow(right) => self.rights.allow(RESOURCES[right]),
        }
    }

    pub(super) async fn kill(&mut self, torn: Torn, down: Duration) {
        // Nothing that it does not know yet can it learn until it has started.
        self.rights.disturb(false);
        let hub = self.hub.take().unwrap();
        hub.kill().await;
        self.gathered.restarted();
        tear(self.root.path(), torn);
        sleep(down).await;
        self.hub = Some(Hub::start(self.root.path(), &self.servers, &self.port).await);
    }

    /// Going back is told to clients whose connections stay, as readers' do. One that comes back with a version of the time that was undone, and
    /// to which the server has come again, cannot be told, by an API server neither: so these begin anew.
    async fn restore(&mut self, back: u64) {
        self.mend_all();
        self.stop_clients().await;
        self.stop_others().await;
        self.gathered.restores();
        self.cluster.restore(self.cluster.revision().saturating_sub(back).max(2));
        self.recent.restored();
        self.noticed().await;
        self.gathered.restored();
        self.recorder.restored();
        self.restart_clients();
    }

    /// Waits until these clients have what the cluster has, at a version that it has come to: who waits for one that is yet to come is told, by a hub,
    /// in seconds, that it is of another time. Else says who has not.
    pub(super) async fn converged(
        &self,
        clients: impl IntoIterator<Item = &(&'static str, TestClient)>,
    ) -> Result<(), String> {
        let deadline = Instant::now() + SOON;
        let models = RESOURCES.map(|id| (id, self.cluster.history(id)));
        for (id, client) in clients {
            let (_, model) = models.iter().find(|(of, _)| of == id).unwrap();
            loop {
                let converged = check_converged(model, client.scope(), &client.state());
                let progress = client.progress();
                let version = progress.resource_version.parse::<u64>();
                let is_ahead = version.is_ok_and(|version| version > self.cluster.revision());
                if progress.synced && converged.is_ok() && !is_ahead {
                    break;
                }
                if Instant::now() > deadline {
                    return Err(format!("{id} {progress:?} {converged:?}"));
                }
                sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// Leaves the cluster alone until every client has what it has; then says what was not as it had to be.
    pub(super) async fn judge(mut self) -> Result<(), String> {
        self.mend_all();
        for id in RESOURCES {
            self.rights.allow(id);
        }
        for (id, last) in [("services", service("a", "last", 0)), (WIDGET_ID, widget("last", 0))] {
            self.cluster.create(id, last).unwrap();
            let odd = json!({ "metadata": { "labels": { "n": "odd" } } });
            self.cluster.merge_patch(id, "a/last", &odd).unwrap();
        }
        self.acknowledge();
        self.happens.send_replace(());
        self.converged(self.clients.iter().chain(&self.others)).await?;
        for id in RESOURCES {
            self.rights.deny(id);
        }
        self.happens.send_replace(());
        sleep(Rights::noticed()).await;
        self.ask().await;
        self.cluster.create("services", service("a", "hidden", 0)).unwrap();
        self.cluster.create(WIDGET_ID, widget("hidden", 0)).unwrap();
        self.come_and_go();
        self.happens.send_replace(());
        // Where many watch, the hub lets a change wait for the next by a clock that goes on (`reflector::timer`): the one of the history stands still
        // meanwhile.
        spawn_blocking(|| thread::sleep(TOLD)).await.unwrap();
        self.ending.send_replace(true);
        sleep(LATE).await;
        while self.readers.join_next().await.is_some() {}
        // Whoever's watch is open was told of everything: that a state is right does not say so of what has come and gone.
        self.recorder.mark_quiescent(|_| true);
        let sessions = self.recorder.sessions();
        let taken = self.rights.taken().to_vec();
        if let Err(violation) = check_isolated(&self.rights.denials(), &sessions) {
            return Err(format!("{violation}\n{:#?}", sessions[violation.session]));
        }
        let models = RESOURCES.map(|id| (id, self.cluster.history(id)));
        reasons::check(self.gathered.reasons(), &taken, &models, &sessions)?;
        let (of_services, of_widgets): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|session| session.resource == plural("services"));
        for ((_, model), of) in models.iter().zip([of_services, of_widgets]) {
            self.recent.check(self.gathered.reasons(), model, &of)?;
            if let Err(violation) = check(model, &of) {
                let wrong = &of[violation.session];
                let before =
                    of[..violation.session].iter().rev().filter(|session| session.client == wrong.client);
                let before: Vec<_> = before.take(EARLIER).collect();
                return Err(format!("{violation}\n{wrong:#?}\nbefore it, the last first: {before:#?}"));
            }
        }
        for (id, client) in &self.clients {
            let (_, model) = models.iter().find(|(of, _)| of == id).unwrap();
            check_converged(model, client.scope(), &client.state())
                .map_err(|violation| violation.to_string())?;
        }
        Ok(())
    }
}
