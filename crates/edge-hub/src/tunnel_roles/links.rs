//! The links that this node dials, and the certificate that it shows to gateways.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use api::names::GATEWAY_SERVER_NAMES;
use rustls_pki_types::ServerName;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::info;
use tunnel::{
    agent::{Agent, ServerNames},
    backoff,
    credentials::Credentials,
    links::{desired::desired, plan::LinkKey},
    protocol::Class,
};

use super::{Role, State, TunnelConfig};
use crate::identity::Shown;

/// How long a node that holds no link at rest keeps those that somebody wanted, after they were last wanted or used.
const ON_DEMAND: Duration = Duration::from_mins(1);

/// How soon files that could not be read are read again.
const AGAIN: Duration = Duration::from_secs(5);

/// How often it is looked whether files are other ones: authorities are replaced by whoever set the node up, and nobody says so.
const LOOK: Duration = Duration::from_mins(1);

/// Keeps the links until `shutdown`, and then until their streams have ended.
pub(super) async fn keep(
    state: Arc<State>,
    config: Arc<TunnelConfig>,
    shown: watch::Receiver<Option<Shown>>,
    shutdown: CancellationToken,
) {
    // They are names as DNS has them.
    let [Ok(exposed), Ok(of_pool)] = GATEWAY_SERVER_NAMES.map(ServerName::try_from) else {
        return;
    };
    let credentials = Credentials::new();
    let wanted = watch::Sender::new(BTreeSet::new());
    let agent = Agent {
        connector: state.connector.clone(),
        table: state.table.clone(),
        credentials: credentials.clone(),
        verifier: Arc::new(State::verifier()),
        server_names: ServerNames { exposed, of_pool },
        proxy: config.http_proxy.clone(),
        instance: state.instance.clone(),
        backoff: backoff::Limits::default(),
    };
    let mut tasks = JoinSet::new();
    let install = install(state.clone(), "client certificate", credentials.clone(), shown);
    let want = want(state.clone(), credentials, wanted.clone());
    let end = shutdown.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = end.cancelled() => {}
            ((), ()) = async { tokio::join!(install, want) } => {}
        }
    });
    tasks.spawn_on(agent.run(wanted.subscribe(), shutdown), &state.runtime);
    while tasks.join_next().await.is_some() {}
}

/// Uses the certificate that is shown and the authorities beside it, anew at each change of either.
pub(super) async fn install(
    state: Arc<State>,
    part: &'static str,
    credentials: Arc<Credentials>,
    mut shown: watch::Receiver<Option<Shown>>,
) {
    let mut used = None;
    loop {
        let current = shown.borrow_and_update().clone();
        let installed = current.as_ref().map(|shown| {
            let pem = shown.read().map_err(|error| format!("{}: {error}", shown.certificate.display()))?;
            if used.as_ref() == Some(&pem) {
                return Ok(());
            }
            let generation = credentials
                .install(&pem.certificate, &pem.key, &pem.authority)
                .map_err(|error| format!("{}: {error}", shown.certificate.display()))?;
            info!(part, generation, "in use for the tunnel");
            used = Some(pem);
            Ok(())
        });
        let failed = installed.and_then(Result::err);
        let pause = if failed.is_some() { AGAIN } else { LOOK };
        state.problem(part, failed);
        tokio::select! {
            changed = shown.changed() => if changed.is_err() { return std::future::pending().await },
            () = sleep(pause) => {}
        }
    }
}

