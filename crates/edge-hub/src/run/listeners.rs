//! The listeners of a hub: bound early, and served until the shutdown.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::{
    Router,
    extract::{Request, State},
    http::header,
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use rustls::ServerConfig;
use socket2::SockRef;
use tls::listener::{Limits, TlsListener};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{app::StartError, config::Listeners, secure, serving_files::ServingFiles};
use crate::{
    filters::PodAccess,
    listen::{CallerProcess, Origin, Peer, host, over_tls, plain, seats::Seats},
    proxy::refusal,
    storage::Storage,
    upstream::Dial,
};

/// How long a client of HTTPS may leave unread what it was sent: what cannot be sent cannot be ended otherwise.
const UNACKNOWLEDGED: Duration = Duration::from_mins(1);

/// How a hub is reached, and how it reaches API servers.
#[derive(Clone)]
pub enum Network {
    /// By its listeners, and over TCP.
    Kernel,
    /// By who has its [`super::App::router`] alone, and over connections that are made so: nothing is listened on.
    Within(Arc<dyn Dial>),
}

/// The listeners, bound.
pub(super) struct Bound {
    proxy: TcpListener,
    admin: TcpListener,
    secure: Option<(TlsListener, ServingFiles, Arc<ArcSwap<ServerConfig>>)>,
    socket: Option<UnixListener>,
    /// How many each may have.
    connections: usize,
}

impl Bound {
    /// Binds what needs no lock of the store.
    pub(super) async fn bind(listeners: &Listeners, authority: &Path) -> Result<Self, StartError> {
        let proxy = bind(listeners.proxy, "--bind-proxy-address, --proxy-port").await?;
        let admin = bind(listeners.admin, "--bind-address, --serve-port").await?;
        let secure = match &listeners.secure {
            None => None,
            Some(secure) => {
                let files = ServingFiles::new(secure, authority);
                let config = Arc::new(ArcSwap::from_pointee(files.config()?));
                let tcp = bind(secure.0, "--secure-bind-address, --proxy-secure-port").await?;
                let limits = Limits { unacknowledged: Some(UNACKNOWLEDGED), ..Limits::default() };
                Some((TlsListener::following(tcp, config.clone(), limits), files, config))
            }
        };
        Ok(Self { proxy, admin, secure, socket: None, connections: listeners.connections })
    }

    /// Binds the socket, once the store's lock says that no other hub uses it. On a file system that can only be read there is none: what is held is
    /// served by the other listeners, and `storage` tells of it.
    pub(super) fn bind_socket(&mut self, path: &Path, storage: &Storage) -> Result<(), StartError> {
        match secure::socket(path) {
            Ok(bound) => self.socket = Some(bound),
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                let path = path.display();
                warn!(%path, %error, "there is no socket, and nothing is stored: make the file system writable and start the hub anew");
                storage.goes_without(format!(
                    "{path}: {error}; there is no socket until the hub starts on a file system that can be written"
                ));
            }
            Err(source) => {
                let address = path.display().to_string();
                return Err(StartError::Bind { flag: "--root-dir", address, source });
            }
        }
        Ok(())
    }

    /// Serves requests and probes in `tasks`; `access` is told when other files of the HTTPS listener change where pods reach it. `node` is the name of
    /// this one.
    pub(super) fn serve(
        self,
        router: &Router,
        admin: Router,
        access: watch::Sender<PodAccess>,
        node: &Arc<str>,
        tasks: &mut JoinSet<()>,
        shutdown: &CancellationToken,
    ) {
        let local = || Seats::local(self.connections);
        let proxy = |stream: &TcpStream, peer: &SocketAddr| Peer::over_loopback(stream, *peer);
        let by_address = without_strange_names(router.clone(), None);
        tasks.spawn(plain::listen(self.proxy, by_address, local(), shutdown.clone(), proxy));
        if let Some(socket) = self.socket {
            let peer = |stream: &UnixStream, _: &_| Peer::over_socket(stream);
            tasks.spawn(plain::listen(socket, router.clone(), local(), shutdown.clone(), peer));
        }
        if let Some((secure, files, config)) = self.secure {
            tasks.spawn(files.follow(config, access, shutdown.clone()));
            let seats = Seats::outward(self.connections);
            tasks.spawn(over_tls::listen(secure, router.clone(), seats, shutdown.clone()));
        }
        // Nobody there is asked who it is.
        let anybody = |_: &TcpStream, _: &SocketAddr| Peer::Local {
            uid: None,
            process: CallerProcess::of(Origin::Node),
        };
        // Prometheus in the cloud asks it by the node's name, through the tunnel.
        let admin = without_strange_names(admin, Some(node.clone()));
        tasks.spawn(plain::listen(self.admin, admin, Seats::of_nobody(), shutdown.clone(), anybody));
    }
}

/// The same for those alone who call it by an address, as `localhost` or by `own`.
fn without_strange_names(router: Router, own: Option<Arc<str>>) -> Router {
    router.layer(from_fn_with_state(own, refuse_strange_names))
}

async fn refuse_strange_names(State(own): State<Option<Arc<str>>>, request: Request, next: Next) -> Response {
    let strange = host::strange(&request, own.as_deref());
    match strange {
        None => next.run(request).await,
        Some(name) => {
            debug!(name, "refused: called by a name over a listener without TLS");
            refusal(request.headers().get(header::ACCEPT), &host::refusal(&name))
        }
    }
}

async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, StartError> {
    let error = |source| StartError::Bind { flag, address: address.to_string(), source };
    let listener = TcpListener::bind(address).await.map_err(error)?;
    // Connections take it from their listener. Without it an event waits until the client has acknowledged the one before.
    SockRef::from(&listener).set_tcp_nodelay(true).map_err(error)?;
    info!(%address, flag, "listening");
    Ok(listener)
}
