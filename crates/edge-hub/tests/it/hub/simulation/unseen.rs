//! The cluster goes back while the hub cannot see it, and goes on to other versions before there is a link again. The clients stay.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use testkit::{api_server::FakeApiServer, history::version};
use tokio::time::sleep;

use super::{
    super::history_clients,
    noticeable::{Held, Restored, is_noticeable},
    noticed::held,
    parts::Hub,
    rights::RESOURCES,
    torn::Torn,
    world::{LOOK, World},
};

/// Beside which those that failed are kept.
pub(super) const FILE: &str = file!();

/// What happens while there is no link.
#[derive(Debug, Clone)]
pub(super) struct Unseen {
    /// How long all is well before.
    pub(super) rest: Duration,
    /// By how many versions the cluster goes back.
    pub(super) back: u64,
    /// What is written after that: an object by its number, with this content, or its deletion.
    pub(super) writes: Vec<(u8, Option<u64>)>,
    /// The hub is killed as well, as by [`Fault::Kill`](super::step::Fault::Kill).
    pub(super) kill: Option<(Torn, Duration)>,
    /// By how many versions the servers' watch caches lag when the link is back, and for how long.
    pub(super) lag: (u64, Duration),
}

/// How many of all histories' were to be noticed, how many are none that a hub could notice, and how many befell a hub that did not show all of its lists.
pub(super) static NOTICED: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

impl World {
    /// What a hub cannot notice is mended as its documentation says: without the folder of its store. Clients that it had shown what was undone begin
    /// anew then, as nobody could tell them.
    pub(super) async fn restore_unseen(&mut self, unseen: &Unseen) {
        self.mend_all();
        sleep(unseen.rest).await;
        self.stop_others().await;
        self.servers.all.iter().for_each(FakeApiServer::cut);
        self.reachable = [false; 2];
        self.disturb();
        if let Some((torn, down)) = unseen.kill {
            self.kill(torn, down).await;
        }
        // What came before the cut has been shown by then.
        sleep(LOOK).await;
        let all = self.held_of_each().await;
        let from = self.cluster.revision();
        let to = from.saturating_sub(unseen.back).max(2);
        self.gathered.restores();
        self.cluster.restore(to);
        self.recent.restored();
        self.define();
        for (name, content) in &unseen.writes {
            match content {
                Some(n) => self.write(*name, *n),
                None => self.delete(*name),
            }
        }
        self.pass_versions_of_clients();
        let restored = Restored { to, from, now: self.cluster.revision() };
        let noticeable = all.as_ref().is_some_and(|all| {
            let mut each = RESOURCES.into_iter().zip(all);
            each.all(|(id, held)| is_noticeable(&self.cluster.history(id), restored, held))
        });
        let of = if all.is_some() { usize::from(!noticeable) } else { 2 };
        NOTICED[of].fetch_add(1, Ordering::Relaxed);
        if !noticeable {
            self.forget().await;
        }
        let (behind, lags) = unseen.lag;
        if behind > 0 {
            for server in &self.servers.all {
                server.lag(Some(restored.now.saturating_sub(behind)));
                server.heal();
            }
            sleep(lags).await;
        }
        self.mend_all();
        self.noticed().await;
        if noticeable {
            let converged = self.converged(&self.clients).await;
            converged.unwrap_or_else(|behind| panic!("after an unseen restore: {behind}"));
        }
        self.gathered.restored();
        self.recorder.restored();
        if noticeable {
            self.start_others();
        } else {
            self.restart_clients();
        }
    }

    /// Everything that the hub holds for the node, by resource; nothing if there is a list that it does not show.
    async fn held_of_each(&self) -> Option<[Vec<Held>; 2]> {
        let (hub, mut all) = (self.endpoint(), [Vec::new(), Vec::new()]);
        for (id, scope, path) in history_clients::lists() {
            let list = held(&hub, &path).await?;
            let items = list["items"].as_array()?.clone();
            let of = RESOURCES.iter().position(|resource| *resource == id)?;
            all[of].push(Held { scope, version: version(&list), items });
        }
        Some(all)
    }

    /// Who comes back with just the version that the cluster has come to again cannot be told from who has read it since, by an API server
    /// neither.
    fn pass_versions_of_clients(&self) {
        let is_at = |version: u64| {
            let mut clients = self.clients.iter();
            clients.any(|(_, client)| client.progress().resource_version == version.to_string())
        };
        let mut n = 0;
        while is_at(self.cluster.revision()) {
            self.write(1, n);
            n += 1;
        }
    }

    async fn forget(&mut self) {
        self.stop_clients().await;
        self.hub.take().unwrap().kill().await;
        fs::remove_dir_all(self.root.path().join("store")).unwrap();
        self.hub = Some(Hub::start(self.root.path(), &self.servers, &self.port).await);
    }
}
