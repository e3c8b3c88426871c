//! The dialling side: makes the links that are wanted and keeps them, each by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rustls_pki_types::ServerName;
use tokio::{
    sync::{mpsc, watch},
    task::{self, AbortHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    backoff::{self, Backoff},
    connector::Connector,
    credentials::Credentials,
    dial::{self, DialError, Proxy},
    identity::{IdentityError, PeerVerifier},
    link::{LinkError, Peer, Terms, answer, ask},
    links::{
        desired::is_peer,
        plan::{LinkKey, LinkState, plan},
        table::LinkTable,
    },
    route::Direction,
    serve,
};

/// What an agent is made of.
#[derive(Clone)]
pub struct Agent {
    /// Opens the streams that peers ask for; has the view.
    pub connector: Arc<Connector>,
    /// Where links are entered.
    pub table: Arc<LinkTable>,
    /// What is presented to gateways.
    pub credentials: Arc<Credentials>,
    /// Tells who a gateway is.
    pub verifier: Arc<dyn PeerVerifier>,
    /// The name that gateways' certificates have, whatever address they are dialled at.
    pub server_name: ServerName<'static>,
    /// On the way to gateways.
    pub proxy: Option<Proxy>,
    /// Which run of the process this is.
    pub instance: Arc<str>,
    /// How long to wait after failures.
    pub backoff: backoff::Limits,
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
enum MakeError {
    #[error("no credentials yet")]
    NoCredentials,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the TLS handshake")]
    Handshake(#[source] std::io::Error),
    #[error("no connection in time")]
    Timeout,
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{0} answered")]
    OtherNode(String),
    #[error("{0} is no gateway")]
    NoGateway(String),
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// What a link's task tells: of which link, which task, how far it is.
type Event = (LinkKey, task::Id, LinkState);

struct Running {
    state: LinkState,
    drain: CancellationToken,
    task: AbortHandle,
}

impl Agent {
    /// Keeps the links that `desired` wants until `shutdown`; then drains all.
    pub async fn run(self, mut desired: watch::Receiver<BTreeSet<LinkKey>>, shutdown: CancellationToken) {
        let (events, mut told) = mpsc::unbounded_channel();
        let mut running: BTreeMap<LinkKey, Running> = BTreeMap::new();
        let mut tasks: JoinSet<()> = JoinSet::new();
        let mut followed = true;
        loop {
            let wanted =
                if shutdown.is_cancelled() { BTreeSet::new() } else { desired.borrow_and_update().clone() };
            self.apply(&wanted, &mut running, &mut tasks, &events);
            if shutdown.is_cancelled() && tasks.is_empty() {
                return;
            }
            tokio::select! {
                // With nobody left to want others, these stay.
                changed = desired.changed(), if followed && !shutdown.is_cancelled() => followed = changed.is_ok(),
                Some((key, task, state)) = told.recv() => {
                    if let Some(link) = running.get_mut(&key)
                        && link.task.id() == task
                    {
                        link.state = state;
                    }
                }
                Some(_) = tasks.join_next() => running.retain(|_, link| !link.task.is_finished()),
                () = shutdown.cancelled(), if !shutdown.is_cancelled() => {}
            }
        }
    }

    fn apply(
        &self,
        wanted: &BTreeSet<LinkKey>,
        running: &mut BTreeMap<LinkKey, Running>,
        tasks: &mut JoinSet<()>,
        events: &mpsc::UnboundedSender<Event>,
    ) {
        let actual = running.iter().map(|(key, link)| (key.clone(), link.state)).collect();
        let plan = plan(wanted, &actual);
        // One that is given up may be registered just now, and have streams: so it drains, too.
        for key in plan.drain.into_iter().chain(plan.abandon) {
            // Its task goes on. Should the same link be wanted again, it is another one.
            if let Some(link) = running.remove(&key) {
                debug!(gateway = key.gateway, address = key.address, "draining a link");
                link.drain.cancel();
            }
        }
        for key in plan.dial {
            let drain = CancellationToken::new();
            let (agent, events) = (self.clone(), events.clone());
            let keep = keep(agent, key.clone(), drain.clone(), events);
            let task = tasks.spawn(keep);
            running.insert(key, Running { state: LinkState::Connecting, drain, task });
        }
    }

    async fn make(
        &self,
        key: &LinkKey,
        drain: CancellationToken,
        registered: impl FnOnce(),
    ) -> Result<(), MakeError> {
        let config = self.credentials.client(key.direction).ok_or(MakeError::NoCredentials)?;
        let limits = *self.connector.limits();
        let connect = async {
            let connection = dial::gateway(&key.address, self.proxy.as_ref()).await?;
            let connector = TlsConnector::from(config);
            connector.connect(self.server_name.clone(), connection).await.map_err(MakeError::Handshake)
        };
        let connection = tokio::select! {
            connected = timeout(limits.handshake, connect) => connected.map_err(|_| MakeError::Timeout)??,
            () = drain.cancelled() => return Ok(()),
        };
        let leaf = connection.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let node = self.verifier.identify(leaf.ok_or(IdentityError::Missing)?)?.node;
        let view = self.connector.view();
        // Behind one address there may be several gateways: dial again until each has its link.
        if node != key.gateway && view.nodes.contains_key(&key.gateway) {
            return Err(MakeError::OtherNode(node));
        }
        let domain = view.domain_of(&node).ok_or_else(|| MakeError::NoGateway(node.clone()))?;
        if !is_peer(self.connector.me(), &node, &domain, key.direction, &view) {
            return Err(MakeError::NoGateway(node));
        }
        drop(view);
        let peer =
            Peer { node: node.clone(), domain: domain.clone(), direction: key.direction, class: key.class };
        let terms = Terms {
            instance: self.instance.clone(),
            limits,
            table: self.table.clone(),
            stats: self.connector.stats().clone(),
        };
        let result = match key.direction {
            Direction::Forward => Box::pin(ask::run(connection, peer, &terms, drain, registered)).await,
            Direction::Reverse => {
                let (connector, node) = (self.connector.clone(), Arc::from(node));
                let handle =
                    move |asked| serve::stream(connector.clone(), Arc::clone(&node), domain.clone(), asked);
                Box::pin(answer::run(connection, peer, &terms, drain, registered, handle)).await
            }
        };
        Ok(result?)
    }
}

/// Makes a link again and again, until it is drained.
async fn keep(agent: Agent, key: LinkKey, drain: CancellationToken, events: mpsc::UnboundedSender<Event>) {
    let mut backoff = Backoff::new(agent.backoff);
    // The agent that no longer listens has ended.
    let task = task::id();
    let tell = |state| drop(events.send((key.clone(), task, state)));
    loop {
        let mut up_since = None;
        let result = agent
            .make(&key, drain.clone(), || {
                info!(gateway = key.gateway, address = key.address, class = key.class.name(), direction = ?key.direction, "link up");
                up_since = Some(Instant::now());
                tell(LinkState::Registered);
            })
            .await;
        tell(LinkState::Connecting);
        if drain.is_cancelled() {
            return;
        }
        let wait =
            backoff.failed(up_since.map_or_else(Default::default, |since| since.elapsed()), fastrand::f64());
        if let Err(error) = result {
            if up_since.is_none() {
                agent.connector.stats().link_failed();
            }
            let error = &error as &dyn std::error::Error;
            warn!(gateway = key.gateway, address = key.address, error, ?wait, "no link");
        }
        tokio::select! {
            () = sleep(wait) => {}
            () = drain.cancelled() => return,
        }
    }
}
