//! Clients with tokens of `ServiceAccounts` of their own, as operators have: what the hub asks of the API server about each of them.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::kubectl;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::node::Running;
use super::relay::Relay;
use super::{CLIENTS, JSON, SERVICES, SLICES, watch};

/// As many accounts as there are clients each list and watch both kinds. Returns the watches, and the bytes that all this was to the link.
pub(super) async fn list_and_watch(
    running: &Running,
    relay: &Relay,
    objects: usize,
) -> Result<(Vec<TcpStream>, u64)> {
    let mut tokens = Vec::new();
    for number in 0..CLIENTS {
        tokens.push(account(&format!("bench-{number}")).await?);
    }
    let mut paths = Vec::new();
    for path in [SERVICES, SLICES] {
        paths.push((format!("{path}?resourceVersion=0"), watch(running, path).await?));
    }
    let before = relay.bytes();
    let mut open = Vec::new();
    for token in &tokens {
        for (list, watch) in &paths {
            let answer = running.client.get_as(list, JSON, Some(token)).await?;
            ensure!(answer.status == 200 && answer.objects() >= objects, "{list}: {}", answer.status);
            open.push(running.client.watch_as(watch, Some(token)).await?);
        }
    }
    sleep(Duration::from_secs(1)).await;
    Ok((open, relay.bytes() - before))
}

/// A token of a `ServiceAccount` of that name, which may read what all may see.
pub(super) async fn account(name: &str) -> Result<String> {
    let account = format!("--serviceaccount=default:{name}");
    for words in [
        &["create", "serviceaccount", name][..],
        &["create", "clusterrolebinding", name, "--clusterrole=view", &account],
    ] {
        let made = kubectl(words).await?;
        ensure!(made.success || made.stderr.contains("already exists"), "{words:?}: {}", made.stderr);
    }
    Ok(kubectl(&["create", "token", name]).await?.ok()?.trim().to_owned())
}
