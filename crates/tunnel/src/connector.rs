//! Opens streams: decides the way, dials or asks peers, and goes on to the next as long as no byte has passed.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::watch,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    audit,
    crowd::{Crowd, Seat},
    dial,
    doorway::Source,
    last_use::LastUse,
    link::ask::{Opening, open},
    links::table::LinkTable,
    protocol::{Class, Limits, MAX_HOPS, OpenError},
    relay::Pipe,
    route::{Direct, Origin, Route, Step, around, route},
    stats::Stats,
    stream::TunnelStream,
    target::Target,
    view::View,
};

/// A stream that somebody wants.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where to.
    pub target: Target,
    /// Where from. `None`: from a client of this node.
    pub origin: Option<Origin>,
    /// Who wants it, for the audit.
    pub caller: Arc<str>,
    /// Kind of traffic.
    pub class: Class,
    /// Nodes that it has passed.
    pub hops: u8,
    /// Whom nobody vouches for.
    pub unvouched: Option<Unvouched>,
    /// What is noted when bytes pass, by which it is seen who is idle where places are short.
    pub used: Arc<LastUse>,
    /// Ties its log lines together.
    pub request_id: Arc<str>,
    /// How long to wait for a link where there is none.
    pub patience: Duration,
}

/// A client that nobody vouches for.
#[derive(Debug, Clone)]
pub struct Unvouched {
    /// What it came in at, one of a fixed set.
    pub listener: &'static str,
    /// Where it is.
    pub source: Source,
}

/// A connection to where a stream goes.
#[derive(Debug)]
pub struct Upstream {
    way: Way,
    used: Arc<LastUse>,
    // Of what is dialled for a peer.
    seat: Option<Seat>,
}

#[derive(Debug)]
enum Way {
    /// Dialled by this node.
    Direct(TcpStream),
    /// Through a peer.
    Through(Box<TunnelStream>),
}

impl Upstream {
    /// Ends when this has to give its place to another: whoever does not poll it is to let go of it then.
    pub(crate) fn gives_way(&self) -> impl Future<Output = ()> + Send + use<> {
        let leave = match &self.way {
            Way::Through(stream) => stream.leave(),
            Way::Direct(_) => self.seat.as_ref().map(|seat| seat.leave().clone()),
        };
        async move {
            match leave {
                Some(leave) => leave.cancelled_owned().await,
                None => std::future::pending().await,
            }
        }
    }

    fn note<T>(&self, passed: &Poll<io::Result<T>>) {
        if let Poll::Ready(Ok(_)) = passed {
            self.used.note();
        }
    }
}

/// Opens streams for this node and its peers.
pub struct Connector {
    me: String,
    view: watch::Receiver<Arc<View>>,
    table: Arc<LinkTable>,
    stats: Arc<Stats>,
    limits: Limits,
    unknown: audit::Unknown,
    dialled: Crowd,
}

impl Connector {
    /// For node `me`, by the newest view.
    pub fn new(
        me: impl Into<String>,
        view: watch::Receiver<Arc<View>>,
        table: Arc<LinkTable>,
        stats: Arc<Stats>,
        limits: Limits,
    ) -> Arc<Self> {
        let (unknown, dialled) = (audit::Unknown::default(), Crowd::new(limits.dialled_for_peers));
        Arc::new(Self { me: me.into(), view, table, stats, limits, unknown, dialled })
    }

    /// The newest view.
    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// Ends when views have known no such node for as long as a drain may last, without a break: a Gateway that is made anew names it no more
    /// only for a moment.
    pub(crate) async fn gone(&self, node: &str) {
        let mut view = self.view.clone();
        loop {
            until(&mut view, |view| !view.nodes.contains_key(node)).await;
            let back = until(&mut view, |view| view.nodes.contains_key(node));
            if timeout(self.limits.drain, back).await.is_err() {
                return;
            }
        }
    }