/// Tells the agent which links to have.
async fn want(state: Arc<State>, credentials: Arc<Credentials>, links: watch::Sender<BTreeSet<LinkKey>>) {
    let (mut plans, mut generations, mut demand) =
        (state.plan.subscribe(), credentials.changes(), state.table.wanted());
    demand.mark_unchanged();
    let mut until: Option<Instant> = None;
    loop {
        let plan = plans.borrow_and_update().clone();
        let generation = *generations.borrow_and_update();
        // An endpoint that is listed and not elected holds no link for its domain, and its own callers may want one all the same.
        let ordinary = !plan.view.stands(&state.me);
        if ordinary && state.table.snapshot().iter().any(|link| link.streams > 0) {
            until = until.map(|_| Instant::now() + ON_DEMAND);
        }
        let on_demand = ordinary && until.is_some_and(|until| Instant::now() < until);
        if !on_demand {
            until = None;
        }
        // What programs of an ordinary node send out is bulk; at a gateway that is not elected clients come in besides.
        let on_demand = match plan.role {
            _ if !on_demand => &[][..],
            Role::Gateway => &Class::ALL,
            Role::Agent | Role::None => &[Class::Bulk],
        };
        let wanted = if generation == 0 {
            BTreeSet::new()
        } else {
            desired(&state.me, &plan.view, &plan.listening, generation, on_demand)
        };
        links.send_if_modified(|links| {
            let changed = *links != wanted;
            *links = wanted;
            changed
        });
        tokio::select! {
            _ = plans.changed() => {}
            _ = generations.changed() => {}
            _ = demand.changed() => {
                demand.mark_unchanged();
                until = Some(Instant::now() + ON_DEMAND);
            }
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::api_server::pki::Authority;
    use tokio::runtime::Handle;
    use tunnel::{
        connector::Request,
        links::desired::Addresses,
        protocol::OpenError,
        route::Direction,
        target::Target,
        view::{Domain, GatewayState, Node, Place, View},
    };

    use super::{
        super::{DestinationRule, plan::Plan, shown_files},
        *,
    };

    /// Of node `n`, which is not elected: `e` is.
    fn plan_of(role: Role) -> Plan {
        let node = || Node { place: Place::Edge, pool: Some("p".to_owned()), addresses: vec![] };
        let endpoints = ["e".to_owned()].into();
        let gateway = GatewayState { exposed: role == Role::Gateway, endpoints, ..GatewayState::default() };
        let listed: DestinationRule = "services.example=80".parse().unwrap();
        let view = View {
            nodes: ["n", "e"].map(|name| (name.to_owned(), node())).into(),
            gateways: [(Domain::Pool("p".to_owned()), gateway)].into(),
            destinations: vec![listed.rule(&Domain::Pool("c".to_owned()), &BTreeSet::new())],
            ..View::default()
        };
        let addresses = ["192.0.2.1:10262".to_owned()].into();
        Plan { view, role, listening: [("e".to_owned(), Addresses { addresses })].into(), ..Plan::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn links_on_demand_are_of_what_is_asked_for_and_go_a_minute_after() {
        tls::install_provider();
        let authority = Authority::generate("any").unwrap();
        let shown = authority.server(&["n"]).unwrap();
        for (role, classes) in [(Role::None, &[Class::Bulk][..]), (Role::Gateway, &Class::ALL)] {
            let (state, credentials) = (State::new("n", Handle::current()), Credentials::new());
            credentials.install(&shown.certificate_pem, &shown.key_pem, authority.pem()).unwrap();
            state.follow(plan_of(role));
            let links = watch::Sender::new(BTreeSet::new());
            let mut tasks = JoinSet::new();
            tasks.spawn(want(state.clone(), credentials, links.clone()));
            sleep(ON_DEMAND * 2).await;
            assert!(links.borrow().is_empty(), "a tunnel at rest");
            for _ in 0..2 {
                let request = Request {
                    target: Target::parse("services.example:80", None).unwrap(),
                    origin: None,
                    caller: "test".into(),
                    class: Class::Bulk,
                    hops: 0,
                    unvouched: None,
                    used: Arc::default(),
                    request_id: "test".into(),
                    patience: Duration::from_secs(1),
                };
                // Nobody dials them here.
                assert_eq!(state.connector.connect(&request).await.err(), Some(OpenError::NoLink));
                let wanted: Vec<_> = links.borrow().iter().map(|link| (link.direction, link.class)).collect();
                let expected: Vec<_> = classes.iter().map(|class| (Direction::Forward, *class)).collect();
                assert_eq!(wanted, expected, "{role:?}");
                sleep(Duration::from_secs(58)).await;
                assert!(!links.borrow().is_empty(), "gone before its time");
                sleep(Duration::from_secs(2)).await;
                assert!(links.borrow().is_empty(), "kept for longer than a minute");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn authorities_and_certificates_are_what_the_files_say_now() {
        tls::install_provider();
        let folder = tempfile::tempdir().unwrap();
        let [before, after] = ["before", "after"].map(|name| Authority::generate(name).unwrap());
        let own = before.server(&["n"]).unwrap();
        let write = |authorities: &str, own: &_| shown_files::shown(folder.path(), authorities, own);
        let shown = write(before.pem(), &own);
        let (state, credentials) = (State::new("n", Handle::current()), Credentials::new());
        let (_keep, shown) = watch::channel(Some(shown));
        let mut tasks = JoinSet::new();
        tasks.spawn(install(state.clone(), "test", credentials.clone(), shown));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(credentials.generation(), 1);
        // Files that say the same are no news: a new generation makes all links anew.
        sleep(LOOK * 3).await;
        assert_eq!((credentials.generation(), state.problems().len()), (1, 0));
        write("half a file", &own);
        sleep(LOOK).await;
        assert_eq!(
            (credentials.generation(), state.problems().len()),
            (1, 1),
            "the last ones that were whole stay"
        );
        let both = [before.pem(), after.pem()].concat();
        write(&both, &own);
        sleep(LOOK).await;
        assert_eq!((credentials.generation(), state.problems().len()), (2, 0));
        write(&both, &before.server(&["n"]).unwrap());
        sleep(LOOK).await;
        assert_eq!((credentials.generation(), state.problems().len()), (3, 0));
    }
}
