//! The server keeps up with many events.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::client::connection::Endpoint;

use crate::support::{CONFIGMAPS, config_map, server};

#[tokio::test]
async fn a_thousand_events_reach_a_watcher() {
    let server = server().await;
    server.cluster().create("configmaps", config_map("a", "x", 0)).unwrap();
    let query = format!("{CONFIGMAPS}?watch=1&resourceVersion=2");
    let mut watch = Endpoint::plain(server.address()).get(&query, "").await.unwrap();
    let started = Instant::now();
    let mut lines = 0;
    for n in 0..1000 {
        server
            .cluster()
            .merge_patch(
                "configmaps",
                "a/x",
                &json!({"data": {"n": n.to_string(), "filler": "x".repeat(500)}}),
            )
            .unwrap();
        if n % 100 == 99 {
            while lines <= n {
                let chunk = watch.chunk().await.unwrap().unwrap();
                lines += chunk.split(|byte| *byte == b'\n').count() - 1;
            }
        }
    }
    let took = started.elapsed();
    println!("1000 events in {took:?}");
    // Two seconds on two busy cores without optimisation; what is asserted is that nothing grows with the history.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