    /// The name of this node.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// What is counted.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// What is told of clients that nobody knows.
    pub fn unknown(&self) -> &audit::Unknown {
        &self.unknown
    }

    /// The limits that are kept.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Opens a stream.
    pub async fn connect(&self, request: &Request) -> Result<Upstream, OpenError> {
        let result = self.attempt(request).await;
        match &result {
            Ok(_) => self.stats.opened(),
            Err(error) => {
                self.stats.refused(*error);
                let (target, request_id) = (request.target.to_string(), &request.request_id);
                let (caller, stranger) =
                    (&request.caller, request.unvouched.as_ref().filter(|of| of.source.is_of_stranger()));
                if let (true, Some(of)) = (error.is_audited(), stranger) {
                    self.unknown.refused(of.listener, caller, of.source, &target, request_id, *error);
                } else if error.is_audited() {
                    audit::refused(
                        caller,
                        request.unvouched.as_ref().map(|of| of.source),
                        &target,
                        request_id,
                        *error,
                    );
                } else {
                    debug!(caller = %request.caller, %target, %request_id, %error, "no stream");
                }
            }
        }
        result
    }

    async fn attempt(&self, request: &Request) -> Result<Upstream, OpenError> {
        if request.hops >= MAX_HOPS {
            return Err(OpenError::Loop);
        }
        let view = self.view();
        let origin = match &request.origin {
            Some(origin) => origin.clone(),
            None => Origin {
                vouched: request.unvouched.is_none(),
                ..Origin::of(view.domain_of(&self.me).ok_or(OpenError::NoLink)?)
            },
        };
        let (way, seat) = match route(&self.me, &origin, &request.target, &view) {
            Route::Refused(refusal) => return Err(refusal.into()),
            Route::Direct(direct) => {
                let (seat, deadline) = (self.seat(request)?, Instant::now() + self.limits.open);
                match dial::destination(&direct, self.limits.dial).await {
                    Ok(connection) => (Way::Direct(connection), seat),
                    Err(error) => {
                        let steps = match direct {
                            Direct::Addresses(_) => around(&self.me, &origin, &request.target, &view),
                            Direct::Name(..) => Vec::new(),
                        };
                        // Over links that there are. If nobody gets there, what came of the dial is what there is to know.
                        let opened = self.through(&steps, request, deadline).await;
                        (Way::Through(Box::new(opened.map_err(|_| error)?)), None)
                    }
                }
            }
            Route::Through { domain: _, steps } => {
                self.awaited(&steps, request).await;
                let deadline = Instant::now() + self.limits.open;
                (Way::Through(Box::new(self.through(&steps, request, deadline).await?)), None)
            }
        };
        Ok(Upstream { way, used: request.used.clone(), seat })
    }

    /// A place for what is dialled for a peer: by all of its links it could have as many connections as this process may have in all, and so keep
    /// everybody else out.
    fn seat(&self, request: &Request) -> Result<Option<Seat>, OpenError> {
        let (Some(_), Some(of)) = (&request.origin, &request.unvouched) else { return Ok(None) };
        let seat = self.dialled.enter(of.source, CancellationToken::new(), request.used.clone());
        seat.map(Some).ok_or(OpenError::Crowded)
    }

    /// Waits for a link to any of these peers, as long as the request has patience: who holds none at rest makes one now.
    async fn awaited(&self, steps: &[Step], request: &Request) {
        if request.patience.is_zero() || steps.iter().all(|step| step.peers.is_empty()) {
            return;
        }
        let mut changes = self.table.changes();
        let waited = async {
            loop {
                changes.borrow_and_update();
                if steps.iter().any(|step| !self.table.candidates(step, request.class).is_empty()) {
                    return;
                }
                self.table.want();
                // The sender lives as long as the table.
                let _ = changes.changed().await;
            }
        };
        let _ = timeout_at(Instant::now() + request.patience, waited).await;
    }

