//! By which hosts the listeners without TLS may be called: a name that a web page has led to 127.0.0.1 is none of them.

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::site::{SERVICES, SOON, Site, service};

const LIST: &str = "/api/v1/services?resourceVersion=0";
const PROBE: &str = "/v1/healthz";

/// The status and the body of an answer; a request without `Host` is one of HTTP/1.0.
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    target: &str,
    host: Option<&str>,
) -> (u16, String) {
    let request = match host {
        Some(host) => format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        None => format!("GET {target} HTTP/1.0\r\n\r\n"),
    };
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // How the connection ends is no matter here.
    let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("an answer");
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn with_service() -> Site {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "visible", 1)).unwrap();
    site.caught_up(SERVICES, &["visible"]).await;
    site
}

fn is_refused(body: &str) {
    let status: Value = serde_json::from_str(body).expect(body);
    assert_eq!(status["kind"], "Status", "{body}");
    assert_eq!(status["reason"], "Forbidden", "{body}");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("evil.example") && message.contains("localhost"), "{message}");
}

#[tokio::test]
async fn a_page_that_leads_its_name_to_loopback_reads_nothing() {
    let site = with_service().await;
    let admin = async || TcpStream::connect(("127.0.0.1", site.serve_port())).await.unwrap();
    for (host, expected) in [
        (None, 200),
        (Some("127.0.0.1:10261"), 200),
        (Some("localhost"), 200),
        (Some("LOCALHOST.:10261"), 200),
        (Some("[::1]:10261"), 200),
        (Some("evil.example"), 403),
        (Some("evil.example:10261"), 403),
        (Some("127.0.0.1.evil.example"), 403),
    ] {
        let (status, body) = ask(site.connected_plain().await, LIST, host).await;
        assert_eq!((status, body.contains("visible")), (expected, expected == 200), "{host:?}: {body}");
        let (probe, said) = ask(admin().await, PROBE, host).await;
        assert_eq!((probe, &*said == "OK"), (expected, expected == 200), "{host:?}: {said}");
        if expected == 403 {
            is_refused(&body);
            is_refused(&said);
        }
    }
    for (path, stream) in [(LIST, site.connected_plain().await), (PROBE, admin().await)] {
        let (status, body) = ask(stream, &format!("http://evil.example{path}"), Some("127.0.0.1")).await;
        assert_eq!(status, 403, "{path}: {body}");
        is_refused(&body);
    }
    for path in ["/metrics", "/v1/status", "/livez", "/none"] {
        assert_eq!(ask(admin().await, path, Some("evil.example")).await.0, 403, "{path}");
    }
}

/// As Prometheus does through the tunnel.
#[tokio::test]
async fn metrics_are_read_by_the_nodes_own_name_and_objects_are_not() {
    let site = with_service().await;
    let admin = TcpStream::connect(("127.0.0.1", site.serve_port())).await.unwrap();
    assert_eq!(ask(admin, "/metrics", Some("n:10267")).await.0, 200);
    assert_eq!(ask(site.connected_plain().await, LIST, Some("n:10261")).await.0, 403);
}

#[tokio::test]
async fn the_socket_and_https_may_be_called_anything() {
    let site = with_service().await;
    let socket = UnixStream::connect(site.file("root").join("hub.sock")).await.unwrap();
    let (status, body) = ask(socket, LIST, Some("evil.example")).await;
    assert!(status == 200 && body.contains("visible"), "{status} {body}");
    let (status, body) = ask(site.connected(&["http/1.1"]).await, LIST, Some("evil.example")).await;
    assert_eq!(status, 401, "who shows nothing is nobody, by whatever name: {body}");
}
