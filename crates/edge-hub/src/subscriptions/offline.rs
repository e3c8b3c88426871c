//! For tests: subscriptions as an earlier run left them, and nobody to ask.

use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::Subscriptions;
use crate::{
    metrics::Meters,
    reflector::Reflector,
    run::Lifetimes,
    storage::{Storage, test_disk::TestDisk},
    tasks::Tasks,
    upstream::{Connector, Link, Tcp, Timing, TlsMaterial},
};

/// The subscriptions of a hub that has no link.
pub(super) struct Offline {
    pub(super) runtime: Runtime,
    pub(super) tasks: Tasks,
    pub(super) shutdown: CancellationToken,
    pub(super) subscriptions: Arc<Subscriptions>,
    pub(super) storage: Storage,
    _link: Link,
}

impl Offline {
    /// With what is stored there.
    pub(super) fn new(disk: &Arc<TestDisk>, dir: &Path) -> Self {
        tls::install_provider();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let entered = runtime.enter();
        let (storage, restored) = Storage::open_on(disk.clone(), dir, [7; 32]).unwrap();
        let meters = Meters::default();
        let material = TlsMaterial::unverified();
        let connector = Connector::over(Arc::new(Tcp), material, Timing::default(), meters.link().clone());
        let (link, upstream) = Link::new(Vec::new(), Arc::new(connector));
        let reflector = Reflector::new(upstream, storage.clone(), meters, &restored);
        let shutdown = CancellationToken::new();
        let tasks = Tasks::new(shutdown.clone());
        let subscriptions =
            Subscriptions::new(reflector, tasks.clone(), &Lifetimes::default(), restored, None);
        drop(entered);
        Self { tasks, shutdown, subscriptions: Arc::new(subscriptions), storage, _link: link, runtime }
    }

    /// Does something in the runtime, on a thread of its own, which is not kept waiting.
    pub(super) fn at_once<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Subscriptions) -> T + Send + 'static,
    ) -> T {
        let (done, waiting) = mpsc::channel();
        let (handle, subscriptions) = (self.runtime.handle().clone(), self.subscriptions.clone());
        thread::spawn(move || {
            let _entered = handle.enter();
            done.send(what(&subscriptions)).unwrap();
        });
        waiting.recv_timeout(Duration::from_secs(30)).expect("does not wait for the disk")
    }

    /// Ends as the hub does.
    pub(super) fn end(self) {
        self.shutdown.cancel();
        self.runtime.block_on(self.tasks.wait());
        self.subscriptions.leave();
    }
}
