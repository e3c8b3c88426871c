//! What a standby does with requests for objects: hands them to the leader, for whoever asked. Streams end when the leader changes, so
//! that watches move to the next one at once, and reads that lost their leader wait for it.

use std::sync::Arc;
use std::time::Duration;

use aggregated_api::{Intercept, User, body, failure};
use arc_swap::ArcSwapOption;
use axum::BoxError;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, Stream, StreamExt};
use http::request::Parts;
use http::{HeaderName, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use kube_wire::request::{RequestInfo, ResourcePath, Verb};
use kube_wire::status::Status;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::replica::ask_for;
use crate::storage::NodeMetrics;
use crate::store::Phase;

/// The longest body that is handed on, as long as the API server takes any.
const BODY_MAX: usize = 3 << 20;

/// How long a read waits for a leader: longer than a take-over takes when nothing else is wrong.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a leader may take to begin an answer: a list of all that it holds is made in a few seconds. Connections to one that is cut off
/// last for many minutes.
const BEGIN: Duration = Duration::from_secs(15);

/// Headers of one connection, or of one credential: not handed on.
const NOT_HANDED_ON: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The way to a leader.
#[derive(Clone)]
pub struct Leader {
    /// Reaches it, with this replica's certificate.
    pub client: Client,
    /// `host:port`, for logs.
    pub address: String,
}

/// Hands requests to the leader, while another replica is it.
pub struct StandbyProxy {
    source: Arc<NodeMetrics>,
    leader: ArcSwapOption<Leader>,
    /// Counts leaders: a stream ends when the count changes.
    changes: watch::Sender<u64>,
}

impl StandbyProxy {
    /// Knows no leader yet.
    pub fn new(source: Arc<NodeMetrics>) -> Arc<Self> {
        Arc::new(Self { source, leader: ArcSwapOption::empty(), changes: watch::Sender::new(0) })
    }

    /// From now on requests go to `leader`, or to nobody; streams of the one before end.
    pub fn set_leader(&self, leader: Option<Leader>) {
        self.leader.store(leader.map(Arc::new));
        self.changes.send_modify(|count| *count += 1);
    }

    /// The leader that is known says nothing any more: its streams end, so that watches look for another way.
    pub fn let_go(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// The leader that is known.
    pub fn leader(&self) -> Option<Arc<Leader>> {
        self.leader.load_full()
    }

    fn leads(&self) -> bool {
        self.source.is_leading() && self.source.read(|store| store.phase() != Phase::Following)
    }

    /// Hands a request to the leader. A read that finds none, or loses it, waits for the next; `Err` if that is this replica.
    async fn hand_on(&self, user: User, request: Request) -> Result<Response, Request> {
        let (mut parts, body) = request.into_parts();
        let verb = RequestInfo::parse(&parts.method, &parts.uri).verb;
        let reads = matches!(verb, Verb::Get | Verb::List | Verb::Watch);
        // As where it is answered: what comes with a read says nothing, and is not waited for.
        let whole = if reads { Ok(Bytes::new()) } else { body::whole(body, BODY_MAX).await };
        let body = match whole {
            Ok(body) => body,
            Err(status) => return Ok(failure(&status)),
        };
        let until = Instant::now() + PATIENCE;
        let headers = parts.headers.clone();
        for name in NOT_HANDED_ON {
            parts.headers.remove(name);
        }
        ask_for(&user, &mut parts.headers);
        loop {
            // Before anything is looked at: no change falls between.
            let mut changes = self.changes.subscribe();
            if self.leads() {
                parts.headers = headers;
                return Err(Request::from_parts(parts, Body::from(body)));
            }
            let lost = match self.leader() {
                Some(leader) => match self.ask(&leader, &parts, &body, changes.clone()).await {
                    Ok(response) => return Ok(response),
                    Err(lost) => lost,
                },
                None => "no leader is known at the moment",
            };
            let next = tokio::time::timeout_at(until, changes.changed());
            if !reads || next.await.is_err() {
                return Ok(unavailable(lost));
            }
        }
    }

    /// What the leader answers, or why it does not.
    async fn ask(
        &self,
        leader: &Leader,
        parts: &Parts,
        body: &Bytes,
        mut changes: watch::Receiver<u64>,
    ) -> Result<Response, &'static str> {
        let is_watch = RequestInfo::parse(&parts.method, &parts.uri).verb == Verb::Watch;
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let mut request = http::Request::builder().method(parts.method.clone()).uri(path);
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&parts.headers);
        }
        let Ok(request) = request.body(kube::client::Body::from(body.to_vec())) else {
            return Ok(StatusCode::BAD_REQUEST.into_response());
        };
        let answer = tokio::select! {
            answer = leader.client.send(request) => answer,
            _ = changes.changed() => return Err("the leader has changed"),
            () = tokio::time::sleep(BEGIN) => return Err("the leader has not answered in time"),
        };
        match answer {
            Ok(answer) => {
                let (mut parts, body) = answer.into_parts();
                parts.headers.remove(header::CONNECTION);
                parts.headers.remove(header::TRANSFER_ENCODING);
                let ended = async move {
                    // An error means that this proxy is gone, and the stream with it.
                    let _ = changes.changed().await;
                };
                let (body, ended) = (body.into_data_stream(), ended.boxed());
                let body = if is_watch {
                    Body::from_stream(body.take_until(ended))
                } else {
                    Body::from_stream(whole(body, ended))
                };
                Ok(Response::from_parts(parts, body))
            }
            Err(error) => {
                tracing::debug!(%error, leader = leader.address, "the leader does not answer");
                Err("the leader does not answer")
            }
        }
    }
}

