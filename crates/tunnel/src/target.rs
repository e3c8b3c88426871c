//! Where a stream is to go, as its opener wrote it: `host:port`, with a host that is a name or an address.
//!
//! Parsing only. What a name stands for is decided in [`mod@crate::route`].

use std::{fmt, net::IpAddr};

/// A host as it is written in a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name in lower case: a node's, a Service's, any other. It may end with a number, as names of nodes do.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port; never zero.
    pub port: u16,
}

/// What is no target: not `host:port`, or with a host that is neither name nor address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not host:port")]
pub struct TargetError;

impl Host {
    /// Reads a name, an IPv4 address, or an IPv6 address with or without brackets.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<IpAddr>() {
            // An IPv4 address in disguise is the IPv4 address, so that no rule is gone round.
            return Ok(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if bare.is_some() || !is_host_name(&name) {
            return Err(TargetError);
        }
        Ok(Self::Name(name))
    }
}

impl Target {
    /// Reads `host:port`; where the port is missing, `default_port` if there is one.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, TargetError> {
        let (host, port) = match text.rsplit_once(':') {
            // Colons within brackets, or in a bare IPv6 address, are not the port's.
            Some((host, port)) if !port.ends_with(']') && (host.ends_with(']') || !host.contains(':')) => {
                (host, Some(parse_port(port)?))
            }
            _ => (text, default_port),
        };
        Ok(Self { host: Host::parse(host)?, port: port.ok_or(TargetError)? })
    }
}

fn parse_port(text: &str) -> Result<u16, TargetError> {
    // `parse` takes a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TargetError);
    }
    match text.parse() {
        Ok(0) | Err(_) => Err(TargetError),
        Ok(port) => Ok(port),
    }
}

fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(label)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn targets_are_read_and_written() {
        let check = |text: &str, expected: Option<&str>| {
            let read = Target::parse(text, None).ok().map(|target| target.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        };
        check("node-1:10250", Some("node-1:10250"));
        check("Node-1.Example.:443", Some("node-1.example:443"));
        check("10.0.0.1:1", Some("10.0.0.1:1"));
        // Nodes may have such names.
        check("Rack-3.12:10250", Some("rack-3.12:10250"));
        check("1.2.3:80", Some("1.2.3:80"));
        assert_eq!(Host::parse("10.0.0.1"), Ok(Host::Address("10.0.0.1".parse().unwrap())));
        assert_eq!(Host::parse("rack-3.12"), Ok(Host::Name("rack-3.12".into())));
        check("[fd00::1]:65535", Some("[fd00::1]:65535"));
        check("[::ffff:169.254.169.254]:80", Some("169.254.169.254:80"));
        for bad in [
            "", ":", "a", "a:", ":1", "a:0", "a:65536", "a:+1", "a:-1", "a b:1", "u@a:1", "[::1]", "::1",
            "[a]:1", "a..b:1", "[::1:1", "a/b:1", "a:1:2", "é:1",
        ] {
            check(bad, None);
        }
        assert_eq!(Target::parse("a", Some(80)).unwrap().to_string(), "a:80");
        assert_eq!(Target::parse("::1", Some(80)).unwrap().to_string(), "[::1]:80");
        assert_eq!(Target::parse("[::1]", Some(80)).unwrap().to_string(), "[::1]:80");
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_what_is_read_is_written_the_same(text in "\\PC{0,40}") {
            if let Ok(target) = Target::parse(&text, Some(1)) {
                prop_assert_eq!(Target::parse(&target.to_string(), None), Ok(target));
            }
        }
    }
}
