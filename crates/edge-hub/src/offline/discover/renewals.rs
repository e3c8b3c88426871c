//! A document of `OpenAPI` of which more is known than is kept: a resource of its group and version has come into use that discovery did not name. Its
//! definition is newer than the list, which is asked for again for hours only, and `kubectl explain` would not find it without a link.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use super::{
    OPENAPI, fetch,
    openapi::{self, GRAIN, Tries},
};
use crate::hub::Hub;

/// How long after a list that names the document that is kept it is asked for once more, and then not again: an API server may name a new definition in
/// discovery before it describes it. How long after one that did not come, four times as long each time.
const AGAIN: Duration = Duration::from_secs(4);

/// When the list is asked for, for the sake of one document.
struct Due {
    at: Instant,
    /// How long after that it is asked for again, if it does not come.
    pause: Duration,
    /// Whether one came already that names the document that is kept.
    is_last: bool,
}

/// The paths of documents that are to be renewed, from link to link.
pub(super) struct Renewals {
    came: UnboundedReceiver<String>,
    due: BTreeMap<String, Due>,
}

impl Renewals {
    /// Of those of which `came` tells.
    pub(super) fn new(came: UnboundedReceiver<String>) -> Self {
        Self { came, due: BTreeMap::new() }
    }

    /// Renews what there is to renew, up to then.
    pub(super) async fn until(&mut self, hub: &Hub, tries: &mut Tries, end: Instant) {
        loop {
            let next = self.due.values().map(|due| due.at).fold(end, Instant::min);
            tokio::select! {
                Some(path) = self.came.recv() => {
                    self.note(path);
                    // One list is for all that came with it.
                    while let Ok(path) = self.came.try_recv() {
                        self.note(path);
                    }
                }
                () = sleep_until(next) => {
                    if Instant::now() >= end {
                        return;
                    }
                    self.renew(hub, tries).await;
                }
            }
        }
    }

    fn note(&mut self, path: String) {
        self.due.insert(path, Due { at: Instant::now(), pause: AGAIN, is_last: false });
    }

    /// Asks for the list, and for each document that is due and of which it names another than is kept. What a cut of the link keeps from that stays due.
    async fn renew(&mut self, hub: &Hub, tries: &mut Tries) {
        let (fetched, asked) = (hub.sharing.load().openapi, hub.documents.asked());
        self.due.retain(|path, _| fetched.renews(path, &asked));
        let begun = Instant::now();
        let is_due = |(path, due): (&String, &Due)| (due.at <= begun).then(|| path.clone());
        let paths: Vec<String> = self.due.iter().filter_map(is_due).collect();
        if paths.is_empty() {
            return;
        }
        fetch(hub, OPENAPI.0, OPENAPI.1).await;
        let age = hub.documents.age(OPENAPI.0, OPENAPI.1);
        let has_come = age.is_some_and(|age| age <= begun.elapsed() + GRAIN);
        for path in paths {
            let is_other = has_come && openapi::renew(hub, tries, path.clone()).await;
            let Some(due) = self.due.get_mut(&path) else { continue };
            if is_other || has_come && due.is_last {
                self.due.remove(&path);
            } else if has_come {
                (due.at, due.is_last) = (Instant::now() + AGAIN, true);
            } else {
                (due.at, due.pause) = (Instant::now() + due.pause, due.pause.saturating_mul(4));
            }
        }
    }
}