/// An answer that is of use only as a whole: what is cut short ends in an error, or a client may take it for all of it.
fn whole<E: Into<BoxError>>(
    body: impl Stream<Item = Result<Bytes, E>>,
    lost: BoxFuture<'static, ()>,
) -> impl Stream<Item = Result<Bytes, BoxError>> {
    stream::unfold(Some((Box::pin(body), lost)), |rest| async move {
        let (mut body, mut lost) = rest?;
        tokio::select! {
            biased;
            () = &mut lost => Some((Err("the leader has changed".into()), None)),
            piece = body.next() => piece.map(|piece| (piece.map_err(Into::into), Some((body, lost)))),
        }
    })
}

impl Intercept for StandbyProxy {
    fn intercept(
        &self,
        _path: ResourcePath,
        user: User,
        request: Request,
    ) -> BoxFuture<'_, Result<Response, Request>> {
        // A replica that leads answers by itself, and while it warms says so.
        if self.leads() {
            return futures::future::ready(Err(request)).boxed();
        }
        self.hand_on(user, request).boxed()
    }
}

fn unavailable(message: &str) -> Response {
    let mut status = Status::service_unavailable(message);
    status.details.get_or_insert_default().retry_after_seconds = 1;
    failure(&status)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::freshness::Now;
    use crate::store::{Settings, Store};

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_is_cut_off_keeps_nobody_waiting_for_ever() {
        let clock = || Now { steady: Duration::ZERO, wall: jiff::Timestamp::UNIX_EPOCH };
        let source = NodeMetrics::new(Store::new(Settings::default()), "v", clock, || false);
        let proxy = StandbyProxy::new(source);
        let nobody = |_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
        };
        let client = Client::new(tower::service_fn(nobody), "default");
        proxy.set_leader(Some(Leader { client, address: "cut-off".to_owned() }));
        let began = Instant::now();
        for method in [Method::GET, Method::PATCH] {
            let request = http::Request::builder().method(method).uri("/apis").body(Body::empty()).unwrap();
            let answer = proxy.hand_on(User::default(), request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
        }
        assert!(began.elapsed() <= 2 * (BEGIN + PATIENCE), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_body_that_is_not_handed_on_is_answered_with_why() {
        let clock = || Now { steady: Duration::ZERO, wall: jiff::Timestamp::UNIX_EPOCH };
        let source = NodeMetrics::new(Store::new(Settings::default()), "v", clock, || false);
        let proxy = StandbyProxy::new(source);
        let long = Body::from(vec![b' '; BODY_MAX + 1]);
        let broken =
            Body::from_stream(stream::iter([Ok(Bytes::from_static(b"{")), Err("the connection broke")]));
        for (body, code, reason) in [(long, 413, "RequestEntityTooLarge"), (broken, 400, "BadRequest")] {
            let request = http::Request::put("/apis").body(body).unwrap();
            let answer = proxy.hand_on(User::default(), request).await.unwrap();
            assert_eq!(answer.status().as_u16(), code);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &reason.into()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_with_a_read_is_not_read() {
        let clock = || Now { steady: Duration::ZERO, wall: jiff::Timestamp::UNIX_EPOCH };
        let source = NodeMetrics::new(Store::new(Settings::default()), "v", clock, || false);
        let proxy = StandbyProxy::new(source);
        let length = |request: http::Request<kube::client::Body>| async move {
            let length = request.into_body().collect().await.unwrap().to_bytes().len();
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(length.to_string())))
        };
        let client = Client::new(tower::service_fn(length), "default");
        proxy.set_leader(Some(Leader { client, address: "leader".to_owned() }));
        let path = "/apis/slo.koordinator.sh/v1beta1/nodemetrics";
        for read in [path.to_owned(), format!("{path}/n"), format!("{path}?watch=1")] {
            // It never ends.
            let begin = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(b"{"))]);
            let body = Body::from_stream(begin.chain(stream::pending()));
            let answer =
                proxy.hand_on(User::default(), http::Request::get(&read).body(body).unwrap()).await.unwrap();
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "0", "{read}");
        }
        let write = http::Request::put(format!("{path}/n")).body(Body::from("{}")).unwrap();
        let answer = proxy.hand_on(User::default(), write).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "2");
    }

    #[tokio::test]
    async fn a_list_that_is_cut_short_does_not_end_and_a_watch_does() {
        for (query, ends, expected) in [
            ("", false, vec![true, false]),
            ("?watch=1", false, vec![true]),
            ("", true, vec![true]),
            ("?watch=1", true, vec![true]),
        ] {
            let clock = || Now { steady: Duration::ZERO, wall: jiff::Timestamp::UNIX_EPOCH };
            let source = NodeMetrics::new(Store::new(Settings::default()), "v", clock, || false);
            let proxy = StandbyProxy::new(source);
            let begun = move |_: http::Request<kube::client::Body>| async move {
                let begin = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(b"{"))]);
                let rest = if ends { stream::empty().boxed() } else { stream::pending().boxed() };
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from_stream(begin.chain(rest))))
            };
            let client = Client::new(tower::service_fn(begun), "default");
            proxy.set_leader(Some(Leader { client, address: "frozen".to_owned() }));
            let path = format!("/apis/slo.koordinator.sh/v1beta1/nodemetrics{query}");
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let mut body =
                proxy.hand_on(User::default(), request).await.unwrap().into_body().into_data_stream();
            let mut pieces = vec![body.next().await.unwrap().is_ok()];
            if !ends {
                proxy.let_go();
            }
            pieces.extend(body.map(|piece| piece.is_ok()).collect::<Vec<_>>().await);
            assert_eq!(pieces, expected, "{query}, {ends}");
        }
    }
}
