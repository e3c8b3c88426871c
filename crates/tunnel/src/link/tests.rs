use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use http::{Method, Request, StatusCode};
use tokio::{
    io::{AsyncReadExt as _, duplex},
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    connector::Connector,
    crowd::Seat,
    destination::{Callers, Destination, Rule},
    doorway::Source,
    link::{
        ask::{Opening, open},
        fixture::{deaf, introduced, keep, peer, terms},
    },
    protocol::{HEADER_HOPS, MAX_STREAMS, OpenError},
    route::Step,
    serve,
    stream::TunnelStream,
    target::Target,
    view::{Node, Place, View},
    window,
};

/// Well within the minute after which a peer that acknowledges nothing loses its link.
const SOON: Duration = Duration::from_secs(30);

/// After that a link has what there is for it.
const GROWN: Duration = Duration::from_mins(1);

/// So many other links of a peer, and how many streams one has that is made beside them.
fn others(terms: &Terms, node: &str, count: usize) -> (Vec<Arc<Allowance>>, usize) {
    let most = terms.limits.links_of_a_peer_in_all;
    let take = || terms.table.allowances.take(node, most).unwrap();
    let others = (0..count).map(|_| take()).collect();
    (others, window::streams(take().bytes()) as usize)
}

/// A link between these two, at the end that asks. What is asked for is granted, and kept until it ends.
async fn link(asks: &Terms, answers: &Terms, tasks: &mut JoinSet<()>) -> Arc<Link> {
    let (near, far) = duplex(1 << 16);
    let (asks_terms, answers) = (asks.clone(), answers.clone());
    let ending = || Ending::at(CancellationToken::new());
    let mut changes = asks.table.changes();
    tasks.spawn(async move { drop(ask::run(near, peer("a1"), &asks_terms, &ending(), || {}).await) });
    tasks.spawn(async move {
        drop(answer::run(far, peer("c1"), &answers, &ending(), || {}, keep).await);
    });
    changes.changed().await.unwrap();
    candidate(asks).expect("no link")
}

fn candidate(asks: &Terms) -> Option<Arc<Link>> {
    let step = Step { direction: Direction::Reverse, peers: BTreeSet::from(["a1".to_owned()]) };
    asks.table.candidates(&step, Class::Interactive).pop()
}

/// A stream for a known caller.
async fn ask_for_one(link: &Arc<Link>) -> Result<TunnelStream, OpenError> {
    ask_at(link, None).await
}

async fn ask_at(link: &Arc<Link>, place: Option<Seat>) -> Result<TunnelStream, OpenError> {
    let target = Target::parse("a1:1", None).unwrap();
    let class = Class::Interactive;
    let opening = Opening { target: &target, class, hops: 0, source: None, request_id: "x" };
    timeout(Duration::from_secs(2), open(link, &opening, place)).await.unwrap_or(Err(OpenError::Timeout))
}

/// All streams that there are for one who comes after the other.
async fn fill(asks: &Terms, streams: &mut Vec<TunnelStream>) {
    while let Some(link) = candidate(asks) {
        match ask_for_one(&link).await {
            Ok(stream) => streams.push(stream),
            // Who asks goes on to another link.
            Err(error) => return assert_eq!(error, OpenError::NoLink),
        }
    }
}

/// As all are whose peer has a new certificate: they are made beside those that they replace.
#[tokio::test(start_paused = true)]
async fn a_link_made_beside_others_has_more_streams_when_those_are_gone() {
    for (at_asker, at_answerer) in [(12, 12), (12, 0), (0, 12)] {
        let ((asks, answers), mut tasks) = ((terms(), terms()), JoinSet::new());
        let (of_asker, asked) = others(&asks, "a1", at_asker);
        let (of_answerer, answered) = others(&answers, "c1", at_answerer);
        let may = asked.min(answered);
        assert!((1..100).contains(&may), "{may}");
        let link = link(&asks, &answers, &mut tasks).await;
        let unvouched = || {
            let one =
                |n: u32| link.unvouched_place(Source::from(IpAddr::from(n.to_be_bytes())), Arc::default());
            (0..).map_while(one).collect::<Vec<_>>().len()
        };
        assert_eq!(unvouched(), asked - asked.div_ceil(8));
        let mut streams = Vec::new();
        fill(&asks, &mut streams).await;
        assert_eq!(streams.len(), may, "{at_asker} and {at_answerer} others");
        assert!(candidate(&asks).is_none(), "who was refused once asks no more");
        assert_eq!(unvouched(), may - may.div_ceil(8));

        drop((of_asker, of_answerer));
        sleep(GROWN).await;
        assert!(candidate(&asks).is_some(), "{at_asker} and {at_answerer} others");
        fill(&asks, &mut streams).await;
        assert_eq!(streams.len(), MAX_STREAMS as usize, "{at_asker} and {at_answerer} others");
        assert_eq!(unvouched(), 896);
    }
}

