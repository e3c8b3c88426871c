//! Whether this replica would lead well: one that has just begun knows neither Nodes nor what the leader serves. Until it does it is not
//! ready, so that a rolling update does not end the leader before, and leaves leadership to others who do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use daemon::ready::Handle;
use tokio::time::Instant;

use super::Host;

/// After so long it does what it can with what it knows.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

/// What is known of what is needed.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Copy, Debug)]
struct Known {
    waited: Duration,
    leads: bool,
    nodes: bool,
    /// The whole state of the leader.
    copy: bool,
    /// The leader has no state that could be copied.
    nothing_served: bool,
}

/// Says so once, by both ways, and stays until the process ends.
pub(super) async fn tell(host: Arc<Host>, ready: Handle) {
    ready.not_ready("the state of the leader is not copied yet");
    let begun = Instant::now();
    loop {
        let (nodes, copy) = host.source.read(|store| (store.knows_nodes(), store.is_copied()));
        let (leads, nothing_served) = (host.source.is_leading(), host.nothing_served.load(Ordering::Relaxed));
        if is_prepared(Known { waited: begun.elapsed(), leads, nodes, copy, nothing_served }) {
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
    let Known { waited, leads, nodes, copy, nothing_served } = known;
    waited >= PATIENCE || (nodes && (leads || copy || nothing_served))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_begins_waits_for_nodes_and_a_copy_but_not_for_ever() {
        let begins =
            Known { waited: Duration::ZERO, leads: false, nodes: false, copy: false, nothing_served: false };
        let nodes = Known { nodes: true, ..begins };
        let cases = [
            (begins, false),
            (nodes, false),
            (Known { copy: true, ..begins }, false),
            (Known { copy: true, ..nodes }, true),
            (Known { leads: true, ..nodes }, true),
            (Known { nothing_served: true, ..nodes }, true),
            (Known { waited: PATIENCE, ..begins }, true),
        ];
        for (known, expected) in cases {
            assert_eq!(is_prepared(known), expected, "{known:?}");
        }
    }
}
