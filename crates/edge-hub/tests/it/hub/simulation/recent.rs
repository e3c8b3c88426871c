//! Who asks for the most recent state, and what the cluster had acknowledged by then.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use testkit::{
    client::ClientOptions,
    history::{
        Acknowledged, End, Freshness, ListAt, Model, Observation, Reasons, Request, Session, check_fresh,
    },
};
use tokio::time::{Instant, timeout};

use super::{
    super::{
        history_clients::WIDGET_ID,
        site::{JSON, SERVICES, WIDGETS},
    },
    rights::plural,
    world::{SOON, World},
    writer::{resource_version, whole},
};

/// How old may be what the hub shows without a word, of what nobody says otherwise of.
pub(super) const BOUND: Duration = Duration::from_secs(10);

/// How many reads of all histories had something to show.
pub(super) static BOUND_TO_SHOW: AtomicUsize = AtomicUsize::new(0);

/// What the cluster has acknowledged, and how many have asked.
#[derive(Default)]
pub(super) struct Recent {
    acknowledged: Vec<Acknowledged>,
    restores: usize,
    asked: usize,
}

impl Recent {
    /// The cluster goes back.
    pub(super) fn restored(&mut self) {
        self.restores += 1;
    }

    /// Checks all reads. What an API server does not tell, as it lags, was restored or has no such resource, no hub can show; that there is no link is no
    /// reason.
    pub(super) fn check(&self, reasons: &Reasons, model: &Model, sessions: &[Session]) -> Result<(), String> {
        let (acknowledged, untold) = (self.acknowledged.clone(), reasons.doubtful.clone());
        let freshness = Freshness { bound: BOUND, acknowledged, untold };
        match check_fresh(model, &freshness, sessions) {
            Ok(bound) => _ = BOUND_TO_SHOW.fetch_add(bound, Ordering::Relaxed),
            Err(violation) => return Err(format!("{violation}\n{:#?}", sessions[violation.session])),
        }
        Ok(())
    }
}

impl World {
    /// Everything that was written so far is acknowledged.
    pub(super) fn acknowledge(&mut self) {
        let (at, epoch, version) = (Instant::now(), self.recent.restores, self.cluster.revision());
        self.recent.acknowledged.push(Acknowledged { at, epoch, version });
    }

    /// Somebody comes who asks once for the most recent state of each resource.
    pub(super) async fn ask(&mut self) {
        for (id, path) in [("services", SERVICES), (WIDGET_ID, WIDGETS)] {
            self.recent.asked += 1;
            let (hub, name) = (self.endpoint(), format!("asker {}", self.recent.asked));
            let scope = ClientOptions::new(&name, path).scope().unwrap();
            let recording = self.recorder.begin(&name, plural(id), &scope, Request::List(ListAt::MostRecent));
            let exchange = async {
                let answer = hub.get(path, JSON).await.ok()?;
                recording.answered(&answer.headers);
                whole(answer).await
            };
            // One that is refused, or breaks off, shows nothing.
            let Ok(Some(list)) = timeout(SOON, exchange).await else { continue };
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let rv = resource_version(&list).unwrap_or(0);
            recording.observe(Observation::Page { rv, items, more: false, remaining: None });
            recording.end(End::Clean);
        }
    }
}
