//! Takes reports: `POST /report/v1` over TLS 1.3 from those who hold a node's certificate. Who the other end is is found once a
//! connection, and looked at again when whose signatures count has changed; no token is reviewed and nothing is asked of the API server.
//!
//! In: the store, who leads. It must not answer 200 while another replica may lead: leadership is asked for at each report.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt as _;
use http::{HeaderValue, StatusCode, Version, header};
use node_report::http::{CONTENT_TYPE, LEADER_HEADER, MAX_BYTES, PATH};
use node_report::{Answer, Message, Report, Verdict};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::admission::{Admission, Admitted, Asking};
use crate::metrics::{Metrics, Taken};
use crate::storage::NodeMetrics;
use crate::store::{Outcome, Phase, Reply};

pub mod authorities;
pub mod reporter;
mod serving;
mod under_way;

pub use authorities::{ClientAuthorities, server_config};
pub use reporter::Reporter;
pub use serving::serve;
use under_way::UnderWay;

/// How long a report may take to come in. Hubs give up after half of it.
const READING: Duration = Duration::from_secs(10);

/// What the listener needs to know.
pub struct Reports {
    /// Where reports go.
    pub source: Arc<NodeMetrics>,
    /// Which of them are shed.
    pub admission: Mutex<Admission>,
    /// `host:port` of the leader's listener, if it is known.
    pub leader: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// What is counted.
    pub metrics: Metrics,
}

/// What answers those whose certificate `authorities` trust at each report: a connection whose authority was removed is refused and ends. To be
/// served by [`serve`], or with connection info [`Reporter`].
pub fn router(reports: Arc<Reports>, authorities: Arc<ClientAuthorities>) -> Router {
    Router::new().route(PATH, post(report)).with_state(Served {
        reports,
        authorities,
        under_way: Arc::default(),
    })
}

#[derive(Clone)]
struct Served {
    reports: Arc<Reports>,
    authorities: Arc<ClientAuthorities>,
    under_way: Arc<UnderWay>,
}

async fn report(
    State(served): State<Served>,
    ConnectInfo(reporter): ConnectInfo<Reporter>,
    request: Request,
) -> Response {
    let version = request.version();
    let (taken, mut response) = match served.answer(&reporter, request).await {
        Ok(answered) => answered,
        Err(refused) => refused.into(),
    };
    // HTTP/2 has no such word: each report over such a connection is refused.
    if response.status() == StatusCode::UNAUTHORIZED && version <= Version::HTTP_11 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    served.reports.metrics.report(taken);
    response
}

/// Why a report was not looked at.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the certificate is no node's, or has expired")]
    NoNode,
    #[error("the certificate's authority is not trusted any more")]
    Distrusted,
    #[error("the report is of node {0:?}, and the certificate of another")]
    OtherNode(String),
    #[error("{0}")]
    Malformed(String),
    #[error("longer than {MAX_BYTES} bytes")]
    Long,
    #[error("the report did not come in within {READING:?}")]
    Slow,
    #[error("this replica does not lead")]
    Misdirected(Option<String>),
    #[error("the cluster has no such node")]
    Unknown,
    #[error("more reports come than can be taken")]
    Shed(u64),
}

impl From<Refused> for (Taken, Response) {
    fn from(refused: Refused) -> Self {
        let text = refused.to_string();
        let plain = |status: StatusCode| (status, text.clone()).into_response();
        match refused {
            Refused::NoNode | Refused::OtherNode(_) => (Taken::Forbidden, plain(StatusCode::FORBIDDEN)),
            Refused::Distrusted => (Taken::Forbidden, plain(StatusCode::UNAUTHORIZED)),
            Refused::Malformed(_) => (Taken::Malformed, plain(StatusCode::BAD_REQUEST)),
            Refused::Long => (Taken::Malformed, plain(StatusCode::PAYLOAD_TOO_LARGE)),
            Refused::Slow => (Taken::Malformed, plain(StatusCode::REQUEST_TIMEOUT)),
            Refused::Unknown => (Taken::Unknown, plain(StatusCode::NOT_FOUND)),
            Refused::Misdirected(leader) => {
                let mut response = plain(StatusCode::MISDIRECTED_REQUEST);
                if let Some(leader) = leader.and_then(|leader| HeaderValue::from_str(&leader).ok()) {
                    response.headers_mut().insert(LEADER_HEADER, leader);
                }
                (Taken::Misdirected, response)
            }
            Refused::Shed(seconds) => {
                let mut response = plain(StatusCode::TOO_MANY_REQUESTS);
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
                (Taken::Shed, response)
            }
        }
    }
}

