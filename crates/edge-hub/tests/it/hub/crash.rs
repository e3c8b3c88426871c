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

/// How long a client pauses that comes back as soon as it can.
const AT_ONCE: Duration = Duration::from_millis(20);

/// client-go's first pause when a connection is refused, at the least. It is too short for the hub to be back, and the next ones are twice as long each.
const AS_CLIENT_GO: Duration = Duration::from_millis(800);

/// Who watches: its name, what, which labels, and its first pause. A quiet one is told of nothing, while several times the history passes by.
type Watcher = (&'static str, &'static str, &'static str, Duration);

const QUICK: [Watcher; 4] = [
    ("all", SERVICES, "", AT_ONCE),
    ("odd", SERVICES, "n=odd", AT_ONCE),
    ("of a", "/api/v1/namespaces/a/services", "", AT_ONCE),
    ("quiet", SERVICES, "n=none", AT_ONCE),
];

const SLOW: [Watcher; 3] = [
    ("slow", SERVICES, "", AS_CLIENT_GO),
    ("slow of a", "/api/v1/namespaces/a/services", "", AS_CLIENT_GO),
    ("slow quiet", SERVICES, "n=none", AS_CLIENT_GO),
];

#[tokio::test]
async fn a_kill_under_load_is_no_more_than_a_closed_connection() {
    let runs = Duration::from_millis(1100);
    killed(&QUICK, Kills { times: 4, runs, down: Duration::ZERO, load: Duration::from_secs(5) }).await;
}

/// As on a node: the unit starts the hub again after a second, and informers wait until they ask once more, 0.8 s, 1.6 s and 3.2 s.
#[tokio::test]
async fn clients_that_wait_as_client_go_does_miss_nothing_of_a_kill() {
    let watchers: Vec<Watcher> = QUICK.into_iter().chain(SLOW).collect();
    let [runs, down] = [4, 1].map(Duration::from_secs);
    let clients = killed(&watchers, Kills { times: 2, runs, down, load: Duration::from_secs(10) }).await;
    for (client, (name, .., pause)) in
        clients.iter().zip(&watchers).filter(|(_, (.., pause))| *pause != AT_ONCE)
    {
        // Both kills broke its watch, and it came back too early once.
        let progress = client.progress();
        assert!(progress.errors[&0] >= 3, "{name} with {pause:?}: {progress:?}");
    }
}

/// How often the hub is killed, how long it runs before each time, after what time it is started again; and for how long objects are written.
struct Kills {
    times: usize,
    runs: Duration,
    down: Duration,
    load: Duration,
}

async fn killed(watchers: &[Watcher], Kills { times, runs, down, load }: Kills) -> Vec<TestClient> {
    let mut site = Site::started().await;
    let recorder = Recorder::default();
    let mut clients: Vec<TestClient> = watchers
        .iter()
        .map(|(name, path, labels, pause)| {
            let mut options = ClientOptions { backoff: *pause, ..ClientOptions::new(name, path) };
            (*labels).clone_into(&mut options.labels);
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
        for n in 0..RATE * load.as_secs() {
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
    for _ in 0..times {
        sleep(runs).await;
        site.kill();
        sleep(down).await;
        site.start();
    }
    writing.await.unwrap();
    let last = site.server.cluster().create("services", service("a", "last", 1)).unwrap();
    let mut silent = service("a", "silent", 1);
    silent["metadata"]["labels"]["n"] = "none".into();
    let silent = site.server.cluster().create("services", silent).unwrap();
    for (client, (.., labels, _)) in clients.iter_mut().zip(watchers) {
        let (key, wanted) = if *labels == "n=none" { ("a/silent", &silent) } else { ("a/last", &last) };
        assert!(
            client.wait_for(SOON, |state| state.get(key) == Some(wanted)).await,
            "{:?}\n{}",
            client.progress(),
            site.last_log()
        );
    }
    // What was handed over to the system before a kill is enough to go on from.
    assert_eq!(lists(&site), listed, "the hub listed anew\n{}", site.last_log());
    let again = site.server.log().totals(|record| record.path == SERVICES && record.watch).requests;
    assert!(again >= watched + times, "it watched anew, each time");
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
    clients
}

/// How often the API server was asked for all objects; a look at one of them, to see whether it was restored, is none.
fn lists(site: &Site) -> usize {
    let is_list = |query: &str| !query.split('&').any(|part| part == "limit=1");
    site.server
        .log()
        .totals(|record| record.path == SERVICES && !record.watch && is_list(&record.query))
        .requests
}
