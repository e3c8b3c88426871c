use std::{net::TcpListener, time::Duration};

use tokio::{runtime::Handle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{super::plan::Plan, *};

/// What the cluster is told is what the kernel would say: nothing of an address that somebody else has, or that is closed.
#[tokio::test]
async fn only_what_listens_is_told_and_at_once() {
    let others = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = others.local_addr().unwrap();
    let free = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let state = State::new("c1", Handle::current());
    let plan = |addresses: &[SocketAddr]| Plan {
        role: Role::Gateway,
        ways_in: addresses.iter().map(|address| (*address, WayIn::Tls(10250))).collect(),
        ..Plan::default()
    };
    let (listening, retire) = (Open::default(), CancellationToken::new());
    let mut told = listening.subscribe();
    let all = Ending::new(retire.clone(), CancellationToken::new());
    let kept = tokio::spawn(keep(state.clone(), listening.clone(), all));
    let mut become_ = async |expected: &[SocketAddr]| {
        let expected: BTreeSet<SocketAddr> = expected.iter().copied().collect();
        let reached = timeout(Duration::from_secs(10), told.wait_for(|open| *open == expected)).await;
        assert!(reached.is_ok(), "{:?} is not {expected:?}", listening.borrow());
    };
    state.follow(plan(&[taken, free]));
    become_(&[free]).await;
    assert!(state.problems().iter().any(|problem| problem.contains(&format!("cannot listen on {taken}"))));
    drop(others);
    become_(&[taken, free]).await;
    state.follow(plan(&[taken]));
    become_(&[taken]).await;
    // Closed and opened again at once.
    state.follow(plan(&[]));
    become_(&[]).await;
    state.follow(plan(&[taken]));
    become_(&[taken]).await;
    retire.cancel();
    become_(&[]).await;
    timeout(Duration::from_secs(10), kept).await.unwrap().unwrap();
}
