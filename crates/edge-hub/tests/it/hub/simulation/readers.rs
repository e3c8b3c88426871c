//! Clients that read slowly, or not at all until the end.

use std::time::Duration;

use testkit::{
    client::{Recorder, connection::Endpoint},
    history::End,
};
use tokio::{sync::watch, time::sleep};

use super::super::history_clients::Reader;

/// How long a slow reader needs for an event.
const SLOW: Duration = Duration::from_millis(700);

/// Watches services from their state on, and notes what comes: an event in a while until `ending`, or nothing at all; then all that is
/// left. A watch that is open then has told of everything.
pub(super) async fn read(
    hub: Endpoint,
    recorder: Recorder,
    name: String,
    stalls: bool,
    mut ending: watch::Receiver<bool>,
) {
    let Some(mut reader) = Reader::open(&hub, &recorder, &name).await else { return };
    if stalls && ending.wait_for(|ending| *ending).await.is_err() {
        return;
    }
    loop {
        let next = tokio::select! {
            biased;
            next = reader.lines.next() => next,
            // Whatever is to come has come by then.
            () = silence(&mut ending) => return reader.end(End::Quiescent),
        };
        let Some(event) = next else { break };
        if !reader.note(&event) {
            break;
        }
        if !*ending.borrow() {
            sleep(SLOW).await;
        }
    }
    reader.end(End::Broken);
}

/// Returns when the end has come, and a while has passed.
async fn silence(ending: &mut watch::Receiver<bool>) {
    if ending.wait_for(|ending| *ending).await.is_ok() {
        sleep(SLOW).await;
    }
}
