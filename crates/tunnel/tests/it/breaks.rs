//! A connection that breaks is no connection that ends: whoever reads to the end gets all of it or an error.

use std::{
    future::pending,
    io::{self, ErrorKind},
    sync::Arc,
    time::Duration,
};

use testkit::wan::Weather;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    task::JoinSet,
    time::timeout,
};
use tunnel::relay::{Pipe, relay};

use crate::{
    faults::over,
    world::{Hub, SOON, World, destination, eventually, quick_to_notice, view},
};

/// How much is uploaded: no more than kernels keep for who does not read, and more than they have sent by then.
const UPLOAD: usize = 300_000;

/// Both ends of a connection.
async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// A destination that sends nothing and tells of the first byte; once it may go on it reads to the end and tells how many there were.
async fn collector(tasks: &mut JoinSet<()>) -> (u16, Arc<Notify>, mpsc::Receiver<io::Result<usize>>) {
    let (tell, told) = mpsc::channel(2);
    let go_on = Arc::<Notify>::default();
    let read_on = go_on.clone();
    let port = destination(tasks, move |mut client| {
        let (tell, read_on) = (tell.clone(), read_on.clone());
        async move {
            client.shutdown().await.unwrap();
            client.read_u8().await.unwrap();
            tell.send(Ok(1)).await.unwrap();
            read_on.notified().await;
            let mut rest = Vec::new();
            let end = client.read_to_end(&mut rest).await;
            tell.send(end.map(|read| read + 1)).await.unwrap();
        }
    })
    .await;
    (port, go_on, told)
}

async fn no_stream(hub: &Hub) {
    eventually("the stream is over", || hub.table.snapshot().iter().all(|link| link.streams == 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_an_upload_is_not_taken_for_a_whole_one() {
    let (world, mut tasks) = (World::with(view(), quick_to_notice()), JoinSet::new());
    let (cloud, edge, wan) = over(&world, Weather::CLEAR).await;
    let (port, go_on, mut told) = collector(&mut tasks).await;
    let mut upload = cloud.connect(&format!("a1:{port}")).await.unwrap();
    upload.write_all(&vec![7; UPLOAD]).await.unwrap();
    assert_eq!(timeout(SOON, told.recv()).await.unwrap().unwrap().unwrap(), 1);
    // Nobody hears of anybody any more.
    wan.rebind();
    no_stream(&edge).await;
    go_on.notify_one();
    let end = timeout(SOON, told.recv()).await.unwrap().unwrap();
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// What waits in the kernel when a stream ends in order is for the destination all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_upload_is_one() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge, _wan) = over(&world, Weather::CLEAR).await;
    let (port, go_on, mut told) = collector(&mut tasks).await;
    let mut upload = cloud.connect(&format!("a1:{port}")).await.unwrap();
    upload.write_all(&vec![7; UPLOAD]).await.unwrap();
    upload.shutdown().await.unwrap();
    assert_eq!(timeout(SOON, told.recv()).await.unwrap().unwrap().unwrap(), 1);
    no_stream(&edge).await;
    go_on.notify_one();
    assert_eq!(timeout(SOON, told.recv()).await.unwrap().unwrap().unwrap(), UPLOAD);
}

/// As at the end of a drain, or of the runtime.
#[tokio::test(flavor = "multi_thread")]
async fn both_ends_of_a_relay_that_is_dropped_notice() {
    let ((mut client, mut a), (mut b, mut server)) = (tcp().await, tcp().await);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(relay(&mut a, &mut b, Vec::new()).await) });
    client.write_all(b"x").await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'x');
    tasks.abort_all();
    for end in [&mut client, &mut server] {
        let end = timeout(SOON, end.read_u8()).await.unwrap();
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

/// Nothing of the client is read any more, so reading does not tell that it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_killed_before_a_destination_that_stands_still_is_noticed() {
    let (world, mut tasks) = (World::new(), JoinSet::new());
    let (cloud, edge, _wan) = over(&world, Weather::CLEAR).await;
    let port = destination(&mut tasks, |client| async move {
        let _unread = client;
        pending::<()>().await;
    })
    .await;
    let (mut client, mut served) = tcp().await;
    let mut upstream = cloud.connect(&format!("a1:{port}")).await.unwrap();
    tasks.spawn(async move {
        let ended = relay(&mut served, &mut upstream, Vec::new()).await.1;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
    let block = vec![7; 32 << 20];
    let written = timeout(Duration::from_secs(3), client.write_all(&block)).await;
    assert!(written.is_err(), "somebody read it");
    let streams = || {
        let links = [cloud.table.snapshot(), edge.table.snapshot()].concat();
        links.iter().map(|link| link.streams).sum::<usize>()
    };
    assert_eq!(streams(), 2);
    client.abort();
    drop(client);
    eventually("the stream is over at both ends", || streams() == 0).await;
}
