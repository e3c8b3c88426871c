//! `host:port` of a server that takes reports.

use std::{fmt, str::FromStr};

use http::uri::Authority;

/// A server, as it is dialled; which name its certificate has is another matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    host: String,
    port: u16,
}

/// Why a text names no server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not HOST:PORT")]
pub struct ServerError(String);

impl Server {
    /// Name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for Server {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        let error = || ServerError(text.to_owned());
        let read: Authority = text.trim().parse().map_err(|_| error())?;
        let port = read.port_u16().filter(|port| *port > 0).ok_or_else(error)?;
        let host = read.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || read.as_str().contains('@') {
            return Err(error());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(formatter, "[{host}]:{port}")
        } else {
            write!(formatter, "{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Server;

    #[test]
    fn servers_have_a_port() {
        for text in ["10.1.2.3:9443", "[fd00::1]:9443", "nodes.example.com:443"] {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "host",
            "host:",
            "host:0",
            "host:99999",
            ":9443",
            "user@host:1",
            "fd00::1:9443",
            "https://host:1",
        ] {
            assert!(text.parse::<Server>().is_err(), "{text:?}");
        }
    }
}
