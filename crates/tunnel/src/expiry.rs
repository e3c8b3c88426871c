//! Ends a link when its peer's certificate has expired: TLS looks at it once, in the handshake, and links last.

use std::time::{Duration, SystemTime};

use tracing::info;

use crate::{ending::Ending, links::table::LinkTable};

/// How often the wall clock is looked at: it may be set, and stands for no timer while a machine sleeps.
const LOOK: Duration = Duration::from_secs(30);

/// How long before a gateway's certificate expires links to it are made anew, at most.
const EARLY: Duration = Duration::from_mins(10);

/// When a link that is up `now` is to be made anew, since what its gateway showed `expires`: the gateway has renewed it since, if all is
/// well, and tells only those who dial it. `random` is in 0..1, so that not all come at once.
pub(crate) fn renew_at(expires: SystemTime, now: SystemTime, random: f64) -> SystemTime {
    let left = expires.duration_since(now).unwrap_or_default();
    expires - (left / 2).min(EARLY).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

/// Lets a link to `peer`, whose certificate is good until `expires`, take no new streams from then on.
///
/// Those that are open have the deadline of a drain, unless the peer has shown a newer certificate for another of its links: who
/// renews replaces its links long before, and what goes on over the one that is replaced is its own still. Never ends.
pub(crate) async fn follow(peer: &str, expires: SystemTime, table: &LinkTable, ending: &Ending) {
    passed(expires).await;
    ending.retire();
    while let Some(newest) = table.expiry(peer).filter(|newest| *newest > SystemTime::now()) {
        passed(newest).await;
    }
    info!(node = peer, "a link ends, for the certificate of its node has expired");
    ending.shut_down();
    std::future::pending::<()>().await;
}

/// Waits until the wall clock shows `moment`.
pub(crate) async fn passed(moment: SystemTime) {
    while let Ok(left) = moment.duration_since(SystemTime::now()) {
        // A moment more: what is reached exactly has not passed.
        tokio::time::sleep(left.min(LOOK) + Duration::from_millis(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_anew_while_the_certificate_is_good() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let day = 24 * 3600;
        for (left, random, early) in [(day, 1.0, 600), (day, 0.0, 300), (100, 1.0, 50), (100, 0.0, 25)] {
            assert_eq!(renew_at(at(day + left), at(day), random), at(day + left - early), "{left} {random}");
        }
        assert_eq!(renew_at(at(1), at(2), 0.5), at(1), "too late");
    }
}
