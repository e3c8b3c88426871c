//! Making connections: to destinations, and to gateways, if need be through an HTTP proxy.

use std::{fmt, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{StreamExt, stream::FuturesUnordered};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    backoff::Obstacle,
    destination::is_never,
    protocol::OpenError,
    route::Direct,
    socket::{tune_link, tune_stream},
};

/// When the next address is tried while one has not answered (RFC 8305, 8).
const STAGGER: Duration = Duration::from_millis(250);

/// The longest answer of a proxy.
const PROXY_ANSWER_MAX: usize = 8 * 1024;

/// An HTTP proxy on the way to gateways.
#[derive(Clone)]
pub struct Proxy {
    /// `host:port`.
    pub address: String,
    // The header's value, which is as good as the password.
    authorization: Option<String>,
    // What is dialled through it: anything, if there is none.
    used_for: Option<Arc<Matcher>>,
}

impl Proxy {
    /// A proxy that asks for nothing.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), authorization: None, used_for: None }
    }

    /// With a name and password (RFC 7617).
    #[must_use]
    pub fn with_password(mut self, user: &str, password: &str) -> Self {
        self.authorization = Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))));
        self
    }

    /// But not on the way to these, in the form of `NO_PROXY`: names with all below them, addresses, networks, or `*`, with
    /// commas between them.
    #[must_use]
    pub fn except(mut self, hosts: &str) -> Self {
        // Of the library's rules only those about hosts are used; whatever they do not spare has some proxy.
        let matcher = Matcher::builder().all("http://proxy.invalid").no(hosts).build();
        self.used_for = Some(Arc::new(matcher));
        self
    }

    /// Whether it is on the way to `host:port`.
    pub fn is_for(&self, address: &str) -> bool {
        let (Some(matcher), Ok(uri)) = (&self.used_for, format!("http://{address}").parse()) else {
            return true;
        };
        matcher.intercept(&uri).is_some()
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Why a gateway was not reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name was not resolved.
    #[error("looking up the name")]
    Lookup(#[source] io::Error),
    /// No connection.
    #[error("connecting")]
    Connect(#[source] io::Error),
    /// No connection, and nobody says why.
    #[error("nobody answered in time")]
    Unanswered,
    /// The proxy took the connection, and has not said whether it leads to the gateway.
    #[error("the proxy did not answer in time")]
    ProxyUnanswered,
    /// The proxy's answer is none.
    #[error("the proxy's answer is malformed")]
    ProxyAnswer,
    /// The proxy refused.
    #[error("the proxy answered {0}")]
    ProxyRefused(u16),
}

impl DialError {
    /// What kept it from being reached. Nobody answered, no gateway, no proxy, no resolver: the line is cut. A proxy that does not let this node
    /// pass wants to be spared as a gateway does.
    pub(crate) fn obstacle(&self) -> Obstacle {
        use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
        match self {
            Self::Unanswered | Self::ProxyUnanswered => Obstacle::Silence,
            Self::Lookup(error) if unresolved(&error.to_string()) == OpenError::Unreachable => {
                Obstacle::Silence
            }
            Self::Connect(error)
                if matches!(error.kind(), HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut) =>
            {
                Obstacle::Silence
            }
            Self::ProxyRefused(code) if !(500..600).contains(code) => Obstacle::Refusal,
            Self::Lookup(_) | Self::Connect(_) | Self::ProxyAnswer | Self::ProxyRefused(_) => {
                Obstacle::Absence
            }
        }
    }
}

/// Connects to a gateway at `host:port` until `deadline`, through the proxy if there is one. As long as nobody answers it is tried `once_more` each time
/// that has passed.
pub(crate) async fn gateway(
    address: &str,
    proxy: Option<&Proxy>,
    once_more: Duration,
    deadline: Instant,
) -> Result<TcpStream, DialError> {
    let first = proxy.map_or(address, |proxy| proxy.address.as_str());
    let silence = || io::Error::new(io::ErrorKind::TimedOut, "no resolver answered in time");
    let found = timeout_at(deadline, tokio::net::lookup_host(first)).await;
    let found = found.unwrap_or_else(|_| Err(silence())).map_err(DialError::Lookup)?;
    let addresses: Vec<SocketAddr> = found.collect();
    let connect = || any_of(addresses.clone());
    let connected = timeout_at(deadline, repeated(connect, once_more)).await;
    let mut connection = connected.map_err(|_| DialError::Unanswered)?.map_err(DialError::Connect)?;
    tune_link(&connection);
    if let Some(proxy) = proxy {
        let asked = timeout_at(deadline, through(&mut connection, address, proxy)).await;
        asked.map_err(|_| DialError::ProxyUnanswered)??;
    }
    Ok(connection)
}

/// Asks a proxy to connect (RFC 9110, 9.3.6).
async fn through(connection: &mut TcpStream, address: &str, proxy: &Proxy) -> Result<(), DialError> {
    let authorization = proxy.authorization.as_ref();
    let authorization =
        authorization.map_or_else(String::new, |value| format!("Proxy-Authorization: {value}\r\n"));
    let request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n{authorization}\r\n");
    connection.write_all(request.as_bytes()).await.map_err(DialError::Connect)?;
    let mut answer = Vec::new();
    loop {
        // Byte by byte would be slow for much, but this is a few hundred bytes once; and nothing that follows is taken away.
        let byte = connection.read_u8().await.map_err(DialError::Connect)?;
        answer.push(byte);
        if answer.ends_with(b"\r\n\r\n") {
            break;
        }
        if answer.len() >= PROXY_ANSWER_MAX {
            return Err(DialError::ProxyAnswer);
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    response.parse(&answer).map_err(|_| DialError::ProxyAnswer)?;
    match response.code {
        Some(200..=299) => Ok(()),
        Some(code) => Err(DialError::ProxyRefused(code)),
        None => Err(DialError::ProxyAnswer),
    }
}

/// Connects to a destination that this node may dial.
pub(crate) async fn destination(direct: &Direct, limit: Duration) -> Result<TcpStream, OpenError> {
    let connect = async {
        let addresses = match direct {
            Direct::Addresses(addresses) => addresses.clone(),
            Direct::Name(name, port) => resolve(name, *port).await?,
        };
        any_of(addresses).await.map_err(|_| OpenError::Unreachable)
    };
    let connection = timeout(limit, connect).await.unwrap_or(Err(OpenError::Timeout))?;
    tune_stream(&connection);
    Ok(connection)
}

async fn resolve(name: &str, port: u16) -> Result<Vec<SocketAddr>, OpenError> {
    let found =
        tokio::net::lookup_host((name, port)).await.map_err(|error| unresolved(&error.to_string()))?;
    let found: Vec<SocketAddr> = found.collect();
    // Whoever answers for a name must not lead to what no rule allows.
    if found.iter().any(|address| is_never(address.ip())) {
        return Err(OpenError::NotAllowed);
    }
    Ok(found)
}

/// What an error of the resolver means: that there is no such name, or nothing of the name. A resolver that does not answer is the trouble of
/// this node, and another may have one that does.
fn unresolved(error: &str) -> OpenError {
    // The library's codes are not told but in its words: of glibc and of musl for EAI_NONAME and EAI_NODATA.
    const NO_SUCH_NAME: [&str; 4] = [
        "Name or service not known",
        "No address associated with hostname",
        "Name does not resolve",
        "Name has no usable address",
    ];
    let ends_so = NO_SUCH_NAME.iter().any(|words| error.ends_with(words));
    if ends_so { OpenError::Unknown } else { OpenError::Unreachable }
}

/// The first of these that answers. Each is tried when the one before failed, or has not answered for a while.
async fn any_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    first_of(addresses.into_iter().map(TcpStream::connect)).await
}

/// What comes first of an attempt and others of the kind, of which one begins each time that so long has passed.
async fn repeated<T, F: Future<Output = io::Result<T>>>(
    attempt: impl Fn() -> F,
    once_more: Duration,
) -> io::Result<T> {
    let mut under_way = FuturesUnordered::new();
    loop {
        under_way.push(attempt());
        tokio::select! {
            Some(result) = under_way.next() => return result,
            () = tokio::time::sleep(once_more) => {}
        }
    }
}

async fn first_of<T, F: Future<Output = io::Result<T>>>(attempts: impl Iterator<Item = F>) -> io::Result<T> {
    let mut attempts = attempts.peekable();
    let mut under_way = FuturesUnordered::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(next) = attempts.next() {
            under_way.push(next);
        }
        let more = attempts.peek().is_some();
        tokio::select! {
            result = under_way.next() => match result {
                Some(Ok(connection)) => return Ok(connection),
                Some(Err(error)) => last = error,
                None => return Err(last),
            },
            () = tokio::time::sleep(STAGGER), if more => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_by_a_quarter_second_only() {
        let began = Instant::now();
        let attempt = |(wait, result): (u64, Result<u8, io::ErrorKind>)| async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            result.map_err(io::Error::from)
        };
        let refused = Err(io::ErrorKind::ConnectionRefused);
        let attempts = [(10, refused), (60_000, Ok(1)), (100, Ok(2))].map(attempt);
        assert_eq!(first_of(attempts.into_iter()).await.unwrap(), 2);
        assert_eq!(began.elapsed().as_millis(), 10 + 250 + 100);
        let attempts = [(10, refused), (10, refused)].map(attempt);
        assert_eq!(
            first_of(attempts.into_iter()).await.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert!(first_of(std::iter::empty::<std::future::Ready<io::Result<u8>>>()).await.is_err());
    }

    /// The kernel would ask after 1, 3, 7 and 15 s, and so be up to eight late.
    #[tokio::test(start_paused = true)]
    async fn a_line_that_is_there_again_is_noticed_by_the_next_question() {
        let began = Instant::now();
        let up = began + Duration::from_millis(8_300);
        // What was sent before is lost.
        let attempt = || async {
            if Instant::now() < up {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
            Ok(7)
        };
        assert_eq!(repeated(attempt, Duration::from_secs(1)).await.unwrap(), 7);
        assert_eq!(began.elapsed().as_millis(), 9_040);
        // Far away is no silence: the first question's answer counts.
        let far = || async {
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            Ok(began.elapsed())
        };
        let came = repeated(far, Duration::from_secs(1)).await.unwrap();
        assert_eq!(came.as_millis(), 9_040 + 2_500);
        let refused = || async { Err::<(), _>(io::ErrorKind::ConnectionRefused.into()) };
        let error = repeated(refused, Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(DialError::Connect(error).obstacle(), Obstacle::Absence);
    }

    #[test]
    fn what_is_no_gateway_s_answer_is_told_from_silence() {
        use io::ErrorKind::{
            ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut, UnexpectedEof,
        };
        for (kind, obstacle) in [
            (ConnectionRefused, Obstacle::Absence),
            (ConnectionReset, Obstacle::Absence),
            (UnexpectedEof, Obstacle::Absence),
            (HostUnreachable, Obstacle::Silence),
            (NetworkUnreachable, Obstacle::Silence),
            (TimedOut, Obstacle::Silence),
        ] {
            assert_eq!(DialError::Connect(kind.into()).obstacle(), obstacle, "{kind}");
        }
        let lookup = |said: &str| DialError::Lookup(io::Error::other(said.to_owned())).obstacle();
        assert_eq!(lookup("Temporary failure in name resolution"), Obstacle::Silence);
        assert_eq!(lookup("no resolver answered in time"), Obstacle::Silence);
        assert_eq!(DialError::Unanswered.obstacle(), Obstacle::Silence);
        assert_eq!(DialError::ProxyUnanswered.obstacle(), Obstacle::Silence);
        assert_eq!(lookup("Name or service not known"), Obstacle::Absence);
        for (code, obstacle) in [
            (502, Obstacle::Absence),
            (503, Obstacle::Absence),
            (504, Obstacle::Absence),
            (403, Obstacle::Refusal),
            (407, Obstacle::Refusal),
            (429, Obstacle::Refusal),
        ] {
            assert_eq!(DialError::ProxyRefused(code).obstacle(), obstacle, "{code}");
        }
        assert_eq!(DialError::ProxyAnswer.obstacle(), Obstacle::Absence);
    }

    #[test]
    fn a_proxy_is_not_used_for_what_is_excepted() {
        let proxy = Proxy::new("p:1").except("corp.example, .lan,10.0.0.0/8,192.168.1.7,fd00::/8");
        for (address, used) in [
            ("gw.example:10262", true),
            ("corp.example:10262", false),
            ("gw.corp.example:10262", false),
            ("notcorp.example:10262", true),
            ("gw.lan:443", false),
            ("10.1.2.3:443", false),
            ("11.1.2.3:443", true),
            ("192.168.1.7:1", false),
            ("192.168.1.8:1", true),
            ("[fd00::1]:1", false),
            ("[2001:db8::1]:1", true),
        ] {
            assert_eq!(proxy.is_for(address), used, "{address}");
        }
        assert!(Proxy::new("p:1").is_for("10.1.2.3:443") && Proxy::new("p:1").except("").is_for("a:1"));
        assert!(!Proxy::new("p:1").except("*").is_for("gw.example:443"));
    }

    #[test]
    fn a_resolver_that_fails_is_not_a_name_that_nobody_has() {
        for (said, expected) in [
            ("Name or service not known", OpenError::Unknown),
            ("No address associated with hostname", OpenError::Unknown),
            ("Name does not resolve", OpenError::Unknown),
            ("Name has no usable address", OpenError::Unknown),
            ("Temporary failure in name resolution", OpenError::Unreachable),
            ("Non-recoverable failure in name resolution", OpenError::Unreachable),
            ("Try again", OpenError::Unreachable),
            ("Unrecoverable error", OpenError::Unreachable),
            ("System error", OpenError::Unreachable),
            ("Too many open files (os error 24)", OpenError::Unreachable),
        ] {
            let error = unresolved(&format!("failed to lookup address information: {said}"));
            assert_eq!(error, expected, "{said}");
        }
        assert!(OpenError::Unreachable.is_worth_another_way());
        // As this system's library says it of a name that needs no network to be none.
        let none = std::net::ToSocketAddrs::to_socket_addrs(&("a name", 1)).unwrap_err();
        assert_eq!(unresolved(&none.to_string()), OpenError::Unknown, "{none}");
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", Proxy::new("p:1").with_password("user", "secret"));
        assert!(shown.contains("p:1") && !shown.contains("dXNlcjpz") && !shown.contains("secret"), "{shown}");
    }
}
