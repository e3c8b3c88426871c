//! A server that has too much to do: what it says then says nothing of the parameters.

use std::time::Duration;

use anyhow::Result;
use testkit::client::connection::Endpoint;
use testkit::differential::{Landmarks, Reply, Subject};
use tokio::time::sleep;

use super::Pair;

/// How often a request is sent once more because a server has too much to do, and when.
pub(super) const TIMES: usize = 10;
pub(super) const AFTER: Duration = Duration::from_secs(1);

/// In so many batches of one kind of requests the hub may have too much to do where the API server answers.
pub(super) const STALLS: usize = 1;

/// Whether it did not come to the request: it says so, or a watch that lasts a second or two ended before the API server could begin it.
fn is_busy(reply: &Reply) -> bool {
    let is_late = |value: &serde_json::Value| {
        value["object"]["code"] == 500 && value["object"]["message"] == "context deadline exceeded"
    };
    reply.status == 429 || reply.values.first().is_some_and(is_late)
}

/// Asks both once more, one after the other, what either was too busy to answer; whether of something it was the hub alone.
pub(super) async fn asked_again(
    batch: &mut [Pair],
    subject: &Subject,
    servers: [&Endpoint; 2],
    landmarks: &Landmarks,
) -> Result<bool> {
    let mut alone = false;
    for pair in batch {
        for _ in 0..TIMES {
            let (is_real, is_hub) = (is_busy(&pair.real.reply), is_busy(&pair.hub.reply));
            if pair.real.reply == pair.hub.reply || !is_real && !is_hub {
                break;
            }
            alone |= !is_real;
            sleep(AFTER).await;
            *pair = Pair::asked(pair.case.clone(), subject, servers, landmarks).await?;
        }
    }
    Ok(alone)
}
