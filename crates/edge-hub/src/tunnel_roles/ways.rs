//! The ways in and out that do not depend on the cluster: a loopback proxy for programs of this node, a Unix socket for an API
//! server, and TCP with mutual TLS for clients that are named. Each says who its client is, or sends it away.

use std::{
    collections::BTreeSet, io, net::SocketAddr, os::unix::fs::MetadataExt, path::Path, sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream, UnixListener},
    runtime::Handle,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use tunnel::{
    doorway::Source,
    ending::Ending,
    ingress::{
        arrival::Arrival,
        http::{Form, serve_http},
        listen,
    },
    stats::Listener,
};

use super::{Mutual, State, TunnelConfig, args::LocalUser, plan::Role, thread::tcp_heard_on};
use crate::{
    authenticate::user_of,
    identity::Shown,
    listen::{CallerProcess, Origin, owner_of},
};

/// How long a TLS handshake may take, from when the client came.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How often the file of clients' authorities is read again: nobody tells that it was replaced.
const AGAIN: Duration = Duration::from_mins(1);

const CROWDED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
/// To who may not use a listener at all, whatever is asked for.
const DENIED: &[u8] = b"HTTP/1.1 403 Forbidden\r\nisthmus-reason: not_a_caller\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 93\r\n\r\nthis caller may not use the tunnel here: the log of this node's hub says why (tunnel::audit)\n";

/// Why a listener cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WaysError {
    /// An address cannot be listened on.
    #[error("{flag}: cannot listen on {address}: {source}")]
    Bind {
        /// The flag that gives the address.
        flag: &'static str,
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
}

/// The listeners, bound.
pub struct Ways {
    loopback: Option<(TcpListener, BTreeSet<LocalUser>)>,
    socket: Option<(UnixListener, u32)>,
    clients: Option<(TcpListener, Mutual)>,
}

impl Ways {
    /// Binds what was asked for, to be served on `runtime`.
    pub async fn bind(config: &TunnelConfig, runtime: &Handle) -> Result<Self, WaysError> {
        let tcp = async |flag, address: SocketAddr| {
            let bound = TcpListener::bind(address).await;
            let failed = |source| WaysError::Bind { flag, address: address.to_string(), source };
            bound.and_then(|listener| tcp_heard_on(runtime, listener)).map_err(failed)
        };
        let loopback = match &config.proxy {
            Some((address, users)) => Some((tcp("--tunnel-proxy-port", *address).await?, users.clone())),
            None => None,
        };
        let clients = match &config.clients {
            Some(clients) => Some((tcp("--tunnel-clients-address", clients.address).await?, clients.clone())),
            None => None,
        };
        let socket = config.socket.as_deref().map(|path| {
            let failed = |source| WaysError::Bind {
                flag: "--tunnel-egress-socket",
                address: path.display().to_string(),
                source,
            };
            socket(path, runtime).map_err(failed)
        });
        Ok(Self { loopback, socket: socket.transpose()?, clients })
    }

