//! TLS passed through by the server's name: the first message of the client is read, nothing is answered, and all bytes go
//! on as they came. The destination authenticates the true client.

use std::{io, time::Duration};

use rustls::server::Acceptor;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout_at,
};
use tracing::{debug, info};

use super::{Ingress, arrival::Arrival};
use crate::{
    protocol::OpenError,
    relay::{Pipe, relay_once_heard},
    target::{Host, Target},
};

/// The longest first message, with the headers of its records. Those that are sent have a few hundred bytes, with keys that no quantum computer
/// finds two thousand; strangers have as much memory here as this.
const CLIENT_HELLO_MAX: usize = 16 * 1024;

/// How long a client may take to send it, from when it came.
const CLIENT_HELLO_TIME: Duration = Duration::from_secs(10);

/// How long a client may take to say something after that. Whatever version of TLS it speaks, it has to: its part of the handshake is not over with
/// its first message. Here only records are seen, so nobody can tell more; but who says one and no more holds a stream of a link, and of the node's
/// server, for as long as that lets it.
const HANDSHAKE_TIME: Duration = Duration::from_secs(30);

/// The TLS alert `unrecognized_name` (RFC 6066, 3), fatal, in a record of TLS 1.2.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Why a first message does not say where to.
#[derive(Debug, thiserror::Error)]
pub enum ClientHelloError {
    /// The connection.
    #[error("the connection")]
    Io(#[from] io::Error),
    /// It did not come in time.
    #[error("not in time")]
    Timeout,
    /// It goes on for ever.
    #[error("too long")]
    TooLong,
    /// It is no `ClientHello`.
    #[error("malformed")]
    Malformed(#[source] rustls::Error),
    /// It names no server: the client dialled an address.
    #[error("no server name: dial the node's name, not its address")]
    NoServerName,
}

/// Reads up to the end of the `ClientHello`. Gives the name and all that was read.
async fn client_hello(client: &mut impl Pipe) -> Result<(String, Vec<u8>), ClientHelloError> {
    let mut acceptor = Acceptor::default();
    let mut raw = Vec::new();
    let mut buffer = vec![0; 4096];
    loop {
        let most = buffer.len().min(CLIENT_HELLO_MAX - raw.len());
        let read = client.read(&mut buffer[..most]).await?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        raw.extend_from_slice(&buffer[..read]);
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            // Its own buffer is full before ours, should it wait for more than it can hold.
            acceptor.read_tls(&mut rest).map_err(|_| ClientHelloError::TooLong)?;
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().map(str::to_owned);
                    return Ok((name.ok_or(ClientHelloError::NoServerName)?, raw));
                }
                Ok(None) => {}
                Err((error, _)) => return Err(ClientHelloError::Malformed(error)),
            }
        }
        if raw.len() >= CLIENT_HELLO_MAX {
            return Err(ClientHelloError::TooLong);
        }
    }
}

/// Serves one client that dialled `port` of the name it says. It enters with its first message.
pub async fn serve_sni(ingress: &Ingress, mut client: impl Pipe, peer: &str, arrival: &Arrival, port: u16) {
    let hello = timeout_at(arrival.deadline(CLIENT_HELLO_TIME), client_hello(&mut client)).await;
    let (name, first) = match hello.unwrap_or(Err(ClientHelloError::Timeout)) {
        Ok(hello) => hello,
        Err(error) => {
            if matches!(error, ClientHelloError::Io(_) | ClientHelloError::Timeout) {
                if ingress.connector.unknown().may_tell(ingress.name, "no_hello", arrival.source()) {
                    info!(listener = ingress.name, peer, %error, "no TLS client that says where to");
                } else {
                    debug!(listener = ingress.name, peer, %error, "no TLS client that says where to");
                }
                return;
            }
            ingress.refused(&format!("port {port}: {error}"), peer, arrival, OpenError::Malformed);
            if matches!(error, ClientHelloError::NoServerName) {
                // It may be gone.
                let _ = client.write_all(&UNRECOGNIZED_NAME).await;
            }
            return;
        }
    };
    let Ok(host) = Host::parse(&name) else {
        ingress.refused(&name, peer, arrival, OpenError::Malformed);
        let _ = client.write_all(&UNRECOGNIZED_NAME).await;
        return;
    };
    let target = Target { host, port };
    // Nobody has said who the client is: it gets to nodes and no further.
    if !ingress.is_node(&target.host) {
        ingress.refused(&target.to_string(), peer, arrival, OpenError::Unknown);
        let _ = client.write_all(&UNRECOGNIZED_NAME).await;
        return;
    }
    if !arrival.enter() {
        return ingress.refused(&target.to_string(), peer, arrival, OpenError::Crowded);
    }
    let request = ingress.request(target, peer, arrival);
    match Box::pin(ingress.connector.connect(&request)).await {
        Ok(mut upstream) => {
            let (passed, result) = relay_once_heard(&mut client, &mut upstream, first, HANDSHAKE_TIME).await;
            debug!(target = %request.target, up = passed.up, down = passed.down, broken = result.is_err(), "passed through");
        }
        Err(error) => {
            debug!(target = %request.target, %error, "not passed through");
            if !error.is_worth_another_way() {
                let _ = client.write_all(&UNRECOGNIZED_NAME).await;
            }
        }
    }
}