    /// Asks one link after the other. Each has an equal share of the time that is left, so one that says nothing leaves some; all but the last
    /// have no more than an answer usually takes.
    async fn through(
        &self,
        steps: &[Step],
        request: &Request,
        deadline: Instant,
    ) -> Result<TunnelStream, OpenError> {
        let (mut last, mut tried) = (OpenError::NoLink, false);
        let opening = Opening {
            target: &request.target,
            class: request.class,
            hops: request.hops + 1,
            source: request.unvouched.as_ref().map(|of| of.source),
            request_id: &request.request_id,
        };
        // Those of all steps: the last of them has its share, too.
        let mut links: Vec<_> =
            steps.iter().flat_map(|step| self.table.candidates(step, request.class)).collect();
        if opening.source.is_some() {
            // Nobody has to go for one who finds a place elsewhere.
            links.sort_by_key(|link| !link.has_unvouched_room());
        }
        for (asked, link) in links.iter().enumerate() {
            let left = u32::try_from(links.len() - asked).unwrap_or(1);
            let mut share = deadline.saturating_duration_since(Instant::now()) / left;
            if left > 1 {
                share = share.min(self.limits.one_way + 4 * link.round_trip().unwrap_or_default());
            }
            let of = request.unvouched.as_ref();
            let place = match of.map(|of| link.unvouched_place(of.source, request.used.clone())) {
                Some(None) => {
                    last = OpenError::Crowded;
                    continue;
                }
                place => place.flatten(),
            };
            if std::mem::replace(&mut tried, true) {
                self.stats.retried();
            }
            let error = match timeout_at(Instant::now() + share, open(link, &opening, place)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => error,
                Err(_) => OpenError::Timeout,
            };
            debug!(peer = link.peer, request_id = %request.request_id, %error, "a link did not open the stream");
            if !error.is_worth_another_way() {
                return Err(error);
            }
            // That there are too many is what there is to know, whatever the other ways said.
            if last != OpenError::Crowded {
                last = error;
            }
        }
        Err(last)
    }
}

/// Ends when the newest view is so.
async fn until(view: &mut watch::Receiver<Arc<View>>, is_so: impl Fn(&View) -> bool) {
    if view.wait_for(|view| is_so(view)).await.is_err() {
        // With nobody left to tell, what is known holds.
        std::future::pending::<()>().await;
    }
}

impl AsyncRead for Upstream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = match &mut this.way {
            Way::Direct(stream) => Pin::new(stream).poll_read(cx, buf),
            Way::Through(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        this.note(&read);
        read
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.way {
            Way::Direct(stream) => Pin::new(stream).poll_write(cx, buf),
            Way::Through(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        this.note(&written);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().way {
            Way::Direct(stream) => Pin::new(stream).poll_flush(cx),
            Way::Through(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().way {
            Way::Direct(stream) => Pin::new(stream).poll_shutdown(cx),
            Way::Through(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl Pipe for Upstream {
    fn abort(&mut self) {
        match &mut self.way {
            Way::Direct(stream) => stream.abort(),
            Way::Through(stream) => stream.abort(),
        }
    }

    fn set_broken_by_drop(&mut self, broken: bool) {
        match &mut self.way {
            Way::Direct(stream) => stream.set_broken_by_drop(broken),
            Way::Through(stream) => stream.set_broken_by_drop(broken),
        }
    }

    fn poll_prefetch(&mut self, cx: &mut Context<'_>) {
        match &mut self.way {
            Way::Direct(stream) => stream.poll_prefetch(cx),
            Way::Through(stream) => stream.poll_prefetch(cx),
        }
    }

    fn poll_broken(&mut self, cx: &mut Context<'_>, ended: bool) -> Poll<()> {
        match &mut self.way {
            Way::Direct(stream) => stream.poll_broken(cx, ended),
            Way::Through(stream) => stream.poll_broken(cx, ended),
        }
    }
}