    /// Serves until `shutdown`, and then as long as streams may go on. `shown` is the certificate of a gateway.
    pub(super) async fn serve(
        self,
        state: Arc<State>,
        shown: watch::Receiver<Option<Shown>>,
        shutdown: CancellationToken,
    ) {
        let Self { loopback, socket, clients } = self;
        let runtime = &state.runtime.clone();
        let drain = state.connector.limits().drain;
        let ending = Ending::at(shutdown.clone());
        let mut tasks = JoinSet::new();
        if let Some((listener, users)) = loopback {
            let users = Arc::new(users);
            let (state, end) = (state.clone(), ending.clone());
            let served = listen::tcp(listener, ending.clone(), drain, move |client, peer, arrival| {
                let (state, users, end) = (state.clone(), users.clone(), end.clone());
                async move {
                    let nobody = |_| (None, CallerProcess::unknown());
                    let owner = peer.parse().map_or_else(nobody, |peer| owner_of(&client, peer));
                    local(state, users, owner, end, client, peer, arrival).await;
                }
            });
            tasks.spawn_on(served, runtime);
        }
        if let Some((listener, owner)) = socket {
            let (state, end) = (state.clone(), ending.clone());
            let served = listen::unix(listener, ending.clone(), drain, move |mut client, peer| {
                let (state, end) = (state.clone(), end.clone());
                async move {
                    // Between its making and its mode somebody else might have come in.
                    let uid = client.peer_cred().ok().map(|credentials| credentials.uid());
                    if uid != Some(owner) && uid != Some(0) {
                        warn!(target: "tunnel::audit", ?uid, "refused at the Unix socket: another user");
                        let _ = client.write_all(DENIED).await;
                        return;
                    }
                    let ingress = state.way_in("egress-socket");
                    let arrival = Arrival::uncounted();
                    Box::pin(serve_http(&ingress, client, &peer, &arrival, &Form::Proxy, &end)).await;
                }
            });
            tasks.spawn_on(served, runtime);
        }
        if let Some((listener, clients)) = clients {
            let config = Arc::new(ArcSwapOption::empty());
            let follow = follow(state.clone(), clients.clone(), shown, config.clone());
            let end = shutdown.clone();
            tasks.spawn(async move {
                tokio::select! {
                    () = follow => {}
                    () = end.cancelled() => {}
                }
            });
            let names = Arc::new(clients.names);
            let end = ending.clone();
            let served = listen::tcp(listener, ending, drain, move |client, peer, arrival| {
                mutual(state.clone(), names.clone(), config.load_full(), end.clone(), client, peer, arrival)
            });
            tasks.spawn_on(served, runtime);
        }
        while tasks.join_next().await.is_some() {}
    }
}

fn socket(path: &Path, runtime: &Handle) -> io::Result<(UnixListener, u32)> {
    // That is told of who comes.
    let _there = runtime.enter();
    let listener = crate::run::socket(path)?;
    Ok((listener, std::fs::metadata(path)?.uid()))
}

/// A client over loopback: the kernel says whose process it is. The container runtime, which connects for whoever may forward a port of a pod that
/// shares the node's network, is no user's program, whatever it runs as; where that cannot be found out, nobody's is let in.
async fn local(
    state: Arc<State>,
    users: Arc<BTreeSet<LocalUser>>,
    (uid, process): (Option<u32>, CallerProcess),
    ending: Ending,
    mut client: TcpStream,
    peer: String,
    mut arrival: Arrival,
) {
    // First of all: who may not use it has no place that another may need.
    let listed = uid.is_some_and(|uid| users.contains(&LocalUser::Uid(uid)));
    let for_all = users.contains(&LocalUser::Any);
    if listed && !for_all {
        process.find().await;
    }
    let origin = process.origin();
    let known = listed && matches!(origin, Some(Origin::Node | Origin::Pod));
    if !known && !for_all {
        // Whose it was that is gone already the kernel does not say.
        let source = uid.map_or_else(|| arrival.source(), Source::User);
        if uid.is_none() && !state.speaks(&client, Listener::Loopback).await {
            return;
        }
        if listed && process.is_crowded() {
            let _ = client.write_all(CROWDED).await;
            return debug!(peer, ?uid, "too many wait to be found out");
        }
        let (kind, why) = match origin {
            _ if !listed => ("user", "not one of --tunnel-proxy-uids"),
            Some(_) => {
                ("runtime", "the container runtime is not one of --tunnel-proxy-uids, whoever it runs as")
            }
            None => ("process", "whether it is the container runtime cannot be found out"),
        };
        if state.connector.unknown().may_tell("loopback", kind, source) {
            warn!(target: "tunnel::audit", caller = peer, ?uid, "refused at the loopback proxy: {why}");
        }
        let _ = client.write_all(DENIED).await;
        return;
    }
    if uid.is_some_and(|uid| !arrival.is_of_user(uid)) {
        return debug!(peer, ?uid, "too many of this user have not said what they want");
    }
    if !state.speaks(&client, Listener::Loopback).await {
        return;
    }
    let caller = uid.map_or_else(|| peer.clone(), |uid| format!("uid {uid} {peer}"));
    let ingress = state.way_out("loopback");
    Box::pin(serve_http(&ingress, client, &caller, &arrival, &Form::Proxy, &ending)).await;
}

