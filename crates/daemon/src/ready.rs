//! Whether a process is ready, and whether it is alive: named checks that its parts answer.
//!
//! Ready means that every registered part says so. Alive means that every heartbeat was recent: a part that hangs
//! is found though it can no longer say anything.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The outcome of one check: its name, and why it fails if it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// `Ok`, or the reason in a few words.
    pub result: Result<(), String>,
}

/// The checks of readiness. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    checks: Arc<Mutex<Vec<Check>>>,
}

/// What one part says about itself. When it is dropped its check fails: who is gone does no work.
#[derive(Debug)]
#[must_use = "the check fails when its handle is dropped"]
pub struct Handle {
    checks: Arc<Mutex<Vec<Check>>>,
    index: usize,
}

impl Readiness {
    /// No checks yet, and so ready: register every part before the probes are served.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, which fails until its handle says otherwise.
    pub fn register(&self, name: &'static str) -> Handle {
        let mut checks = self.checks.lock();
        checks.push(Check { name, result: Err("not started".to_owned()) });
        Handle { checks: Arc::clone(&self.checks), index: checks.len() - 1 }
    }

    /// Every check, in the order of registration.
    pub fn checks(&self) -> Vec<Check> {
        self.checks.lock().clone()
    }

    /// Whether every check passes.
    pub fn is_ready(&self) -> bool {
        self.checks.lock().iter().all(|check| check.result.is_ok())
    }
}

impl Handle {
    /// The part does its work.
    pub fn ready(&self) {
        self.set(Ok(()));
    }

    /// The part does not do its work, because of `reason`: a few words, shown to whoever asks, so no secrets.
    pub fn not_ready(&self, reason: impl fmt::Display) {
        self.set(Err(reason.to_string()));
    }

    fn set(&self, result: Result<(), String>) {
        // Checks are only ever added, so the index stays that of this check.
        if let Some(check) = self.checks.lock().get_mut(self.index) {
            check.result = result;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.not_ready("stopped");
    }
}

/// The checks of liveness. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Liveness {
    pulses: Arc<Mutex<Vec<Pulse>>>,
}

#[derive(Debug)]
struct Pulse {
    name: &'static str,
    deadline: Duration,
    last: Instant,
}

/// Proof of life of one part, which must call [`Heartbeat::beat`] more often than its deadline. A part that ends
/// without [`Heartbeat::retire`] is missed.
#[derive(Debug)]
pub struct Heartbeat {
    pulses: Arc<Mutex<Vec<Pulse>>>,
    index: usize,
}

impl Liveness {
    /// No heartbeats yet, and so alive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expects a heartbeat at least every `deadline`; the first is now.
    pub fn register(&self, name: &'static str, deadline: Duration) -> Heartbeat {
        let mut pulses = self.pulses.lock();
        pulses.push(Pulse { name, deadline, last: Instant::now() });
        Heartbeat { pulses: Arc::clone(&self.pulses), index: pulses.len() - 1 }
    }

    /// Every heartbeat, in the order of registration.
    pub fn checks(&self) -> Vec<Check> {
        let check = |pulse: &Pulse| {
            let silence = pulse.last.elapsed();
            let alive = silence <= pulse.deadline;
            let result =
                if alive { Ok(()) } else { Err(format!("no heartbeat for {} s", silence.as_secs())) };
            Check { name: pulse.name, result }
        };
        self.pulses.lock().iter().map(check).collect()
    }
}

impl Heartbeat {
    /// Still alive.
    pub fn beat(&self) {
        if let Some(pulse) = self.pulses.lock().get_mut(self.index) {
            pulse.last = Instant::now();
        }
    }

    /// The part ends as it should; it is not expected to beat again.
    pub fn retire(self) {
        if let Some(pulse) = self.pulses.lock().get_mut(self.index) {
            pulse.deadline = Duration::MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(checks: &[Check]) -> Vec<(&'static str, Option<&str>)> {
        checks.iter().map(|check| (check.name, check.result.as_ref().err().map(String::as_str))).collect()
    }

    #[test]
    fn ready_is_when_every_part_is() {
        let readiness = Readiness::new();
        assert!(readiness.is_ready());
        let (a, b) = (readiness.register("a"), readiness.register("b"));
        assert_eq!(outcome(&readiness.checks()), [("a", Some("not started")), ("b", Some("not started"))]);
        b.ready();
        assert!(!readiness.is_ready());
        a.ready();
        assert!(readiness.is_ready());
        a.not_ready("no certificate");
        assert_eq!(outcome(&readiness.checks()), [("a", Some("no certificate")), ("b", None)]);
        a.ready();
        drop(b);
        assert_eq!(outcome(&readiness.checks()), [("a", None), ("b", Some("stopped"))]);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_past_the_deadline_is_death() {
        let liveness = Liveness::new();
        let (fast, slow) = (
            liveness.register("fast", Duration::from_secs(10)),
            liveness.register("slow", Duration::from_mins(1)),
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(outcome(&liveness.checks()), [("fast", None), ("slow", None)]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(outcome(&liveness.checks()), [("fast", Some("no heartbeat for 11 s")), ("slow", None)]);
        fast.beat();
        assert_eq!(outcome(&liveness.checks()), [("fast", None), ("slow", None)]);
        slow.retire();
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(outcome(&liveness.checks()), [("fast", Some("no heartbeat for 3600 s")), ("slow", None)]);
    }
}
