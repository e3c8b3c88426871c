//! What is sent to the internal Service of gateways, at the node's addresses and the ports that the Service says. Callers are not known
//! here: they come as far as nodes, and a kubelet authenticates them itself, since its TLS is passed through unopened.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinSet};
use tunnel::{
    ending::Ending,
    ingress::{
        http::{Form, serve_http},
        listen,
        sni::serve_sni,
    },
    stats::Listener,
};

use super::{
    State,
    gateway::bind,
    plan::{Role, WayIn},
};

/// What is sent to each address.
type Ways = Arc<Mutex<BTreeMap<SocketAddr, WayIn>>>;

/// The addresses that listen by now: the cluster is told, and sends nobody to another.
pub(super) type Open = Arc<watch::Sender<BTreeSet<SocketAddr>>>;

/// Keeps the listeners of the plan until `all` retires. What is sent to a port is looked up for each client. Clients of a listener that is
/// closed go on.
pub(super) async fn keep(state: Arc<State>, listening: Open, all: Ending) {
    let mut plans = state.plan.subscribe();
    let (ways, mut open) = (Ways::default(), BTreeMap::<SocketAddr, Ending>::new());
    let mut tasks = JoinSet::new();
    loop {
        let plan = plans.borrow_and_update().clone();
        // Who is no gateway any more takes what is still sent to it until `all` retires.
        if plan.role == Role::Gateway {
            ways.lock().clone_from(&plan.ways_in);
            open.retain(|address, closed| {
                let stays = plan.ways_in.contains_key(address);
                if !stays {
                    closed.retire();
                }
                stays
            });
            for address in plan.ways_in.keys() {
                open.entry(*address).or_insert_with(|| {
                    let closed = all.child();
                    let (state, ways, listening) = (state.clone(), ways.clone(), listening.clone());
                    tasks.spawn(serve(state, ways, listening, *address, closed.clone()));
                    closed
                });
            }
        }
        tokio::select! {
            changed = plans.changed() => if changed.is_err() { break },
            () = all.retired() => break,
            Some(_) = tasks.join_next() => {}
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn serve(state: Arc<State>, ways: Ways, listening: Open, address: SocketAddr, closed: Ending) {
    let name = format!("way in at {address}");
    let listener = tokio::select! {
        listener = bind(&state, &name, address) => listener,
        () = closed.retired() => return state.problem(&name, None),
    };
    listening.send_if_modified(|open| open.insert(address));
    // Told before it is so, and before another listener can be there; what drains takes nobody new.
    let told = async {
        closed.retired().await;
        listening.send_if_modified(|open| open.remove(&address));
    };
    let drain = state.connector.limits().drain;
    let ending = closed.clone();
    let listen = listen::tcp(listener, closed.clone(), drain, move |client, peer, arrival| {
        let (state, ending) = (state.clone(), ending.clone());
        let way = ways.lock().get(&address).cloned();
        async move {
            let listener = match way {
                Some(WayIn::Http(_)) => Listener::NodesHttp,
                Some(WayIn::Tls(_)) => Listener::NodesTls,
                None => return,
            };
            if !state.speaks(&client, listener).await {
                return;
            }
            match way {
                Some(WayIn::Http(ports)) => {
                    let ingress = state.way_in_of_anybody("internal-http");
                    Box::pin(serve_http(&ingress, client, &peer, &arrival, &Form::Host(ports), &ending))
                        .await;
                }
                Some(WayIn::Tls(port)) => {
                    let ingress = state.way_in_of_anybody("internal-tls");
                    Box::pin(serve_sni(&ingress, client, &peer, &arrival, port)).await;
                }
                None => {}
            }
        }
    });
    tokio::join!(biased; told, listen);
}

#[cfg(test)]
mod tests;
