//! Tells the cluster that this gateway lives, and which nodes it reaches: straight to the API server, with the hub's identity.

use std::{sync::Arc, time::Duration};

use api::{names::gateway_lease, raven::tunnel_report::TunnelReport};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    State,
    report::{BEAT, COLLECTION, Tunnels, object, report},
    ways_in,
};
use crate::upstream::{
    Credential, Upstream,
    json::{self, JsonError},
};

/// How long the last word may take.
const LAST_WORD: Duration = Duration::from_secs(2);

/// How long changes of links and ways in are gathered.
const GATHER: Duration = Duration::from_millis(100);

const PART: &str = "report";

/// Keeps the report of a gateway that accepts links at `port`, and clients at `ways_in`, until `end`; then says that the gateway is gone.
pub(super) async fn announce(
    state: Arc<State>,
    port: u16,
    ways_in: ways_in::Open,
    upstream: Upstream,
    end: CancellationToken,
) {
    let mut told = TunnelReport::default();
    let mut version = None;
    let mut changes = state.table.changes();
    let mut open = ways_in.subscribe();
    state.announced.send_replace(true);
    while !end.is_cancelled() {
        changes.borrow_and_update();
        let open_now = open.borrow_and_update().clone();
        told = report(&state.instance, port, &Tunnels::of(&state.table, open_now), &told);
        // Without a link it would fail; that there is none is told elsewhere.
        if upstream.is_up() {
            let written = write(&state.me, &state.instance, &told, &mut version, &upstream);
            let failed = tokio::select! {
                written = written => written.err(),
                () = end.cancelled() => break,
            };
            let unwritten = |error: JsonError| format!("the cluster is not told of this gateway: {error}");
            state.problem(PART, failed.map(unwritten));
        }
        tokio::select! {
            () = sleep(BEAT) => {}
            _ = changes.changed() => sleep(GATHER).await,
            // Its sender is here.
            _ = open.changed() => sleep(GATHER).await,
            () = end.cancelled() => {}
        }
    }
    told.links.clear();
    told.siblings.clear();
    told.silent.clear();
    // What was under way at the end may have been written, with a version that was not seen.
    let last = async {
        while upstream.is_up() && write(&state.me, "", &told, &mut version, &upstream).await.is_err() {
            sleep(GATHER).await;
        }
    };
    let _ = timeout(LAST_WORD, last).await;
    state.problem(PART, None);
    state.announced.send_replace(false);
}

async fn write(
    node: &str,
    holder: &str,
    told: &TunnelReport,
    version: &mut Option<String>,
    upstream: &Upstream,
) -> Result<(), JsonError> {
    let path = format!("{COLLECTION}/{}", gateway_lease(node));
    if version.is_none() {
        *version = match json::get(upstream, &Credential::Node, &path).await {
            Ok(found) => version_of(&found),
            Err(JsonError::Status(StatusCode::NOT_FOUND)) => None,
            Err(error) => return Err(error),
        };
    }
    let made = object(node, holder, told, Timestamp::now(), version.as_deref())
        .map_err(|error| JsonError::Unreadable(Box::new(error)))?;
    let written = match version {
        Some(_) => json::put(upstream, &Credential::Node, &path, &made).await,
        None => json::post(upstream, &Credential::Node, COLLECTION, &made).await,
    };
    match written {
        Ok(written) => {
            *version = version_of(&written);
            Ok(())
        }
        Err(error) => {
            *version = None;
            Err(error)
        }
    }
}

fn version_of(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}
