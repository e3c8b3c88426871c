//! How what carries streams is told to end: in its own time, or in a bounded one.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The end of a link, of a listener, or of all of them.
///
/// What is no longer wanted *retires*: it takes no new streams, and those that are open go on for as long as they like, so no change
/// of address, gateway, certificate or role cuts one. What is shut down has a deadline besides. What is *suspended* takes no new streams
/// either, until it is resumed. Where the *rights* change by which streams were opened, those that the new ones do not allow have the deadline.
#[derive(Debug, Clone)]
pub struct Ending {
    retire: CancellationToken,
    shutdown: CancellationToken,
    suspended: watch::Sender<bool>,
    rights: watch::Sender<u64>,
}

/// The rights by which a stream was opened, as long as they hold.
pub(crate) struct Rights(watch::Receiver<u64>);

impl Rights {
    /// Ends when they have changed.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The link has ended, and with it what it carried.
            std::future::pending::<()>().await;
        }
    }
}

impl Ending {
    /// Retires at `retire`. Once `shutdown` is cancelled, too, there is a deadline.
    pub fn new(retire: CancellationToken, shutdown: CancellationToken) -> Self {
        Self { retire, shutdown, suspended: watch::Sender::new(false), rights: watch::Sender::new(0) }
    }

    /// Has nothing but `shutdown`, at which it retires.
    pub fn at(shutdown: CancellationToken) -> Self {
        Self::new(shutdown.child_token(), shutdown)
    }

    /// Ends with this one, or before it; is suspended, and has its rights, by itself.
    #[must_use]
    pub fn child(&self) -> Self {
        Self::new(self.retire.child_token(), self.shutdown.child_token())
    }

    /// No new streams.
    pub fn retire(&self) {
        self.retire.cancel();
    }

    /// No new streams, and a deadline for those that are open.
    pub fn shut_down(&self) {
        self.retire.cancel();
        self.shutdown.cancel();
    }

    /// No new streams for now.
    pub(crate) fn suspend(&self) {
        self.suspended.send_replace(true);
    }

    /// New streams again.
    pub(crate) fn resume(&self) {
        self.suspended.send_replace(false);
    }

    /// Who asked for the open streams may not do the same any more.
    pub(crate) fn change_rights(&self) {
        self.rights.send_modify(|changes| *changes += 1);
    }

    /// Those that hold now.
    pub(crate) fn rights(&self) -> Rights {
        Rights(self.rights.subscribe())
    }

    /// Ends when it is suspended.
    pub(crate) async fn suspended(&self) {
        self.until_suspended_is(true).await;
    }

    /// Ends when it is not suspended.
    pub(crate) async fn resumed(&self) {
        self.until_suspended_is(false).await;
    }

    async fn until_suspended_is(&self, wanted: bool) {
        // The sender lives as long as this.
        let _ = self.suspended.subscribe().wait_for(|suspended| *suspended == wanted).await;
    }

    /// Whether it takes no new streams.
    pub fn is_retired(&self) -> bool {
        self.retire.is_cancelled()
    }

    /// Ends when it takes no new streams.
    pub async fn retired(&self) {
        self.retire.cancelled().await;
    }

    /// Ends `limit` after it was shut down.
    pub(crate) async fn overdue(&self, limit: Duration) {
        self.retire.cancelled().await;
        self.shutdown.cancelled().await;
        tokio::time::sleep(limit).await;
    }
}
