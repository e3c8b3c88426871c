//! Whether an API server answers nothing but errors, as one whose etcd is gone does, or a load balancer before none: its connection is
//! as good as ever, and it is of no use.
//!
//! Some errors in a row raise the suspicion, whatever they are about; what the server says of its own readiness decides. Who is ill is
//! left as one that is gone, and taken again when it says that it is ready.

use std::{
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{AcqRel, Relaxed},
    },
    time::Duration,
};

use http::StatusCode;
use parking_lot::Mutex;

/// After so many errors in a row.
const SUSPICIOUS: u32 = 3;

/// How long after a server said that it is ready errors raise no suspicion: some API that it hands on to may be gone, or a webhook.
pub(super) const BELIEVED: Duration = Duration::from_secs(5);

/// What is known of one server.
#[derive(Debug, Default)]
pub(super) struct Illness {
    errors: AtomicU32,
    /// Whether it is being asked, or was a moment ago.
    asked: AtomicBool,
    found: Mutex<Option<String>>,
}

impl Illness {
    /// It answered this. Whether it is to be asked how it is; [`Illness::well`] or [`Illness::ill`] must follow then.
    pub(super) fn suspects(&self, status: StatusCode) -> bool {
        if !status.is_server_error() {
            // Nearly always so, and then nobody else's processor hears of it.
            if self.errors.load(Relaxed) > 0 {
                self.errors.store(0, Relaxed);
            }
            return false;
        }
        self.errors.fetch_add(1, Relaxed) + 1 >= SUSPICIOUS && !self.asked.swap(true, AcqRel)
    }

    /// It was ready, and may be asked again.
    pub(super) fn well(&self) {
        self.errors.store(0, Relaxed);
        self.asked.store(false, Relaxed);
    }

    /// It is of no use, for that reason.
    pub(super) fn ill(&self, reason: String) {
        *self.found.lock() = Some(reason);
    }

    /// Why it is of no use, if it is not.
    pub(super) fn reason(&self) -> Option<String> {
        self.found.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_a_row_raise_suspicion_once() {
        let illness = Illness::default();
        let suspected: Vec<bool> = [500, 503, 200, 500, 404, 502, 500, 429, 503, 500, 504, 503]
            .into_iter()
            .map(|status| illness.suspects(StatusCode::from_u16(status).unwrap()))
            .collect();
        assert_eq!(suspected.iter().position(|is| *is), Some(10), "{suspected:?}");
        assert!(!suspected[11], "it is being asked");
        illness.well();
        let again = [500, 500, 500].map(|_| illness.suspects(StatusCode::BAD_GATEWAY));
        assert_eq!(again, [false, false, true]);
        illness.ill("etcd".to_owned());
        assert_eq!(illness.reason().as_deref(), Some("etcd"));
    }
}
