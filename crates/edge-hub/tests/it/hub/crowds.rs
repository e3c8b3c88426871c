//! Callers who have as many connections as they may, and others who want one.

use axum::body::Body;
use http::{Request, header};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use testkit::{api_server::access::User, client::connection::Endpoint};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::timeout,
};

use super::site::{JSON, Lines, SERVICES, SOON, Site, get, service};

const LIST: &str = "/api/v1/services?resourceVersion=0";
const WATCH: &str = "/api/v1/services?watch=1&resourceVersion=0";

/// Each opens twice as many as one user may have, so that together they want more than there are.
const CROWD: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];
const PLACES: usize = 32;
const EACH: usize = PLACES / 2;

/// A hub with few places and a Service, users of a crowd who may do what `allowed` says, and a reader.
async fn site(allowed: bool) -> Site {
    let mut site = Site::new().await;
    site.start_inside(|config| config.listeners.connections = PLACES).await;
    site.linked().await;
    site.server.cluster().create("services", service("a", "visible", 1)).unwrap();
    site.caught_up(SERVICES, &["visible"]).await;
    let access = site.server.cluster().access();
    access.set_authorizer(move |asked| allowed || !asked.user.name.starts_with("system:serviceaccount:a:c"));
    for name in CROWD.into_iter().chain(["reader"]) {
        access.add_token(name, User::service_account("a", name));
        // Another token of the same user.
        access.add_token(&format!("{name}-again"), User::service_account("a", name));
    }
    site
}

/// The tokens of a user by turns.
fn token(user: &str, number: usize) -> String {
    if number.is_multiple_of(2) { user.to_owned() } else { format!("{user}-again") }
}

/// A connection that is kept for one request after another.
struct Kept {
    sender: SendRequest<Body>,
    token: Option<String>,
    _driver: JoinSet<()>,
}

impl Kept {
    async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, token: Option<String>) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(io)).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move { _ = connection.await });
        Self { sender, token, _driver: driver }
    }

    /// The status of the next answer, which is read to its end; none where the connection is closed.
    async fn list(&mut self) -> Option<u16> {
        let mut request = Request::get(LIST).header(header::HOST, "127.0.0.1").header(header::ACCEPT, JSON);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        self.sender.ready().await.ok()?;
        let asked = self.sender.send_request(request.body(Body::empty()).unwrap());
        let answer = timeout(SOON, asked).await.expect("an answer").ok()?;
        let status = answer.status().as_u16();
        axum::body::to_bytes(Body::new(answer.into_body()), 1 << 20).await.ok()?;
        Some(status)
    }
}

async fn answers(endpoint: &Endpoint) -> Option<u16> {
    timeout(SOON, get(endpoint, LIST)).await.expect("an answer").map(|(status, _)| status)
}

#[tokio::test]
async fn watches_without_end_of_some_users_keep_neither_the_node_out_nor_others() {
    let site = site(true).await;
    let mut kubelets = Kept::over(site.connected_plain().await, None).await;
    assert_eq!(kubelets.list().await, Some(200));
    let mut watches = Vec::new();
    for (count, user) in CROWD.iter().enumerate() {
        for number in 0..EACH {
            let mut watch = Lines::open(&site.plain().with_token(&token(user, number)), WATCH).await;
            assert!(watch.brief().await.starts_with("ADDED visible@"), "{user}");
            watches.push(watch);
        }
        assert_eq!(answers(&site.plain()).await, Some(200), "the node's, after {count}");
        let reader = site.plain().with_token("reader");
        assert_eq!(answers(&reader).await, Some(200), "another user's, after {count}");
    }
    assert_eq!(kubelets.list().await, Some(200), "its connection is as it was");
    let mut open = 0;
    site.server.cluster().create("services", service("a", "another", 1)).unwrap();
    for watch in &mut watches {
        open += usize::from(watch.brief().await.starts_with("ADDED another@"));
    }
    assert!((PLACES / 2..=PLACES).contains(&open), "{open} watches go on");
}

#[tokio::test]
async fn connections_without_end_of_users_that_are_refused_all_keep_nobody_out() {
    let site = site(false).await;
    let mut readers = Kept::over(site.connected(&[]).await, Some("reader".to_owned())).await;
    assert_eq!(readers.list().await, Some(200));
    let node = || site.secure(Some(site.authority.client(&super::site::node()).unwrap()));
    let mut idle = Vec::new();
    for (count, user) in CROWD.iter().enumerate() {
        for number in 0..EACH {
            let mut one = Kept::over(site.connected(&[]).await, Some(token(user, number))).await;
            assert_eq!(one.list().await, Some(403), "{user}");
            idle.push(one);
        }
        assert_eq!(answers(&node()).await, Some(200), "the node's, after {count}");
        let reader = site.secure(None).with_token("reader");
        assert_eq!(answers(&reader).await, Some(200), "another user's, after {count}");
        assert_eq!(readers.list().await, Some(200), "its connection is as it was, after {count}");
    }
    let mut open = 0;
    for one in &mut idle {
        open += usize::from(one.list().await.is_some());
    }
    assert!((PLACES / 2..=PLACES).contains(&open), "{open} are open");
}
