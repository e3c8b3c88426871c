//! By which host a request calls the hub. A page in a browser is of the origin that its name says, wherever that name leads. Whoever gives the name
//! may let it lead to 127.0.0.1 a moment later, and the page reads here what the browser's user may (DNS rebinding), which with the node's users is
//! all that the node may. A page needs a name for that, and the request tells it: so a listener that anything on loopback reaches without TLS answers
//! to addresses, and to names that nobody else gives. Of the Unix socket browsers know nothing, and over TLS the certificate says which names are good.

use std::net::{IpAddr, Ipv6Addr};

use http::{HeaderValue, Request, header};
use kube_wire::status::Status;

/// What a request calls the hub by, if that is neither an address nor `localhost` nor `own`. What cannot be understood is refused, too; a request
/// that says nothing, as those of HTTP/1.0 may, is no browser's.
pub(crate) fn strange<B>(request: &Request<B>, own: Option<&str>) -> Option<String> {
    let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let headers = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    let strange = target.into_iter().chain(headers).find(|authority| !is_ours(authority, own))?;
    Some(String::from_utf8_lossy(strange).into_owned())
}

/// The answer to such a request.
pub(crate) fn refusal(host: &str) -> Status {
    Status {
        status: "Failure".to_owned(),
        message: format!(
            "edge-hub: a request without TLS is not answered by the name {host:?}, which may be one that a web page has led here: \
             address the hub by its IP or as localhost, or use its socket, or HTTPS"
        ),
        reason: "Forbidden".to_owned(),
        code: 403,
        ..Status::default()
    }
}

fn is_ours(authority: &[u8], own: Option<&str>) -> bool {
    let Ok(authority) = str::from_utf8(authority) else { return false };
    let host = without_port(authority);
    let name = host.strip_suffix('.').unwrap_or(host);
    host.is_empty()
        || is_address(name)
        || is_localhost(name)
        || own.is_some_and(|own| name.eq_ignore_ascii_case(own))
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => authority,
    }
}

fn is_address(host: &str) -> bool {
    match host.strip_prefix('[') {
        None => host.parse::<IpAddr>().is_ok(),
        Some(rest) => rest.strip_suffix(']').is_some_and(|address| {
            // A zone says by which interface, and nothing of whose address it is.
            let address = address.split_once('%').map_or(address, |(address, _zone)| address);
            address.parse::<Ipv6Addr>().is_ok()
        }),
    }
}

/// That name and all below it are loopback by RFC 6761, whatever a DNS server says.
fn is_localhost(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.strip_suffix("localhost").is_some_and(|below| {
        below.is_empty()
            || below.strip_suffix('.').is_some_and(|below| below.split('.').all(|label| !label.is_empty()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_that_nobody_else_gives_are_ours() {
        let ours = [
            "",
            ":10261",
            "127.0.0.1",
            "127.0.0.1:10261",
            "127.0.0.1:",
            "127.0.0.1.",
            "127.1.2.3:1",
            "10.0.0.7:10261",
            "[::1]",
            "[::1]:10261",
            "[fe80::1%25eth0]:10261",
            "[fe80::1%eth0]",
            "[::ffff:127.0.0.1]:80",
            "[2001:DB8::1]",
            "::1",
            "localhost",
            "localhost:10261",
            "LocalHost:10261",
            "localhost.",
            "localhost.:10261",
            "hub.localhost",
            "a.b.LOCALHOST.:1",
        ];
        for host in ours {
            assert!(is_ours(host.as_bytes(), None), "{host:?}");
        }
    }

    #[test]
    fn other_names_are_not_and_neither_is_what_is_no_name() {
        let strange: [&[u8]; 31] = [
            b"evil.example",
            b"evil.example:10261",
            b"EVIL.example.",
            b"hub",
            b"n",
            b"127.0.0.1.evil.example",
            b"127.0.0.1.evil.example:10261",
            b"localhost.evil.example",
            b"evillocalhost",
            b"evil-localhost:10261",
            b".localhost",
            b"a..localhost",
            b"localhost..",
            b"127.0.0.1..",
            b".",
            b"::1:evil.example",
            b"[::1",
            b"::1]",
            b"[127.0.0.1]",
            b"[evil.example]",
            b"[]",
            b"[::1].evil.example",
            b"127.0.0.1:evil.example",
            b"127.0.0.1:80:80",
            b"127.0.0.1:-1",
            b"user@127.0.0.1",
            b"127.0.0.1@evil.example",
            b"127.1",
            b"2130706433",
            b"localhost, evil.example",
            b"\xff\xfe",
        ];
        for host in strange {
            assert!(!is_ours(host, None), "{:?}", String::from_utf8_lossy(host));
        }
    }

    #[test]
    fn one_other_name_is_ours_where_it_is_said() {
        for (host, is) in [
            ("shop-1", true),
            ("Shop-1:10267", true),
            ("shop-1.", true),
            ("127.0.0.1", true),
            ("localhost", true),
            ("shop-10", false),
            ("shop-1.evil.example", false),
            ("evil.shop-1", false),
            ("evil.example", false),
        ] {
            assert_eq!(is_ours(host.as_bytes(), Some("shop-1")), is, "{host}");
        }
    }

    #[test]
    fn all_that_a_request_says_of_it_counts() {
        let cases: [(&str, &[&str], Option<&str>); 9] = [
            ("/", &[], None),
            ("/", &["127.0.0.1:10261"], None),
            ("/", &["evil.example"], Some("evil.example")),
            ("/", &["127.0.0.1", "evil.example:1"], Some("evil.example:1")),
            ("/", &["evil.example", "127.0.0.1"], Some("evil.example")),
            ("http://127.0.0.1:10261/", &[], None),
            ("http://evil.example:10261/", &[], Some("evil.example:10261")),
            ("http://evil.example/", &["127.0.0.1"], Some("evil.example")),
            ("http://127.0.0.1/", &["evil.example"], Some("evil.example")),
        ];
        for (target, hosts, expected) in cases {
            let mut request = Request::get(target);
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            let request = request.body(()).unwrap();
            assert_eq!(strange(&request, None).as_deref(), expected, "{target} {hosts:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_host_and_what_helps() {
        let status = refusal("evil.example");
        assert_eq!((status.code, &*status.reason), (403, "Forbidden"));
        for part in ["\"evil.example\"", "IP", "localhost", "socket", "HTTPS"] {
            assert!(status.message.contains(part), "{part} in {}", status.message);
        }
    }
}