/// A client with a certificate, whose common name is on the list.
async fn mutual(
    state: Arc<State>,
    names: Arc<BTreeSet<String>>,
    config: Option<Arc<ServerConfig>>,
    ending: Ending,
    client: TcpStream,
    peer: String,
    arrival: Arrival,
) {
    if !state.speaks(&client, Listener::Clients).await {
        return;
    }
    let Some(config) = config else { return debug!(peer, "no certificate to serve with yet") };
    let mut client = match timeout_at(arrival.deadline(HANDSHAKE), TlsAcceptor::from(config).accept(client))
        .await
    {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => {
            if state.connector.unknown().may_tell("clients", "certificate", arrival.source()) {
                warn!(target: "tunnel::audit", caller = peer, %error, "refused: no client with a certificate");
            }
            return;
        }
        Err(_) => return debug!(peer, "no TLS handshake in time"),
    };
    let leaf = client.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let name = leaf.and_then(user_of).map(|user| user.name).unwrap_or_default();
    if !names.contains(&*name) {
        if state.connector.unknown().may_tell("clients", "name", arrival.source()) {
            warn!(target: "tunnel::audit", caller = peer, %name, "refused: not one of --tunnel-client-names");
        } else {
            debug!(peer, %name, "not one of --tunnel-client-names");
        }
        let _ = client.write_all(DENIED).await;
        let _ = client.shutdown().await;
        return;
    }
    if !arrival.enter() {
        return debug!(peer, %name, "too many clients of this source");
    }
    let caller = format!("{name} {peer}");
    let ingress = state.way_in("clients");
    Box::pin(serve_http(&ingress, client, &caller, &arrival, &Form::Proxy, &ending)).await;
}

/// Serves with the gateway's certificate and the clients' authorities as they are.
async fn follow(
    state: Arc<State>,
    clients: Mutual,
    mut shown: watch::Receiver<Option<Shown>>,
    config: Arc<ArcSwapOption<ServerConfig>>,
) {
    const PART: &str = "--tunnel-clients-address";
    let mut plans = state.plan.subscribe();
    loop {
        let current = shown.borrow_and_update().clone();
        let role = plans.borrow_and_update().role;
        let made = match &current {
            Some(shown) => server_config(&clients, shown).map(Some),
            None if role == Role::Gateway => Ok(None),
            None => {
                // It has no right to show what it had.
                config.store(None);
                Err("this node is no gateway, so it has no certificate to serve clients with".to_owned())
            }
        };
        match made {
            Ok(made) => {
                state.problem(PART, None);
                if let Some(made) = made {
                    config.store(Some(Arc::new(made)));
                }
            }
            Err(problem) => state.problem(PART, Some(problem)),
        }
        tokio::select! {
            changed = shown.changed() => if changed.is_err() { return std::future::pending().await },
            changed = plans.changed() => if changed.is_err() { return std::future::pending().await },
            () = sleep(AGAIN) => {}
        }
    }
}

fn server_config(clients: &Mutual, shown: &Shown) -> Result<ServerConfig, String> {
    let roots = tls::pem_file::roots(&clients.authority).map_err(|error| error.to_string())?;
    let pem = shown.read().map_err(|error| error.to_string())?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.certificate.as_bytes()).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    // The reason is left out: it might quote the key.
    let key =
        PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).map_err(|_| "the key cannot be read".to_owned())?;
    let verifier =
        WebPkiClientVerifier::builder(Arc::new(roots)).build().map_err(|error| error.to_string())?;
    let mut config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A session that is resumed would outlive the trust that it began with.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests;
