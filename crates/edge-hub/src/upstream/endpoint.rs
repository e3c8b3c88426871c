//! An API server's address, as `--server-addr` names it.

use std::{fmt, str::FromStr};

use rustls_pki_types::ServerName;

/// `https://host:port`: one API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: Box<str>,
    port: u16,
    name: ServerName<'static>,
}

/// The text is no address of an API server. Whoever parsed it names the text and the option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; write it as https://host:port")]
pub struct EndpointError {
    problem: &'static str,
}

impl Endpoint {
    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port; 443 if none was named.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name that the server's certificate must have.
    pub fn server_name(&self) -> ServerName<'static> {
        self.name.clone()
    }

    /// `host:port`, as it stands in the `Host` header.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(address: &str) -> Result<Self, EndpointError> {
        let error = |problem| EndpointError { problem };
        let uri: http::Uri = address.parse().map_err(|_| error("not a URL"))?;
        if uri.scheme_str() != Some("https") {
            return Err(error("the scheme must be https"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(error("a path has no place here"));
        }
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(error("credentials have no place here"));
        }
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| error("no valid host name or address"))?;
        Ok(Self { host: host.into(), port: uri.port_u16().unwrap_or(443), name })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "https://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[test]
    fn addresses_are_read_and_refused() {
        let good = [
            ("https://10.0.0.1:6443", "10.0.0.1:6443"),
            ("https://api.example", "api.example:443"),
            ("https://[fd00::1]:6443/", "[fd00::1]:6443"),
        ];
        for (text, authority) in good {
            assert_eq!(
                text.parse::<Endpoint>().map(|endpoint| endpoint.authority()),
                Ok(authority.to_owned())
            );
        }
        for text in [
            "http://a:1",
            "a:6443",
            "https://",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "https://a b",
            "",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }
}
