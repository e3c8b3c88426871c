//! What in a history explains that a client is told 410.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use testkit::{
    api_server::Cluster,
    history::{Doubtful, Forgotten, Model, Reasons, Scope, Session, check_expired},
};
use tokio::time::Instant;

use super::{
    super::{history_clients::WIDGET_ID, site::widget_kind},
    rights::plural,
    world::{CRDS, World},
};

/// How long after a server has caught up what it had not told may still be doubted: the hub's connection to it may be there only then, it waits for a
/// second silence of three seconds, and lists.
const DOUBTED: Duration = Duration::from_secs(30);

/// How long after a resource is defined anew the hub may still withdraw what it held of it.
const WITHDRAWN: Duration = Duration::from_mins(1);

/// How many changes of a resource the hub's disk keeps at least, of objects as small as these: it is 32 KiB.
const KEPT: usize = 40;

/// How many watches of all histories went on from a version whose expiry nothing would have explained.
pub(super) static RESUMED: AtomicUsize = AtomicUsize::new(0);

/// Gathers them.
pub(super) struct Gathered {
    reasons: Reasons,
    /// Which servers may know less than another has told.
    lag: [bool; 2],
}

impl Gathered {
    pub(super) fn new() -> Self {
        Self { reasons: Reasons { kept: KEPT, ..Reasons::default() }, lag: [false; 2] }
    }

    pub(super) fn compacted(&mut self, below: u64) {
        self.reasons.forgotten.push(Forgotten { resource: None, since: Instant::now(), below });
    }

    /// The custom resource is gone, until it is defined.
    pub(super) fn undefined(&mut self) {
        self.begin(Some(plural(WIDGET_ID)));
    }

    pub(super) fn defined(&mut self, cluster: &Cluster) {
        let (resource, since) = (Some(plural(WIDGET_ID).to_owned()), Instant::now());
        self.end(resource.as_deref(), since + WITHDRAWN);
        self.reasons.forgotten.push(Forgotten { resource, since, below: cluster.revision() });
    }

    /// A server lags from now on, or does not any more.
    pub(super) fn lags(&mut self, server: usize, lags: bool) {
        self.lag[server] = lags;
        if lags {
            self.begin(None);
        } else if self.lag == [false; 2] {
            self.end(None, Instant::now() + DOUBTED);
        }
    }

    /// The cluster goes back, which the hub has noticed when it has ended.
    pub(super) fn restores(&mut self) {
        self.begin(None);
    }

    pub(super) fn restored(&mut self) {
        self.end(None, Instant::now() + DOUBTED);
    }

    pub(super) fn restarted(&mut self) {
        self.reasons.restarts.push(Instant::now());
    }

    fn begin(&mut self, resource: Option<&str>) {
        let (resource, from) = (resource.map(str::to_owned), Instant::now());
        self.reasons.doubtful.push(Doubtful { resource, from, until: None });
    }

    fn end(&mut self, resource: Option<&str>, at: Instant) {
        for doubtful in self.reasons.doubtful.iter_mut().filter(|one| one.resource.as_deref() == resource) {
            doubtful.until.get_or_insert(at);
        }
    }

    pub(super) fn reasons(&self) -> &Reasons {
        &self.reasons
    }
}

/// What is a reason is noted when it is done.
impl World {
    pub(super) fn compact(&mut self, back: u64) {
        let version = self.cluster.revision().saturating_sub(back);
        self.cluster.compact(version);
        self.gathered.compacted(version);
    }

    pub(super) fn lag(&mut self, server: usize, behind: Option<u64>) {
        self.server(server).lag(behind);
        self.gathered.lags(server, behind.is_some());
    }

    pub(super) fn undefine(&mut self) {
        if self.cluster.delete(CRDS, WIDGET_ID).is_ok() {
            self.gathered.undefined();
        }
    }

    pub(super) fn define(&mut self) {
        if self.cluster.get(CRDS, WIDGET_ID).is_none() {
            self.cluster.create(CRDS, widget_kind().crd()).unwrap();
            self.gathered.defined(&self.cluster);
        }
    }
}

/// Whether a session is of a client of the node that reads what comes when it comes, and wants everything.
fn is_prompt(session: &Session) -> bool {
    session.user.is_empty() && !session.client.starts_with("reader ") && session.scope == Scope::default()
}

/// Checks the clients of the node.
pub(super) fn check(reasons: &Reasons, models: &[(&str, Model)], sessions: &[Session]) -> Result<(), String> {
    for (id, model) in models {
        let of = |session: &&Session| session.resource == plural(id) && is_prompt(session);
        let sessions: Vec<Session> = sessions.iter().filter(of).cloned().collect();
        match check_expired(model, reasons, &sessions) {
            Ok(resumed) => _ = RESUMED.fetch_add(resumed, Ordering::Relaxed),
            Err(violation) => {
                let wrong = &sessions[violation.session];
                let earlier = &sessions[violation.session.saturating_sub(6)..violation.session];
                return Err(format!("{violation}\n{wrong:#?}\nbefore it: {earlier:#?}\n{reasons:#?}"));
            }
        }
    }
    Ok(())
}
