//! What the tunnel's parts share: the plan they follow, the links there are, and what is wrong.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::names::{NODE_GROUP, NODE_USER_PREFIX};
use parking_lot::Mutex;
use tokio::{net::TcpStream, runtime::Handle, sync::watch, time::timeout};
use tracing::{info, warn};
use tunnel::{
    connector::Connector,
    identity::SubjectVerifier,
    ingress::Ingress,
    links::table::LinkTable,
    protocol::{Class, Limits},
    socket::speaks,
    stats::{Listener, Stats},
    view::View,
};

use super::plan::{Plan, Role};

/// How long a stream waits for a link: a node that holds none at rest makes one now.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a client that connected may say nothing.
const SILENCE: Duration = Duration::from_secs(10);

/// What the tunnel's parts share.
pub struct State {
    /// The name of this node.
    pub(super) me: Arc<str>,
    /// Where streams and links run.
    pub(super) runtime: Handle,
    /// Which run of the hub it is.
    pub(super) instance: Arc<str>,
    /// Opens streams by the newest view.
    pub(super) connector: Arc<Connector>,
    /// The links there are.
    pub(super) table: Arc<LinkTable>,
    /// What is counted.
    pub(super) stats: Arc<Stats>,
    /// What is to be.
    pub(super) plan: watch::Sender<Arc<Plan>>,
    /// Whether the cluster is told that this gateway lives.
    pub(super) announced: watch::Sender<bool>,
    view: watch::Sender<Arc<View>>,
    problems: Mutex<BTreeMap<String, String>>,
}

impl State {
    /// Of a node that knows nothing yet. Streams and links are to run on `runtime`.
    pub fn new(node: &str, runtime: Handle) -> Arc<Self> {
        let view = watch::Sender::new(Arc::<View>::default());
        let (table, stats) = (Arc::new(LinkTable::default()), Arc::new(Stats::default()));
        let connector =
            Connector::new(node, view.subscribe(), table.clone(), stats.clone(), Limits::default());
        let begun = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        Arc::new(Self {
            me: node.into(),
            runtime,
            instance: format!("{node}_{begun:x}").into(),
            connector,
            table,
            stats,
            plan: watch::Sender::default(),
            announced: watch::Sender::new(false),
            view,
            problems: Mutex::default(),
        })
    }

    /// Tasks of streams and links that have not ended.
    pub fn tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }

    /// What this node is.
    pub fn role(&self) -> Role {
        self.plan.borrow().role
    }

    /// Waits, not for long, until the cluster knows that this gateway goes. Until then the link to the API server is needed.
    pub async fn parted(&self, within: Duration) {
        let mut announced = self.announced.subscribe();
        let gone = announced.wait_for(|announced| !announced);
        if timeout(within, gone).await.is_err() {
            warn!("the cluster could not be told that this gateway ends");
        }
    }

    /// Takes a new plan into force.
    pub(super) fn follow(&self, plan: Plan) {
        if **self.plan.borrow() == plan {
            return;
        }
        // The view first: who sees a new role must find its way.
        self.view.send_replace(Arc::new(plan.view.clone()));
        self.plan.send_replace(Arc::new(plan));
    }

    pub(super) fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.subscribe()
    }

    /// Tells who a peer is: its certificate is that of a node, the hub's own or the kubelet's.
    pub(super) fn verifier() -> SubjectVerifier {
        SubjectVerifier::new(NODE_GROUP, NODE_USER_PREFIX)
    }

    /// A way in, whose name stands in the audit. A gateway that is elected holds all links that there are; one that is listed and not elected,
    /// or has just come back, makes them when it is asked, and is waited for.
    pub(super) fn way_in(&self, name: &'static str) -> Ingress {
        let stands = self.plan.borrow().view.stands(&self.me);
        let patience = if stands { Duration::ZERO } else { PATIENCE };
        let (connector, class) = (self.connector.clone(), Class::Interactive);
        Ingress { connector, class, name, vouched: true, patience }
    }

    /// One at which nobody is asked who it is.
    pub(super) fn way_in_of_anybody(&self, name: &'static str) -> Ingress {
        Ingress { vouched: false, ..self.way_in(name) }
    }

    /// A way out for programs of the node, whose name stands in the audit.
    pub(super) fn way_out(&self, name: &'static str) -> Ingress {
        let connector = self.connector.clone();
        Ingress { connector, class: Class::Bulk, name, vouched: true, patience: PATIENCE }
    }

    /// Whether a client says anything; those that do not are counted, and nobody is told more of them.
    pub(super) async fn speaks(&self, client: &TcpStream, listener: Listener) -> bool {
        let speaks = timeout(SILENCE, speaks(client)).await.unwrap_or(false);
        if !speaks {
            self.stats.silent(listener);
        }
        speaks
    }

    /// Says what is wrong with `part`, or that it is right again. Each is logged once.
    pub(super) fn problem(&self, part: &str, problem: Option<String>) {
        let mut problems = self.problems.lock();
        match problem {
            None => {
                if problems.remove(part).is_some() {
                    info!(part, "the tunnel is as it was asked for again");
                }
            }
            Some(problem) if problems.get(part) == Some(&problem) => {}
            Some(problem) => {
                warn!(part, problem, "the tunnel is not as it was asked for");
                problems.insert(part.to_owned(), problem);
            }
        }
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let problems =
            self.problems.lock().iter().map(|(part, problem)| format!("{part}: {problem}")).collect();
        [problems, self.plan.borrow().problems.clone(), self.table.unreached()].concat()
    }
}

#[cfg(test)]
mod tests {
    use testkit::log::Log;
    use tracing::Level;

    use super::*;

    #[tokio::test]
    async fn the_log_is_told_that_something_is_wrong_and_that_it_is_right_again() {
        let state = State::new("n", Handle::current());
        let log = Log::of("edge_hub::tunnel_roles::state", Level::TRACE, &["message"]);
        let _here = tracing::subscriber::set_default(log.clone());
        let wrong = (Level::WARN, "the tunnel is not as it was asked for; ".to_owned());
        let right = (Level::INFO, "the tunnel is as it was asked for again; ".to_owned());
        for (problem, expected) in [
            (None, vec![]),
            (Some("a"), vec![wrong.clone()]),
            (Some("a"), vec![]),
            (Some("b"), vec![wrong]),
            (None, vec![right]),
            (None, vec![]),
        ] {
            state.problem("part", problem.map(str::to_owned));
            assert_eq!(log.take(), expected, "{problem:?}");
        }
    }
}
