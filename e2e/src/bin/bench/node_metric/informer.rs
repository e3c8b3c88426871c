//! What an informer makes of a change of the leader: which objects it knows, whether it was told of a deletion, and how often it had to ask anew.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::eventually;
use kube_wire::frame::INITIAL_EVENTS_END;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::watchers::{FROM_STATE, Way};

/// Names are all that it goes by, so that it costs little beside what is measured.
const ACCEPT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Between the end of a watch and the next.
const PAUSE: Duration = Duration::from_millis(100);

/// What it was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Events that say that an object is gone.
    pub(super) deleted: u64,
    /// Events that say that the watch cannot go on.
    pub(super) errors: u64,
    /// Watches that ended.
    pub(super) ended: u64,
    /// Objects that it knows.
    pub(super) objects: usize,
}

#[derive(Default)]
struct Known {
    names: BTreeSet<String>,
    version: Option<String>,
    synced: bool,
    told: Told,
}

/// It looks on until it is dropped.
pub(super) struct Informer {
    known: Arc<Mutex<Known>>,
    _task: JoinSet<()>,
}

impl Informer {
    /// Watches there, and knows everything of now.
    pub(super) async fn start(way: Way) -> Result<Self> {
        let known = Arc::<Mutex<Known>>::default();
        let mut task = JoinSet::new();
        let told = known.clone();
        task.spawn(async move {
            loop {
                // It asks again, from where it was.
                let _ = watch(&way, &told).await;
                told.lock().told.ended += 1;
                sleep(PAUSE).await;
            }
        });
        eventually("an informer knows all", Duration::from_mins(2), || async {
            ensure!(known.lock().synced, "not yet");
            anyhow::Ok(())
        })
        .await?;
        // What was tried before that does not count.
        known.lock().told = Told::default();
        Ok(Self { known, _task: task })
    }

    /// What it was told since it knows everything.
    pub(super) fn told(&self) -> Told {
        let Known { names, told, .. } = &*self.known.lock();
        Told { objects: names.len(), ..*told }
    }
}

/// One watch, to its end.
async fn watch(way: &Way, known: &Mutex<Known>) -> Result<()> {
    let from = match &known.lock().version {
        Some(version) => format!("resourceVersion={version}"),
        None => FROM_STATE.to_owned(),
    };
    let path = format!("{}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3000&{from}", way.path);
    way.each_event(&path, ACCEPT, |event| {
        known.lock().take(&serde_json::from_slice(event)?);
        Ok(())
    })
    .await
}

impl Known {
    fn take(&mut self, event: &Value) {
        let metadata = &event["object"]["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                self.names.insert(name.to_owned());
            }
            Some("DELETED") => {
                self.told.deleted += 1;
                self.names.remove(name);
            }
            Some("BOOKMARK") => {
                self.synced |= metadata["annotations"][INITIAL_EVENTS_END] == "true";
            }
            _ => {
                self.told.errors += 1;
                // As any informer: from the whole state.
                (self.version, self.synced) = (None, false);
                return;
            }
        }
        // Of the initial events each has a version of its own, in no order.
        if let Some(version) = metadata["resourceVersion"].as_str().filter(|_| self.synced) {
            self.version = Some(version.to_owned());
        }
    }
}
