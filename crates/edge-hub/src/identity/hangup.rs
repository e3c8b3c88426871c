//! SIGHUP: somebody wants a new certificate now.

use std::{future::pending, io, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};

/// Hears SIGHUP from when it was made. One that comes while nobody waits, because a certificate is being asked for, is told to the
/// next who does. The default hears none.
#[derive(Debug, Default)]
pub(super) struct Hangup(Option<Signal>);

impl Hangup {
    /// From now on SIGHUP does not end the process.
    pub(super) fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(|signal| Self(Some(signal)))
    }

    /// Rests so long; returns early, and says so, at SIGHUP.
    pub(super) async fn rest(&mut self, rest: Duration) -> bool {
        let heard = async {
            match &mut self.0 {
                Some(signal) => signal.recv().await.is_some(),
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            heard = heard => heard,
            () = sleep(rest) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_signal_that_came_while_nobody_waited_ends_the_next_rest_and_no_other() {
        let mut hangup = Hangup::listen().unwrap();
        let process = std::process::id().to_string();
        assert!(std::process::Command::new("kill").args(["-HUP", &process]).status().unwrap().success());
        // It may be on its way yet.
        let heard = timeout(Duration::from_mins(1), hangup.rest(Duration::from_hours(1))).await;
        assert_eq!(heard, Ok(true));
        assert!(!hangup.rest(Duration::from_millis(10)).await);
        assert!(!Hangup::default().rest(Duration::from_millis(10)).await);
    }
}
