//! Of a holder whose process ended: where its address refuses, the Lease need not expire.

use futures::FutureExt;

use super::*;

const TERM: Duration = Duration::from_millis(3_500);
const OVERDUE: Duration = Duration::from_millis(3_500 / 4);
const BRIEF: Duration = Duration::from_millis(100);

fn refused(_: SocketAddr) -> BoxFuture<'static, ()> {
    std::future::ready(()).boxed()
}

fn silent(_: SocketAddr) -> BoxFuture<'static, ()> {
    std::future::pending().boxed()
}

/// A candidate that listens at a port, and a way to tell it that a connection to the leader ended.
fn start_at(
    server: &Arc<Server>,
    identity: &str,
    port: Option<u16>,
    ask: fn(SocketAddr) -> BoxFuture<'static, ()>,
) -> (Running, watch::Sender<u64>) {
    let settings = Settings {
        namespace: "ns".to_owned(),
        name: "lease".to_owned(),
        identity: identity.to_owned(),
        timing: Timing::enduring(TERM).unwrap(),
        owner: None,
        at: port.map(|port| SocketAddr::from(([10, 0, 0, 1], port))),
    };
    let origin = Instant::now();
    let clock = Clock::from_fn(move || origin.elapsed());
    let metrics = Metrics::register(&mut Registry::default());
    let (mut election, receiver) = Election::new(server.client(), settings, clock, metrics.clone());
    election.ask = ask;
    let doubts = watch::Sender::new(0);
    let stop = CancellationToken::new();
    let task = tokio::spawn(election.doubting(doubts.subscribe()).run(stop.clone()));
    (Running { task, stop, guard: receiver.clone().into(), receiver, metrics }, doubts)
}

/// How long after the end of the leader's process the next one leads.
async fn followed(next: &mut Running, leader: Running) -> Duration {
    leader.task.abort();
    let ended = Instant::now();
    elected(next).await;
    ended.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_gone_is_followed_when_its_renewal_is_late_and_another_when_its_lease_expires() {
    for (port, ask, from, to) in [
        (Some(1), refused as fn(_) -> _, OVERDUE / 4, OVERDUE),
        (Some(1), silent, TERM * 4 / 5, TERM),
        // Of a version that does not say where it listens.
        (None, refused, TERM * 4 / 5, TERM),
    ] {
        let server = Arc::new(Server::default());
        let (mut a, _) = start_at(&server, "a", port, silent);
        elected(&mut a).await;
        let said = server.lease.lock().as_ref().unwrap()["metadata"]["annotations"][LEASE_ADDRESS].clone();
        assert_eq!(said, port.map_or(Value::Null, |port| format!("10.0.0.1:{port} a").into()));
        let (mut b, doubts) = start_at(&server, "b", Some(2), ask);
        seconds(30).await;
        doubts.send_modify(|count| *count += 1);
        let after = followed(&mut b, a).await;
        assert!((from..=to + BRIEF).contains(&after), "{port:?}: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_lives_is_not_followed_whatever_its_address_says() {
    let server = Arc::new(Server::default());
    let (mut a, _) = start_at(&server, "a", Some(1), silent);
    elected(&mut a).await;
    let (b, doubts) = start_at(&server, "b", Some(2), refused);
    for _ in 0..200 {
        doubts.send_modify(|count| *count += 1);
        tokio::time::sleep(Duration::from_millis(70)).await;
        assert!(a.guard.check().is_ok() && b.guard.check().is_err());
    }
    assert_eq!(server.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn who_begins_where_another_listened_knows_that_it_is_gone() {
    let server = Arc::new(Server::default());
    let (mut a, _) = start_at(&server, "a", Some(1), silent);
    elected(&mut a).await;
    seconds(30).await;
    a.task.abort();
    let left = server.lease.lock().clone();
    for (port, expected) in [(2, TERM), (1, OVERDUE)] {
        server.lease.lock().clone_from(&left);
        let (mut next, _) = start_at(&server, "next", Some(port), silent);
        let began = Instant::now();
        elected(&mut next).await;
        let after = began.elapsed();
        assert!((expected..=expected + BRIEF).contains(&after), "{port}: {after:?}");
        next.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stands_still_or_loses_all_for_two_seconds_costs_no_leadership() {
    let millis = Duration::from_millis;
    let cases = [(Mishap::Stall, millis(2_350)), (Mishap::Silence, millis(1_900))];
    for ((outage, lasts), start) in cases.into_iter().flat_map(|case| (0..10).map(move |start| (case, start)))
    {
        let server = Arc::new(Server::default());
        let (mut a, _) = start_at(&server, "a", Some(1), silent);
        elected(&mut a).await;
        let (b, _) = start_at(&server, "b", Some(2), silent);
        tokio::time::sleep(Duration::from_secs(10) + Duration::from_millis(100 * start)).await;
        *server.outage.lock() = Some(outage);
        tokio::time::sleep(lasts).await;
        *server.outage.lock() = None;
        for _ in 0..100 {
            assert!(a.guard.check().is_ok() && b.guard.check().is_err(), "{outage:?} {start}");
            tokio::time::sleep(BRIEF).await;
        }
    }
}
