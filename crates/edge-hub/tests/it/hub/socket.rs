//! Who callers of the Unix socket are: the kernel says it of those that say nothing of themselves, and a token of those that send one.

use std::{fs, os::unix::fs::PermissionsExt};

use testkit::api_server::access::User;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::site::{SERVICES, Site, service};

/// The status and the whole text of an answer over the socket.
async fn ask(site: &Site, token: Option<&str>) -> (u16, String) {
    let mut stream = UnixStream::connect(site.file("root").join("hub.sock")).await.unwrap();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request =
        format!("GET {SERVICES}?resourceVersion=0 HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

fn with_service(site: &Site) {
    site.server.cluster().create("services", service("a", "visible", 1)).unwrap();
    let access = site.server.cluster().access();
    access.set_authorizer(|asked| asked.user.name != "system:serviceaccount:a:denied");
    for name in ["allowed", "denied"] {
        access.add_token(name, User::service_account("a", name));
    }
}

/// What a caller gets, by its token.
async fn check(site: &Site, without_a_token: u16) {
    for (token, expected) in
        [(None, without_a_token), (Some("allowed"), 200), (Some("denied"), 403), (Some("unknown"), 401)]
    {
        let (status, answer) = ask(site, token).await;
        assert_eq!(status, expected, "{token:?}: {answer}");
        assert_eq!(answer.contains("visible"), expected == 200, "{token:?}: {answer}");
    }
}

#[tokio::test]
async fn the_socket_is_the_nodes_for_its_users_and_a_tokens_for_whoever_sends_one() {
    let site = Site::started().await;
    with_service(&site);
    site.caught_up(SERVICES, &["visible"]).await;
    let socket = fs::metadata(site.file("root").join("hub.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    check(&site, 200).await;
}

#[tokio::test]
async fn a_user_that_is_not_the_nodes_gets_nothing_by_the_socket() {
    let mut site = Site::new().await;
    site.set("--node-uids", "4242");
    with_service(&site);
    site.start();
    site.answers().await;
    site.until("it is held", async || ask(&site, Some("allowed")).await.0 == 200).await;
    check(&site, 401).await;
}
