//! Accepts links: of everyone when an exposed Gateway lists this node; of the other nodes of its pool when it stands for one. Begun and ended
//! as the plan says, with the links that there are drained.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;
use tunnel::{admission::ByView, credentials::Credentials, ending::Ending, gateway::Gateway};

use super::{State, TunnelConfig, announce, links::install, plan::Accepts, thread::tcp_heard_on, ways_in};
use crate::{
    hub::Hub,
    identity::{Serving, ServingCertificates},
};

/// How soon an address that is taken is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// How soon it is looked again whether there is a certificate that this node must not have.
const FORGET_AGAIN: Duration = Duration::from_mins(1);

/// How long a gateway that ends still takes what comes: until Services and balancers have heard that it goes.
const LEAVE: Duration = Duration::from_secs(3);

/// Cancels `close` at `end`, and for a gateway after the time that those who send to it need.
pub(super) async fn leave(state: Arc<State>, end: CancellationToken, close: CancellationToken) {
    end.cancelled().await;
    if *state.announced.borrow() {
        sleep(LEAVE).await;
    }
    close.cancel();
}

/// Removes the certificate with the name of exposed gateways while this node has no right to it, until `shutdown`: it was one, or an older hub asked
/// for that name. Who steals the node could stand for the cloud with it.
pub(super) async fn forget_exposed(state: Arc<State>, exposed: Serving, shutdown: CancellationToken) {
    let mut plans = state.plan.subscribe();
    loop {
        let due = tokio::select! {
            due = plans.wait_for(|plan| plan.has_no_right_to_exposed_name()) => due.is_ok(),
            () = shutdown.cancelled() => false,
        };
        if !due {
            return;
        }
        exposed.forget();
        // Once more: a request may have been under way.
        tokio::select! {
            () = sleep(FORGET_AGAIN) => {}
            _ = plans.wait_for(|plan| !plan.has_no_right_to_exposed_name()) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

/// Accepts links while the cluster wants it, until `shutdown`; then waits until streams have ended.
pub(super) async fn follow_role(
    hub: Arc<Hub>,
    state: Arc<State>,
    config: Arc<TunnelConfig>,
    serving: ServingCertificates,
    shutdown: CancellationToken,
) {
    let mut plans = state.plan.subscribe();
    // Those that end drain beside the one that begins.
    let mut gateways = JoinSet::new();
    loop {
        let begun = tokio::select! {
            wanted = plans.wait_for(|plan| plan.accepts != Accepts::Nobody) => wanted.map(|plan| plan.accepts).ok(),
            () = shutdown.cancelled() => None,
        };
        let Some(accepts) = begun else { break };
        info!(?accepts, "this node accepts links of the tunnel");
        let end = shutdown.child_token();
        let serving = if accepts == Accepts::Everyone { &serving.exposed } else { &serving.of_pool }.clone();
        let config = config.clone();
        gateways.spawn(run(
            hub.clone(),
            state.clone(),
            config,
            serving,
            accepts,
            end.clone(),
            shutdown.clone(),
        ));
        tokio::select! {
            _ = plans.wait_for(|plan| plan.accepts != accepts) => {}
            () = shutdown.cancelled() => {}
        }
        info!(?accepts, "this node no longer accepts them");
        end.cancel();
        while gateways.try_join_next().is_some() {}
    }
    while gateways.join_next().await.is_some() {}
}

async fn run(
    hub: Arc<Hub>,
    state: Arc<State>,
    config: Arc<TunnelConfig>,
    serving: Serving,
    accepts: Accepts,
    end: CancellationToken,
    shutdown: CancellationToken,
) {
    let credentials = Credentials::new();
    let mut tasks = JoinSet::new();
    // Those who send here are told first, and what they still send is taken.
    let close = CancellationToken::new();
    // A role that ends cuts no stream; a process that does gives them a while.
    let ending = Ending::new(close.clone(), shutdown);
    tasks.spawn(leave(state.clone(), end.clone(), close.clone()));
    let keep = {
        let install = install(state.clone(), "serving certificate", credentials.clone(), serving.shown());
        let (upstream, close, serving) = (hub.upstream.clone(), close.clone(), serving.clone());
        async move {
            tokio::select! {
                () = close.cancelled() => {}
                ((), ()) = async { tokio::join!(install, serving.keep(&upstream)) } => {}
            }
        }
    };
    tasks.spawn(keep);
    tasks.spawn(tell_problem(state.clone(), serving, end.clone()));
    let ways_in = ways_in::Open::default();
    tasks.spawn_on(ways_in::keep(state.clone(), ways_in.clone(), ending.clone()), &state.runtime);
    let ready = async {
        let listener = bind(&state, "--tunnel-address", config.listen).await;
        // Who is said to live can be dialled.
        let _ = credentials.changes().wait_for(|generation| *generation > 0).await;
        listener
    };
    let listener = tokio::select! {
        listener = ready => Some(listener),
        () = end.cancelled() => {
            state.problem("--tunnel-address", None);
            None
        }
    };
    if let Some(listener) = listener {
        let gateway = Gateway {
            connector: state.connector.clone(),
            table: state.table.clone(),
            credentials,
            verifier: Arc::new(State::verifier()),
            admission: Arc::new(ByView { me: state.me.to_string() }),
            view: state.view(),
            instance: state.instance.clone(),
        };
        tasks.spawn_on(gateway.serve(listener, ending), &state.runtime);
        // The cluster knows of an edge node by the links that it dials.
        if accepts == Accepts::Everyone {
            tasks.spawn(announce::announce(
                state.clone(),
                config.listen.port(),
                ways_in,
                hub.upstream.clone(),
                end,
            ));
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Listens, as soon as that is possible.
pub(super) async fn bind(state: &State, part: &str, address: SocketAddr) -> TcpListener {
    loop {
        let bound = TcpListener::bind(address).await;
        match bound.and_then(|listener| tcp_heard_on(&state.runtime, listener)) {
            Ok(listener) => {
                state.problem(part, None);
                info!(%address, part, "listening");
                return listener;
            }
            Err(error) => state.problem(part, Some(format!("cannot listen on {address}: {error}"))),
        }
        sleep(AGAIN).await;
    }
}

async fn tell_problem(state: Arc<State>, serving: Serving, end: CancellationToken) {
    let tell = async {
        loop {
            state.problem("serving certificate request", serving.problem());
            sleep(AGAIN).await;
        }
    };
    tokio::select! {
        () = tell => {}
        () = end.cancelled() => {}
    }
    state.problem("serving certificate request", None);
}
