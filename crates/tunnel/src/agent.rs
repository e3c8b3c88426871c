//! The dialling side: makes the links that are wanted and keeps them, each by itself.

mod unmade;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls_pki_types::ServerName;
use tokio::{
    sync::{mpsc, watch},
    task::{self, AbortHandle, JoinSet},
    time::{Instant, sleep, timeout_at},
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::unmade::MakeError;
use crate::{
    backoff::{self, Backoff, Obstacle},
    connector::Connector,
    credentials::Credentials,
    dial::{self, Proxy},
    ending::Ending,
    expiry,
    identity::{Identity, IdentityError, PeerVerifier},
    link::{LinkError, Peer, Terms},
    links::{
        desired::may_dial,
        plan::{LinkKey, LinkState, plan},
        table::LinkTable,
    },
    read_ahead::ReadAhead,
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
    /// The names that gateways' certificates have, whatever address they are dialled at.
    pub server_names: ServerNames,
    /// On the way to gateways.
    pub proxy: Option<Proxy>,
    /// Which run of the process this is.
    pub instance: Arc<str>,
    /// How long to wait after failures.
    pub backoff: backoff::Limits,
}

/// The names in gateways' certificates. Who stands for a pool has another than who is exposed: with that one clients come in that verify nothing else.
#[derive(Debug, Clone)]
pub struct ServerNames {
    /// Of an endpoint of an exposed domain.
    pub exposed: ServerName<'static>,
    /// Of one that nodes of its own domain alone dial.
    pub of_pool: ServerName<'static>,
}

/// What a link's task tells: of which link, which task, what.
type Event = (LinkKey, task::Id, Told);

enum Told {
    /// How far it is.
    State(LinkState),
    /// The gateway's certificate expires soon: another link is to take the place of this one, and may show a newer.
    Outdated,
}

struct Running {
    state: LinkState,
    ending: Ending,
    task: AbortHandle,
    /// What it takes the place of, until it is registered.
    former: Option<Box<Self>>,
}

impl Running {
    /// As the plan sees it: in the place of one that is registered it counts as that.
    fn state(&self) -> LinkState {
        match &self.former {
            Some(former) if !former.task.is_finished() => LinkState::Registered,
            Some(_) | None => self.state,
        }
    }

    fn retire(self) {
        self.ending.retire();
        if let Some(former) = self.former {
            former.retire();
        }
    }
}

impl Agent {
    /// Keeps the links that `desired` wants until `shutdown`; then lets streams go on for as long as a drain may last. Links that
    /// are no longer wanted end with their last stream.
    pub async fn run(self, mut desired: watch::Receiver<BTreeSet<LinkKey>>, shutdown: CancellationToken) {
        let (events, mut told) = mpsc::unbounded_channel();
        let mut running: BTreeMap<LinkKey, Running> = BTreeMap::new();
        let mut tasks: JoinSet<()> = JoinSet::new();
        let mut followed = true;
        let all = Ending::at(shutdown.clone());
        loop {
            let wanted =
                if shutdown.is_cancelled() { BTreeSet::new() } else { desired.borrow_and_update().clone() };
            self.apply(&wanted, &mut running, &mut tasks, &events, &all);
            if shutdown.is_cancelled() && tasks.is_empty() {
                return;
            }
            tokio::select! {
                // With nobody left to want others, these stay.
                changed = desired.changed(), if followed && !shutdown.is_cancelled() => followed = changed.is_ok(),
                Some((key, task, told)) = told.recv() => {
                    if let Some(link) = running.get_mut(&key).filter(|link| link.task.id() == task) {
                        match told {
                            Told::State(state) => {
                                link.state = state;
                                if let Some(former) = link.former.take_if(|_| state == LinkState::Registered) {
                                    former.retire();
                                }
                            }
                            Told::Outdated => {
                                let new = self.start(&key, &mut tasks, &events, &all);
                                let former = std::mem::replace(link, new);
                                link.former = Some(Box::new(former));
                            }
                        }
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
        all: &Ending,
    ) {
        let actual = running.iter().map(|(key, link)| (key.clone(), link.state())).collect();
        let plan = plan(wanted, &actual);
        // One that is given up may be registered just now, and have streams: so it retires, too.
        for key in plan.drain.into_iter().chain(plan.abandon) {
            // Its task goes on. Should the same link be wanted again, it is another one.
            if let Some(link) = running.remove(&key) {
                debug!(gateway = key.gateway, address = key.address, "retiring a link");
                link.retire();
            }
        }
        for key in plan.dial {
            let link = self.start(&key, tasks, events, all);
            running.insert(key, link);
        }
    }

    fn start(
        &self,
        key: &LinkKey,
        tasks: &mut JoinSet<()>,
        events: &mpsc::UnboundedSender<Event>,
        all: &Ending,
    ) -> Running {
        let ending = all.child();
        let task = tasks.spawn(keep(self.clone(), key.clone(), ending.clone(), events.clone()));
        Running { state: LinkState::Connecting, ending, task, former: None }
    }

    /// Whether a gateway is of the own domain, whose nodes reach one another directly.
    fn is_near(&self, gateway: &str) -> bool {
        let view = self.connector.view();
        let mine = view.domain_of(self.connector.me());
        mine.is_some() && mine == view.domain_of(gateway)
    }

    /// The name that a gateway's certificate must have.
    fn server_name(&self, gateway: &str) -> ServerName<'static> {
        let view = self.connector.view();
        let of_pool = view.domain_of(gateway).is_some_and(|domain| !view.is_exposed(&domain));
        if of_pool { &self.server_names.of_pool } else { &self.server_names.exposed }.clone()
    }

    async fn make(
        &self,
        key: &LinkKey,
        ending: &Ending,
        outage: Duration,
        registered: impl FnOnce(),
        outdated: impl FnOnce(),
    ) -> Result<(), MakeError> {
        let config = self.credentials.client(key.direction).ok_or(MakeError::NoCredentials)?;
        let limits = *self.connector.limits();
        let is_on_the_way = |proxy: &&Proxy| !self.is_near(&key.gateway) && proxy.is_for(&key.address);
        let proxy = self.proxy.as_ref().filter(is_on_the_way);
        let deadline = Instant::now() + limits.handshake;
        let connect = async {
            let connection = dial::gateway(&key.address, proxy, backoff::once_more(outage), deadline).await?;
            let connector = TlsConnector::from(config);
            let handshake = connector.connect(self.server_name(&key.gateway), ReadAhead::new(connection));
            let connected = timeout_at(deadline, handshake).await.map_err(|_| MakeError::Timeout)?;
            connected.map_err(MakeError::Handshake)
        };
        let connection = tokio::select! {
            connected = connect => connected.map_err(|error: MakeError| error.by(proxy))?,
            () = ending.retired() => return Ok(()),
        };
        let leaf = connection.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let Identity { node, expires } = self.verifier.identify(leaf.ok_or(IdentityError::Missing)?)?;
        let view = self.connector.view();
        // Behind one address there may be several gateways: dial again until each has its link.
        if node != key.gateway && view.nodes.contains_key(&key.gateway) {
            return Err(MakeError::OtherNode(node));
        }
        let domain = view.domain_of(&node).ok_or_else(|| MakeError::NoGateway(node.clone()))?;
        if !may_dial(self.connector.me(), &node, key.direction, &view) {
            return Err(MakeError::NoGateway(node));
        }
        drop(view);
        let peer = Peer { node: node.clone(), domain, direction: key.direction, class: key.class, expires };
        let terms = Terms {
            instance: self.instance.clone(),
            limits,
            table: self.table.clone(),
            stats: self.connector.stats().clone(),
        };
        // The end of this link, and not of those that take its place.
        let ending = &ending.child();
        let expired = expiry::follow(&node, expires, &self.table, ending);
        let renewal = async {
            expiry::passed(expiry::renew_at(expires, SystemTime::now(), fastrand::f64())).await;
            outdated();
            std::future::pending::<()>().await;
        };
        // Its streams are its own as long as it is a node; one that is gone has none left to finish in its own time, unless it is back before
        // the deadline.
        let gone = async {
            ending.retired().await;
            self.connector.gone(&node).await;
        };
        let asks = key.direction == Direction::Forward;
        let link = serve::link(&self.connector, asks, connection, peer, &terms, ending, registered);
        tokio::select! {
            result = link => Ok(result?),
            () = gone => Err(LinkError::DrainTimeout.into()),
            ((), ()) = async { tokio::join!(renewal, expired) } => Ok(()),
        }
    }
}

/// Makes a link again and again, until it is to end.
async fn keep(agent: Agent, key: LinkKey, ending: Ending, events: mpsc::UnboundedSender<Event>) {
    let mut backoff = Backoff::new(agent.backoff);
    // The agent that no longer listens has ended.
    let task = task::id();
    let tell = |state| drop(events.send((key.clone(), task, Told::State(state))));
    let mut replaced = false;
    let (gateway, address) = (key.gateway.as_str(), key.address.as_str());
    let dialled = agent.table.dialled();
    // Since when no gateway is there.
    let mut away_since: Option<Instant> = None;
    loop {
        let begun = Instant::now();
        let mut up_since = None;
        let registered = || {
            info!(gateway, address, class = key.class.name(), direction = ?key.direction, "link up");
            up_since = Some(Instant::now());
            if let Some((after, attempts)) = dialled.linked(gateway, address) {
                info!(gateway, address, ?after, attempts, "linked again");
            }
            tell(LinkState::Registered);
        };
        let outdated = || {
            replaced = true;
            let _ = events.send((key.clone(), task, Told::Outdated));
        };
        let outage = away_since.map_or(Duration::ZERO, |since| since.elapsed());
        let result = agent.make(&key, &ending, outage, registered, outdated).await;
        tell(LinkState::Connecting);
        if replaced {
            return;
        }
        if ending.is_retired() {
            return dialled.forget(gateway, address);
        }
        let another = matches!(result, Err(MakeError::OtherNode(_)));
        let obstacle = match (&result, up_since) {
            // What a gateway was willing to have is not refused when it breaks.
            (Ok(()), _) => Obstacle::Absence,
            (Err(error), Some(_)) if error.obstacle() == Obstacle::Refusal => Obstacle::Absence,
            (Err(error), _) => error.obstacle(),
        };
        if let Some(since) = up_since {
            backoff.was_up(since.elapsed());
        }
        // Whoever had a link until now was answered until now, as far as it knew.
        away_since = match up_since {
            _ if another || obstacle == Obstacle::Refusal => None,
            None => away_since.or(Some(begun)),
            Some(_) => Some(Instant::now()),
        };
        let outage = away_since.map_or(Duration::ZERO, |since| since.elapsed());
        // How long a link was up is no part of what it took to find out that there is none.
        let took = if up_since.is_some() { Duration::ZERO } else { begun.elapsed() };
        let wait = match obstacle {
            _ if another => backoff.other_answered(fastrand::f64()),
            Obstacle::Silence => backoff.unanswered(outage, fastrand::f64()),
            Obstacle::Absence => backoff.absent(outage, took, fastrand::f64()),
            Obstacle::Refusal => backoff.refused(fastrand::f64()),
        };
        if let Err(error) = result {
            let error = &error as &dyn std::error::Error;
            if up_since.is_some() {
                dialled.broke(gateway, address, error);
                warn!(gateway, address, class = key.class.name(), direction = ?key.direction, error, ?wait, "link broke");
            } else {
                agent.connector.stats().link_failed();
                let told = if another {
                    dialled.answered_by_another(gateway, address, error)
                } else {
                    dialled.failed(gateway, address, error)
                };
                if let Some(attempts) = told {
                    warn!(gateway, address, error, attempts, ?wait, "no link");
                } else {
                    debug!(gateway, address, error, ?wait, "no link");
                }
            }
        }
        tokio::select! {
            () = sleep(wait) => {}
            () = ending.retired() => return dialled.forget(gateway, address),
        }
    }
}
