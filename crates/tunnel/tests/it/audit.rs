//! What is refused leaves a line: who, what, and why; but strangers do not fill the log.

use std::{net::SocketAddr, sync::Arc};

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::ServerName;
use testkit::log::Log;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    net::{TcpSocket, TcpStream},
};
use tokio_util::sync::CancellationToken;
use tracing::Level;
use tunnel::{
    ending::Ending,
    ingress::{
        Ingress,
        arrival::Arrival,
        http::{Form, serve_http},
        sni::serve_sni,
    },
    protocol::OpenError,
    view::View,
};

use crate::world::{SOON, World, eventually, links, own_address};

/// The events of one target, from warnings up: who asks, for what, and why not.
fn warnings(target: &'static str) -> Log {
    Log::of(target, Level::WARN, &["caller", "wanted", "reason"])
}

/// The first message of a client that dialled this.
fn client_hello(name: ServerName<'static>) -> Vec<u8> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let mut first = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut first).unwrap();
    first
}

#[tokio::test]
async fn every_refusal_is_told_of() {
    let audit = warnings("tunnel::audit");
    let _here = tracing::subscriber::set_default(audit.clone());
    let taken = || audit.take_fields();
    let world = World::new();
    let cloud = world.hub("c1", true);
    let form = Form::Host([9100].into());
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "test client; GET of a b; malformed; "),
        ("GET /?token=secret HTTP/1.1\r\nHost: u:secret@a1\r\n\r\n", "test client; GET of a1; malformed; "),
        ("GET / HTTP/1.1\r\nHost: a1:22\r\n\r\n", "test client; a1:22; not_allowed; "),
        ("GET / HTTP/1.1\r\nHost: nobody:22\r\n\r\n", "test client; nobody:22; not_allowed; "),
        ("CONNECT a1:9 HTTP/1.1\r\nHost: x\r\n\r\n", "test client; CONNECT a1:9 of x; malformed; "),
        ("GET / HTTP/1.1\r\nHost: nobody\r\n\r\n", "test client; nobody:9100; unknown; "),
    ] {
        let (mut client, server) = duplex(4096);
        client.write_all(request.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let ending = Ending::at(CancellationToken::new());
        let ingress = cloud.ingress();
        let arrival = Arrival::uncounted();
        let whole = serve_http(&ingress, server, "client", &arrival, &form, &ending);
        tokio::time::timeout(SOON, whole).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(taken(), [expected], "{request}");
    }
    // TLS that names no server, as of whoever dials an address; and what is no TLS.
    let no_name = client_hello(ServerName::IpAddress(own_address().into()));
    for (first, expected) in [
        (
            no_name,
            "test client; port 10250: no server name: dial the node's name, not its address; malformed; ",
        ),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "test client; port 10250: malformed; malformed; "),
    ] {
        let (mut client, server) = duplex(4096);
        client.write_all(&first).await.unwrap();
        let ingress = cloud.ingress();
        tokio::time::timeout(SOON, serve_sni(&ingress, server, "client", &Arrival::uncounted(), 10250))
            .await
            .unwrap();
        assert_eq!(taken(), [expected]);
    }
    // An address that nodes of several other domains have.
    world.view.send_modify(|view| {
        let mut elsewhere = View::clone(view);
        for node in ["a1", "solo"] {
            elsewhere.nodes.get_mut(node).unwrap().addresses = vec!["198.51.100.7".parse().unwrap()];
        }
        *view = Arc::new(elsewhere);
    });
    let address = "198.51.100.7:10250".to_owned();
    assert_eq!(cloud.connect(&address).await.err(), Some(OpenError::Ambiguous));
    assert_eq!(taken(), [format!("test; {address}; ambiguous; ")]);
}

/// Of those whom nobody vouches for; others have a line each.
#[tokio::test]
async fn clients_that_nobody_knows_have_a_line_for_all_of_them() {
    let audit = warnings("tunnel::audit");
    let _here = tracing::subscriber::set_default(audit.clone());
    let world = World::new();
    let cloud = world.hub("c1", true);
    for (vouched, expected) in [(false, 2), (true, 40)] {
        for number in 0..40 {
            let (mut client, server) = duplex(4096);
            let host = if number % 2 == 0 { "nobody:9100" } else { "a1:22" };
            client.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let (ending, arrival) = (Ending::at(CancellationToken::new()), Arrival::uncounted());
            let ingress = Ingress { vouched, ..cloud.ingress() };
            serve_http(&ingress, server, "client", &arrival, &Form::Host([9100].into()), &ending).await;
        }
        assert_eq!(audit.take().len(), expected);
    }
}

#[tokio::test]
async fn strangers_do_not_fill_the_log() {
    let log = warnings("tunnel::gateway");
    let _here = tracing::subscriber::set_default(log.clone());
    let world = World::new();
    let mut cloud = world.hub("c1", true);
    let address = cloud.listen().await;
    for _ in 0..50 {
        TcpStream::connect(address).await.unwrap().write_all(b"no TLS at all").await.unwrap();
    }
    eventually("all have failed", || cloud.stats.snapshot().links_failed == 50).await;
    let lines = log.take().len();
    assert!((1..=5).contains(&lines), "{lines} lines");
}

/// Its links are dialled again and again, each for the same reason.
#[tokio::test]
async fn a_gateway_that_is_not_there_is_told_of_once() {
    let log = warnings("tunnel::agent");
    let _here = tracing::subscriber::set_default(log.clone());
    let world = World::new();
    let mut edge = world.hub("a1", false);
    // Nobody else gets its port, and nobody listens there.
    let gone = TcpSocket::new_v4().unwrap();
    gone.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    edge.desired.send_replace(links("c1", gone.local_addr().unwrap(), 1));
    edge.dial();
    eventually("each has failed several times", || edge.stats.snapshot().links_failed >= 20).await;
    assert_eq!(log.take().len(), 1);
    drop(gone);
}