impl Served {
    async fn answer(&self, reporter: &Reporter, request: Request) -> Result<(Taken, Response), Refused> {
        let Self { reports, authorities, under_way } = self;
        let now = reports.source.now().wall;
        let node = reporter.node(now).ok_or(Refused::NoNode)?;
        if !reporter.is_trusted(authorities, now) {
            return Err(Refused::Distrusted);
        }
        let _reading = under_way.begin(&node).ok_or(Refused::Shed(1))?;
        if let Err(refused) = reports.admit(&node) {
            // Of HTTP/1.1 the connection would end with what is unread of it, and its handshake costs more than the report.
            if request.version() <= Version::HTTP_11 {
                let _ = timeout(READING, pass_over(request.into_body())).await;
            }
            return Err(refused);
        }
        let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind != Some(CONTENT_TYPE.as_bytes()) {
            return Err(Refused::Malformed(format!("the content type is not {CONTENT_TYPE}")));
        }
        let body = timeout(READING, axum::body::to_bytes(request.into_body(), MAX_BYTES)).await;
        let body = body.map_err(|_| Refused::Slow)?.map_err(|_| Refused::Long)?;
        let report = Report::read(&body).map_err(|error| Refused::Malformed(error.to_string()))?;
        if report.node != *node {
            return Err(Refused::OtherNode(report.node));
        }
        let knows = report.policy_hash;
        // Asked again: reading the body may have taken its time.
        if !reports.source.is_leading() {
            return Err(Refused::Misdirected((reports.leader)()));
        }
        let mut interval = Duration::ZERO;
        let outcome = reports.source.change(|store, now| {
            let outcome = store.report(now, report);
            if let Outcome::Judged { reply, .. } = &outcome {
                interval = reports.admission.lock().interval(now.steady, reply.policy.interval);
                store.ask_for(&node, interval);
            }
            outcome
        });
        match outcome {
            Outcome::Judged { verdict, reply } => Ok(reports.judged(verdict, &reply, interval, knows)),
            Outcome::Superseded | Outcome::NotLeading => Err(Refused::Misdirected((reports.leader)())),
            Outcome::Unknown => Err(Refused::Unknown),
        }
    }
}

/// Reads a body and keeps nothing of it.
async fn pass_over(body: Body) {
    let mut left = MAX_BYTES;
    let mut chunks = body.into_data_stream();
    while let Some(Ok(chunk)) = chunks.next().await {
        left = match left.checked_sub(chunk.len()) {
            Some(left) => left,
            None => return,
        };
    }
}

impl Reports {
    /// Before the body is read: a report that is shed costs nothing else.
    fn admit(&self, node: &Arc<str>) -> Result<(), Refused> {
        let now = self.source.now();
        let (phase, epoch, known, is_listed) = self
            .source
            .read(|store| (store.phase(), store.epoch(), store.silence(node, now), store.knows_nodes()));
        if phase == Phase::Following || !self.source.is_leading() {
            return Err(Refused::Misdirected((self.leader)()));
        }
        if known.is_none() && !is_listed {
            // It has only just begun. Which Nodes there are is found sooner than another leader.
            return Err(Refused::Shed(1));
        }
        let (silent, interval) = known.unwrap_or((None, crate::policy::INTERVAL));
        let asking = Asking { name: node, epoch, is_node: known.is_some(), silent, interval };
        match self.admission.lock().admit(now.steady, &asking) {
            Admitted::Taken => Ok(()),
            Admitted::Shed { retry_after } => Err(Refused::Shed(retry_after)),
        }
    }

    fn judged(
        &self,
        verdict: Verdict,
        reply: &Reply,
        interval: Duration,
        knows: Option<u64>,
    ) -> (Taken, Response) {
        let Reply { epoch, held, policy } = reply;
        let now = self.source.now();
        let hash = policy.hash_for(knows);
        let (incarnation, acked_seq) = held.unwrap_or_default();
        let answer = Answer {
            epoch: *epoch,
            leader: (self.leader)().unwrap_or_default(),
            incarnation,
            acked_seq,
            dropped: verdict == Verdict::Drop,
            interval_ms: u32::try_from(interval.as_millis()).unwrap_or(u32::MAX),
            policy_hash: Some(hash),
            policy: (knows != Some(hash)).then(|| policy.wire.clone()),
            server_time_ms: now.wall.as_millisecond(),
        };
        let (taken, status) = match verdict {
            Verdict::Drop => (Taken::Dropped, StatusCode::OK),
            Verdict::NeedFull => (Taken::NeedsFull, StatusCode::CONFLICT),
            Verdict::Take | Verdict::Superseded => (Taken::Taken, StatusCode::OK),
        };
        let body = Body::from(answer.encode_to_vec());
        (taken, (status, [(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response())
    }
}

#[cfg(test)]
mod tests;
