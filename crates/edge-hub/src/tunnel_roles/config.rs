//! The tunnel's options, resolved.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use percent_encoding::percent_decode_str;
use tunnel::dial::Proxy;

use super::{DestinationRule, TunnelArgs, args::LocalUser};

/// How the tunnel was asked for.
#[derive(Debug, Clone)]
pub struct TunnelConfig {
    /// The name of this node.
    pub node: String,
    /// Where a gateway accepts links.
    pub listen: SocketAddr,
    /// Where a gateway takes what is sent to the internal Service; at its internal addresses, if nothing is said.
    pub ways_in: Option<IpAddr>,
    /// The loopback proxy, and the users who may use it.
    pub proxy: Option<(SocketAddr, BTreeSet<LocalUser>)>,
    /// What may be reached beside what always may.
    pub destinations: Vec<DestinationRule>,
    /// An HTTP proxy on the way to gateways.
    pub http_proxy: Option<Proxy>,
    /// The Unix socket for an API server.
    pub socket: Option<PathBuf>,
    /// The listener for clients with a certificate.
    pub clients: Option<Mutual>,
}

/// A listener for clients with a certificate.
#[derive(Debug, Clone)]
pub struct Mutual {
    /// Where.
    pub address: SocketAddr,
    /// Authorities of the clients.
    pub authority: PathBuf,
    /// Common names that may come in.
    pub names: BTreeSet<String>,
}

/// What is wrong with the options.
#[derive(Debug, thiserror::Error)]
pub enum TunnelConfigError {
    /// No proxy that can be used.
    #[error("--tunnel-http-proxy (or HTTPS_PROXY): {0}: write http://[USER:PASSWORD@]HOST:PORT")]
    Proxy(&'static str),
    /// The authorities of clients cannot be read.
    #[error("--tunnel-client-ca-file: {0}")]
    Authority(#[from] tls::pem_file::PemFileError),
}

impl TunnelConfig {
    /// Resolves the options; nothing if the tunnel is off. `file` is what the configuration file adds.
    pub fn resolve(
        node: &str,
        args: TunnelArgs,
        file: (bool, &[DestinationRule]),
    ) -> Result<Option<Self>, TunnelConfigError> {
        let TunnelArgs {
            tunnel,
            tunnel_address,
            tunnel_ways_in_address,
            tunnel_proxy_port,
            tunnel_proxy_uids,
            tunnel_destinations,
            tunnel_http_proxy,
            tunnel_no_proxy,
            tunnel_egress_socket,
            tunnel_clients_address,
            tunnel_client_ca_file,
            tunnel_client_names,
        } = args;
        let (on, more) = file;
        if !tunnel && !on {
            return Ok(None);
        }
        let clients = tunnel_clients_address.zip(tunnel_client_ca_file).map(|(address, authority)| Mutual {
            address,
            authority,
            names: tunnel_client_names.into_iter().collect(),
        });
        if let Some(clients) = &clients {
            tls::pem_file::roots(&clients.authority)?;
        }
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, tunnel_proxy_port));
        Ok(Some(Self {
            node: node.to_owned(),
            listen: tunnel_address,
            ways_in: tunnel_ways_in_address,
            proxy: (tunnel_proxy_port != 0).then(|| (loopback, tunnel_proxy_uids.into_iter().collect())),
            destinations: tunnel_destinations.into_iter().chain(more.iter().cloned()).collect(),
            http_proxy: http_proxy(tunnel_http_proxy.as_deref(), tunnel_no_proxy.as_deref())?,
            socket: tunnel_egress_socket,
            clients,
        }))
    }
}

/// The proxy, if there is one that anything goes through.
fn http_proxy(url: Option<&str>, except: Option<&str>) -> Result<Option<Proxy>, TunnelConfigError> {
    let read = url.filter(|url| !url.is_empty()).map(proxy).transpose()?;
    // The star alone means addresses, too, everywhere but in the library.
    let except = except.map(str::trim).unwrap_or_default();
    Ok(read.filter(|_| except != "*").map(|proxy| proxy.except(except)))
}

/// Reads `http://[user:password@]host[:port]`. The text may hold a password: no error quotes it.
fn proxy(url: &str) -> Result<Proxy, TunnelConfigError> {
    let wrong = TunnelConfigError::Proxy;
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => return Err(wrong("only http:// is spoken to proxies")),
        None => url,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (user, host) = match rest.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, rest),
    };
    let target = tunnel::target::Target::parse(host, Some(80)).map_err(|_| wrong("no host and port"))?;
    let proxy = Proxy::new(target.to_string());
    Ok(match user {
        None => proxy,
        Some(user) => {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            proxy.with_password(&decoded(user)?, &decoded(password)?)
        }
    })
}

/// What stands between `//` and `@` of a URL is percent-encoded (RFC 3986, 3.2.1): `%40` is how a password has an `@`.
fn decoded(text: &str) -> Result<Cow<'_, str>, TunnelConfigError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map_err(|_| TunnelConfigError::Proxy("user or password is not UTF-8 once it is percent-decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_gateways_are_dialled_without_the_proxy() {
        let read = |url, except| http_proxy(url, except).unwrap();
        assert!(read(None, Some("a")).is_none() && read(Some(""), None).is_none());
        assert!(read(Some("http://p"), Some(" * ")).is_none());
        assert!(read(Some("http://p"), None).unwrap().is_for("gw:443"));
        let some = read(Some("http://p"), Some("gw")).unwrap();
        assert!(!some.is_for("gw:443") && some.is_for("other:443"));
    }

    #[test]
    fn proxies_are_read_and_passwords_not_told() {
        for (url, address) in [
            ("http://p:3128", "p:3128"),
            ("http://p", "p:80"),
            ("p:3128/", "p:3128"),
            ("http://u:s@[fd00::1]:1", "[fd00::1]:1"),
        ] {
            assert_eq!(proxy(url).unwrap().address, address);
        }
        for (text, plain) in
            [("secret", "secret"), ("s%40cr%3Aet%25", "s@cr:et%"), ("100%", "100%"), ("", "")]
        {
            assert_eq!(decoded(text).unwrap(), plain);
        }
        for url in [
            "http://u:secret%ff@p:1",
            "https://u:secret@p:1",
            "http://u:secret@",
            "http://u:secret@a b:1",
            "socks5://p:1",
        ] {
            let error = proxy(url).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("HTTPS_PROXY"), "{error}");
        }
    }
}