/// They came before this end knew how few streams the other one takes.
#[tokio::test(start_paused = true)]
async fn clients_that_nobody_vouches_for_go_for_a_known_caller_from_a_link_that_takes_less() {
    let ((asks, answers), mut tasks) = ((terms(), terms()), JoinSet::new());
    let (_others, may) = others(&answers, "c1", 12);
    let link = link(&asks, &answers, &mut tasks).await;
    let (mut streams, mut leaves) = (Vec::new(), Vec::new());
    let source = Source::from(IpAddr::from([10, 0, 0, 1]));
    for _ in 0..may {
        let seat = link.unvouched_place(source, Arc::default()).unwrap();
        leaves.push(seat.leave().clone());
        streams.push(ask_at(&link, Some(seat)).await.unwrap());
    }
    let gone = || leaves.iter().filter(|leave| leave.is_cancelled()).count();
    let seat = link.unvouched_place(source, Arc::default()).unwrap();
    assert_eq!(ask_at(&link, Some(seat)).await.err(), Some(OpenError::NoLink));
    assert_eq!(gone(), 0, "for another of their own");
    assert_eq!(ask_for_one(&link).await.err(), Some(OpenError::NoLink));
    assert_eq!(gone(), may.div_ceil(8));
}

/// It is over at the end that asks, which has told the other one so, before anything of that other end has run.
#[tokio::test(start_paused = true)]
async fn who_goes_from_a_full_link_makes_place_for_the_next_at_once() {
    let ((asks, answers), mut tasks) = ((terms(), terms()), JoinSet::new());
    let (_others, may) = others(&answers, "c1", 12);
    let link = link(&asks, &answers, &mut tasks).await;
    let mut streams = Vec::new();
    fill(&asks, &mut streams).await;
    assert_eq!(streams.len(), may);
    for turn in 0..100 {
        drop(streams.swap_remove(turn % may));
        streams.push(ask_for_one(&link).await.unwrap());
    }
}

/// Those that are not granted yet count, at both ends.
#[tokio::test(start_paused = true)]
async fn those_that_come_at_once_have_no_more_streams_than_one_after_the_other() {
    for (at_asker, at_answerer) in [(12, 0), (0, 12)] {
        let ((asks, answers), mut tasks) = ((terms(), terms()), JoinSet::new());
        let (_of_asker, asked) = others(&asks, "a1", at_asker);
        let (_of_answerer, answered) = others(&answers, "c1", at_answerer);
        let link = link(&asks, &answers, &mut tasks).await;
        let mut asking = JoinSet::new();
        for _ in 0..500 {
            let link = link.clone();
            asking.spawn(async move { ask_for_one(&link).await });
        }
        let all = asking.join_all().await;
        let granted = all.iter().filter(|opened| opened.is_ok()).count();
        assert_eq!(granted, asked.min(answered), "{at_asker} and {at_answerer} others");
    }
}

/// Until its window is acknowledged, which may take a minute, another's destination would be connected to nobody.
#[tokio::test]
async fn a_stream_that_is_given_up_while_it_waits_for_room_is_let_go_at_once() {
    let (terms, mut tasks) = (terms(), JoinSet::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (to, from) = (Destination::NodeLoopback { domain: None }, Callers::All);
    let view = View {
        nodes: BTreeMap::from(
            [("c1", Place::Cloud), ("solo", Place::Edge)]
                .map(|(name, place)| (name.to_owned(), Node::of(place, None))),
        ),
        destinations: vec![Rule { to, ports: vec![port..=port], from }],
        ..View::default()
    };
    let view = watch::Sender::new(Arc::new(view));
    let (table, stats) = (terms.table.clone(), terms.stats.clone());
    let connector = Connector::new("c1", view.subscribe(), table.clone(), stats, terms.limits);
    let (ours, theirs) = deaf(&mut tasks);
    let peer =
        Peer { direction: Direction::Forward, domain: Domain::Solo("solo".to_owned()), ..peer("solo") };
    tasks.spawn(async move {
        let ending = Ending::at(CancellationToken::new());
        drop(serve::link(&connector, false, ours, peer, &terms, &ending, || {}).await);
    });
    let (mut send, _connection) = introduced(theirs).await;
    let mut ask = || {
        let asked = Request::builder().method(Method::CONNECT).uri(format!("c1:{port}"));
        send.send_request(asked.header(HEADER_HOPS, 1).body(()).unwrap(), false).unwrap()
    };
    let streams = || table.snapshot()[0].streams;

    let (response, first) = ask();
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    let _dialled = listener.accept().await.unwrap();
    let (_response, mut second) = ask();
    let mut dialled = listener.accept().await.unwrap().0;
    timeout(SOON, async {
        while streams() < 2 {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    second.send_reset(h2::Reason::CANCEL);
    let read = timeout(SOON, dialled.read(&mut [0])).await.expect("its destination is connected still");
    assert_eq!(read.unwrap_or_default(), 0);
    assert_eq!(streams(), 1);
    drop(first);
}
