//! Of a process that stands for election again: nothing of a term outlives it, and no two lead at once.

use super::*;
use crate::leader::Candidacy;

/// Who leads now, by what each of them believes; and how often somebody began to.
#[derive(Clone, Default)]
struct Log {
    leading: Arc<Mutex<Vec<(String, LeadershipGuard)>>>,
    begun: Arc<AtomicUsize>,
}

/// What leads: it is in the log until it is dropped.
struct InOffice(Log, String);

impl Drop for InOffice {
    fn drop(&mut self) {
        self.0.leading.lock().retain(|(name, _)| *name != self.1);
    }
}

impl Log {
    fn enter(&self, name: &str, guard: LeadershipGuard) -> InOffice {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.leading.lock().push((name.to_owned(), guard));
        InOffice(self.clone(), name.to_owned())
    }

    fn leaders(&self) -> Vec<String> {
        let leading = self.leading.lock();
        leading.iter().filter(|(_, guard)| guard.check().is_ok()).map(|(name, _)| name.clone()).collect()
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }
}

/// A process that leads whenever it can, until `end`; `ends_itself`: what leads heeds `end`.
fn serve(
    server: &Arc<Server>,
    identity: &str,
    log: &Log,
    end: &CancellationToken,
    ends_itself: bool,
) -> JoinHandle<()> {
    let origin = Instant::now();
    let settings = Settings {
        namespace: "ns".to_owned(),
        name: "lease".to_owned(),
        identity: identity.to_owned(),
        timing: Timing::within(Duration::from_secs(3)).unwrap(),
        owner: None,
        at: None,
    };
    let candidacy = Candidacy {
        client: server.client(),
        settings,
        clock: Clock::from_fn(move || origin.elapsed()),
        metrics: Metrics::register(&mut Registry::default()),
    };
    let (log, end, name) = (log.clone(), end.clone(), identity.to_owned());
    tokio::spawn(async move {
        while !end.is_cancelled() {
            let lead = |guard: LeadershipGuard| async {
                let _in_office = log.enter(&name, guard);
                tokio::select! {
                    () = end.cancelled(), if ends_itself => {}
                    () = std::future::pending() => {}
                }
            };
            candidacy.term(lead, &end).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn who_lost_its_leadership_leads_again_and_its_first_term_is_over() {
    let (server, log, end) = (Arc::new(Server::default()), Log::default(), CancellationToken::new());
    let process = serve(&server, "a", &log, &end, true);
    seconds(30).await;
    assert_eq!((log.leaders(), log.begun()), (vec!["a".to_owned()], 1));

    *server.outage.lock() = Some(Mishap::Silence);
    seconds(3).await;
    assert_eq!(log.leading.lock().len(), 0, "what led is dropped with its leadership");
    seconds(30).await;
    *server.outage.lock() = None;
    seconds(3).await;
    assert_eq!((log.leaders(), log.begun()), (vec!["a".to_owned()], 2));

    end.cancel();
    process.await.unwrap();
    assert_eq!(server.holder(), "", "given away at the end");
}

#[tokio::test(start_paused = true)]
async fn of_two_the_other_follows_one_that_is_cut_off_within_a_lease_and_one_that_ends_at_once() {
    let (server, log) = (Arc::new(Server::default()), Log::default());
    let ends: Vec<_> = ["a", "b"].map(|_| CancellationToken::new()).into();
    let a = serve(&server, "a", &log, &ends[0], true);
    seconds(1).await;
    let b = serve(&server, "b", &log, &ends[1], false);
    seconds(30).await;
    assert_eq!(log.leaders(), ["a"]);

    // It dies without a word.
    a.abort();
    let died = Instant::now();
    while log.leaders() != ["b"] {
        assert!(log.leading.lock().len() <= 1, "never two");
        assert!(died.elapsed() < Duration::from_millis(3_100), "{:?}", died.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    // It is asked to end, and what leads there does not heed it: it is cut off, and the Lease is free before it ran out.
    let end = CancellationToken::new();
    let c = serve(&server, "c", &log, &end, true);
    seconds(10).await;
    let asked = Instant::now();
    ends[1].cancel();
    b.await.unwrap();
    while log.leaders() != ["c"] {
        assert!(asked.elapsed() < Duration::from_millis(1_100), "{:?}", asked.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    end.cancel();
    c.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_is_not_elected_ends_at_once() {
    let (server, log) = (Arc::new(Server::default()), Log::default());
    let ends: Vec<_> = ["a", "b"].map(|_| CancellationToken::new()).into();
    let _a = serve(&server, "a", &log, &ends[0], true);
    seconds(1).await;
    let b = serve(&server, "b", &log, &ends[1], true);
    seconds(10).await;
    let asked = Instant::now();
    ends[1].cancel();
    b.await.unwrap();
    assert!(asked.elapsed() < Duration::from_millis(10), "{:?}", asked.elapsed());
    assert_eq!((log.leaders(), log.begun()), (vec!["a".to_owned()], 1));
    ends[0].cancel();
}
