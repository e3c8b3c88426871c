//! `kill -9` of the hub while much happens: clients that come back notice a closed connection and nothing else.

use std::time::Duration;

use serde_json::json;
use testkit::{
    client::{ClientOptions, Recorder, TestClient},
    history::{check, check_converged},
};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::site::{SERVICES, SOON, Site, service};

/// Events a second.
const RATE: u64 = 500;

#[tokio::test]
async fn a_kill_under_load_is_no_more_than_a_closed_connection() {
    let mut site = Site::started().await;
    let recorder = Recorder::default();
    let mut clients: Vec<TestClient> = [
        ("all", SERVICES, ""),
        ("odd", SERVICES, "n=odd"),
        ("of a", "/api/v1/namespaces/a/services", ""),
        // It is told of nothing, while several times the history passes by.
        ("quiet", SERVICES, "n=none"),
    ]
    .into_iter()
    .map(|(name, path, labels)| {
        let mut options = ClientOptions::new(name, path);
        labels.clone_into(&mut options.labels);
        TestClient::start(site.plain(), options, &recorder).unwrap()
    })
    .collect();
    for client in &mut clients {
        assert!(client.wait_for(SOON, |_| true).await);
    }
    let cluster = site.server.cluster().clone();
    let writing = tokio::spawn(async move {
        let mut ticks = interval(Duration::from_micros(1_000_000 / RATE));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for n in 0..RATE * 5 {
            ticks.tick().await;
            let mut object = service(["a", "b"][usize::from(n % 3 == 0)], &format!("s{}", n % 50), n);
            // As large as a Service with its annotations is.
            object["metadata"]["annotations"] = json!({ "note": "x".repeat(700) });
            if cluster.update("services", &object).is_err() {
                cluster.create("services", object).unwrap();
            }
            if n % 17 == 0 {
                // It may not be there.
                let _ = cluster.delete("services", &format!("a/s{}", n % 50));
            }
        }
    });
    let listed = lists(&site);
    let watched = site.server.log().totals(|record| record.path == SERVICES && record.watch).requests;
    for _ in 0..4 {
        sleep(Duration::from_millis(1100)).await;
        site.kill();
        site.start();
    }
    writing.await.unwrap();
    let last = site.server.cluster().create("services", service("a", "last", 1)).unwrap();
    let mut silent = service("a", "silent", 1);
    silent["metadata"]["labels"]["n"] = "none".into();
    let silent = site.server.cluster().create("services", silent).unwrap();
    let (last, silent) = (("a/last", last), ("a/silent", silent));
    for (client, (key, wanted)) in clients.iter_mut().zip([&last, &last, &last, &silent]) {
        assert!(
            client.wait_for(SOON, |state| state.get(*key) == Some(wanted)).await,
            "{:?}\n{}",
            client.progress(),
            site.last_log()
        );
    }
    // What was handed over to the system before a kill is enough to go on from.
    assert_eq!(lists(&site), listed, "the hub listed anew\n{}", site.last_log());
    let again = site.server.log().totals(|record| record.path == SERVICES && record.watch).requests;
    assert!(again >= watched + 4, "it watched anew, each time");
    sleep(Duration::from_millis(100)).await;
    recorder.mark_quiescent(|_| true);
    let model = site.server.cluster().history("services");
    let sessions = recorder.sessions();
    if let Err(violation) = check(&model, &sessions) {
        let session = &sessions[violation.session];
        panic!("{violation}\n{} {:?}", session.client, session.request);
    }
    for client in &clients {
        check_converged(&model, client.scope(), &client.state()).unwrap();
        let progress = client.progress();
        assert_eq!(progress.lists, 1, "resumed, not listed anew: {progress:?}");
        assert!(progress.watches > 1, "the kill was noticed: {progress:?}");
        assert!(progress.errors.keys().all(|code| *code == 0), "{progress:?}");
    }
}

/// How often the API server was asked for all objects; a look at one of them, to see whether it was restored, is none.
fn lists(site: &Site) -> usize {
    let is_list = |query: &str| !query.split('&').any(|part| part == "limit=1");
    site.server
        .log()
        .totals(|record| record.path == SERVICES && !record.watch && is_list(&record.query))
        .requests
}
