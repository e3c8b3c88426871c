//! What a peer sends and nobody reads: all its links and streams together have this process hold so much and no more, and no stream is left without any.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use h2::SendStream;
use http::Response;
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::client::TlsStream;
use tunnel::{
    protocol::{ALPN_REVERSE, OpenError, VERSION},
    window,
};

use crate::{
    hostile::raw,
    world::{SOON, World},
};

/// What was sent over each stream.
type Sent = Arc<parking_lot::Mutex<Vec<Arc<AtomicUsize>>>>;

fn of_each(sent: &Sent) -> Vec<usize> {
    sent.lock().iter().map(|sent| sent.load(Ordering::Relaxed)).collect()
}

fn in_all(sent: &Sent) -> usize {
    of_each(sent).iter().sum()
}

/// A node that says yes to whatever it is asked for, and sends as much as it may.
async fn flood(connection: TlsStream<TcpStream>, sent: Sent) {
    let mut server = h2::server::handshake(connection).await.unwrap();
    let (_, mut respond) = server.accept().await.unwrap().unwrap();
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    let hello = format!(r#"{{"protocol":{VERSION},"instance":"x","class":"interactive"}}"#);
    body.send_data(hello.into(), true).unwrap();
    let mut streams = JoinSet::new();
    while let Some(Ok((_, mut respond))) = server.accept().await {
        let stream = respond.send_response(Response::new(()), false).unwrap();
        let count = Arc::<AtomicUsize>::default();
        sent.lock().push(count.clone());
        streams.spawn(send_all(stream, count));
    }
}

async fn send_all(mut stream: SendStream<Bytes>, count: Arc<AtomicUsize>) {
    loop {
        stream.reserve_capacity(64 * 1024);
        while stream.capacity() == 0 {
            let Some(Ok(_)) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        }
        // What there is a window for, of the stream and of the connection: the other end has to take it.
        let granted = stream.capacity();
        count.fetch_add(granted, Ordering::Relaxed);
        if stream.send_data(vec![7; granted].into(), false).is_err() {
            return;
        }
    }
}

/// All links and streams that there can be, opened one after the other, so that each is filled before the next narrows it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_peer_sends_and_nobody_reads_is_bounded() {
    const STREAMS: usize = 100;
    let bound = window::PEER as usize;
    let (mut world, mut tasks) = (World::new(), JoinSet::new());
    world.limits.streams = u32::try_from(STREAMS).unwrap();
    let links = world.limits.links_of_a_peer;
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    let sent = Sent::default();
    for made in 1..=links {
        let connection = raw(&world.authority, "a1", address, Some(ALPN_REVERSE)).await.unwrap();
        tasks.spawn(flood(connection, sent.clone()));
        cloud.links(made).await;
    }
    let mut unread = Vec::new();
    loop {
        match cloud.connect("a1:10250").await {
            Ok(stream) => unread.push(stream),
            Err(error) => {
                assert_eq!(error, OpenError::NoLink);
                break;
            }
        }
        assert!(in_all(&sent) <= bound, "{} bytes over {} streams", in_all(&sent), unread.len());
    }
    assert!(unread.len() > links * STREAMS / 2, "{} streams", unread.len());
    // Until nothing more is taken.
    let (began, mut before) = (Instant::now(), None);
    while before != Some(in_all(&sent)) {
        assert!(began.elapsed() < SOON, "it goes on");
        before = Some(in_all(&sent));
        sleep(Duration::from_millis(500)).await;
    }
    println!("{} bytes over {links} links and {} streams", in_all(&sent), unread.len());
    assert!((bound / 4..=bound).contains(&in_all(&sent)), "{} bytes", in_all(&sent));
    // None has nothing, be it the last that came.
    assert_eq!(of_each(&sent).len(), unread.len());
    let least = of_each(&sent).into_iter().min().unwrap();
    assert!(least >= window::NARROWEST as usize, "{least} bytes of one");
    // And whoever is read goes on, while all others stand still.
    let read = async {
        let mut data = vec![0; 256 * 1024];
        unread.last_mut().unwrap().read_exact(&mut data).await.unwrap();
    };
    timeout(SOON, read).await.expect("it stands still, too");
    // What is not wanted any more makes room.
    unread.clear();
    let mut stream = cloud.connect("a1:10250").await.unwrap();
    let read = async { stream.read_exact(&mut vec![0; 16 * 1024 * 1024]).await.map(drop) };
    timeout(SOON, read).await.expect("it stands still").unwrap();
}
