//! Whether this replica would lead well: one that has just begun knows neither Nodes and what they are to collect nor what the leader
//! serves. Until it does it is not ready, so that a rolling update does not end the leader before, and leaves leadership to others who do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use daemon::ready::Handle;
use tokio::time::Instant;

use super::Host;

/// After so long it does what it can with what it knows.
const PATIENCE: Duration = Duration::from_secs(30);

/// After so many refusals in a row the leader has no state that could be copied; one that has just ceased to lead refuses for a moment.
const REFUSALS: u32 = 10;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

/// What is known of what is needed.
#[derive(Clone, Copy, Debug)]
struct Known {
    waited: Duration,
    nodes: bool,
    /// It was tried to read what nodes are to collect. What could not be read is as the leader before said, so nobody waits longer.
    policies: bool,
    /// The whole state of the leader, or it leads by itself.
    state: bool,
    /// How often in a row the leader said that it does not serve.
    refusals: u32,
}

/// Says so once, by both ways, and stays until the process ends.
pub(super) async fn tell(host: Arc<Host>, ready: Handle) {
    ready.not_ready("the state of the leader is not copied yet");
    let begun = Instant::now();
    loop {
        let (nodes, copy) = host.source.read(|store| (store.knows_nodes(), store.is_copied()));
        let policies = host.policies_tried.load(Ordering::Relaxed);
        let (state, refusals) = (copy || host.source.is_leading(), host.refusals.load(Ordering::Relaxed));
        if is_prepared(Known { waited: begun.elapsed(), nodes, policies, state, refusals }) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    host.prepared.send_replace(true);
    ready.ready();
    // The check fails when its handle is dropped.
    std::future::pending::<()>().await;
}

fn is_prepared(known: Known) -> bool {
    let Known { waited, nodes, policies, state, refusals } = known;
    waited >= PATIENCE || (nodes && policies && (state || refusals >= REFUSALS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_begins_waits_for_nodes_and_a_copy_but_not_for_ever() {
        let waited = Duration::ZERO;
        let begins = Known { waited, nodes: false, policies: false, state: false, refusals: 0 };
        let nodes = Known { nodes: true, policies: true, ..begins };
        let cases = [
            (begins, false),
            (nodes, false),
            (Known { state: true, ..begins }, false),
            (Known { state: true, ..nodes }, true),
            (Known { state: true, policies: false, ..nodes }, false),
            (Known { refusals: 1, ..nodes }, false),
            (Known { refusals: REFUSALS, ..nodes }, true),
            (Known { waited: PATIENCE, ..begins }, true),
        ];
        for (known, expected) in cases {
            assert_eq!(is_prepared(known), expected, "{known:?}");
        }
    }
}
