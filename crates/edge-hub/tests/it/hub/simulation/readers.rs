//! Clients that read slowly, or not at all until the end.

use std::time::Duration;

use testkit::{
    client::{Recorder, connection::Endpoint},
    history::{Change, End, Observation, Request, Scope},
};
use tokio::{sync::watch, time::sleep};

use super::super::site::{JSON, Lines, SERVICES};

/// How long a slow reader needs for an event.
const SLOW: Duration = Duration::from_millis(700);

/// Watches services from their state on, and notes what comes: an event in a while until `ending`, or nothing at all; then all that is
/// left.
pub(super) async fn read(
    hub: Endpoint,
    recorder: Recorder,
    name: String,
    stalls: bool,
    mut ending: watch::Receiver<bool>,
) {
    let Ok(answer) = hub.get(&format!("{SERVICES}?watch=1&resourceVersion=0"), JSON).await else { return };
    if answer.status != 200 {
        return;
    }
    let request = Request::WatchInitial { at_least: Some(0), bookmarks: false };
    let recording = recorder.begin(&name, "services", &Scope::default(), request);
    let mut lines = Lines::of(answer);
    if stalls && ending.wait_for(|ending| *ending).await.is_err() {
        return;
    }
    loop {
        let next = tokio::select! {
            next = lines.next() => next,
            // Whatever is to come has come by then.
            () = silence(&mut ending) => None,
        };
        let Some(event) = next else { break };
        let object = event["object"].clone();
        let change = match event["type"].as_str() {
            Some("ADDED") => Change::Added,
            Some("MODIFIED") => Change::Modified,
            Some("DELETED") => Change::Deleted,
            _ => {
                let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
                recording.observe(Observation::Error { code, message: object["message"].to_string() });
                break;
            }
        };
        recording.observe(Observation::Event(change, object));
        if !*ending.borrow() {
            sleep(SLOW).await;
        }
    }
    recording.end(End::Broken);
}

/// Returns when the end has come, and a while has passed.
async fn silence(ending: &mut watch::Receiver<bool>) {
    if ending.wait_for(|ending| *ending).await.is_ok() {
        sleep(SLOW).await;
    }
}
