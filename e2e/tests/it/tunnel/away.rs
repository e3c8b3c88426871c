//! The way to the gateways is gone, and somebody says so: nobody has to be waited for, and the node is back as soon as after a silence.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{GATEWAYS, Reach, TWIN, balance, ground, long};
use e2e::{client, eventually, hack_cluster};
use kube::Api;
use serde_json::json;

use super::asked::{plain, reached};
use super::faults::process_of_hub;
use super::gateways::{both_report, manager_follows};
use super::held::Held;
use super::reach::{links_of, settled_links_of};
use super::rotation::{DIALLING, NAME, dialled_at, knows_the_name};

/// How long it is gone: waits that double without an end would be longer than [`RECOVERY`] then, with `--long` half a minute.
pub(super) fn away() -> Duration {
    Duration::from_secs(if long() { 70 } else { 35 })
}

/// How soon the node has all its links after the way is there again.
const RECOVERY: Duration = Duration::from_secs(15);

/// The command that begins (`-I`) or ends (`-D`) that the node's kernel answers packets to the cloud's port for links with RST: those that are
/// `such`, as iptables says it.
pub(super) fn refusal<'a>(change: &'a str, node: &'a str, such: &[&'a str]) -> Vec<&'a str> {
    let rule = ["--dport", "10262", "-j", "REJECT", "--reject-with", "tcp-reset"];
    [&["exec", node, "--", "iptables", "-w", change, "OUTPUT", "-p", "tcp"], such, &rule].concat()
}

/// Begins it, until this is dropped.
pub(super) async fn refuse(node: &str, such: &[&str]) -> Result<Cleanup> {
    let heal = Cleanup::hack_cluster(&refusal("-D", node, such));
    hack_cluster(&refusal("-I", node, such)).await?.ok()?;
    Ok(heal)
}

/// Begins it for each packet of the node, and waits until it has no link.
async fn refused() -> Result<Cleanup> {
    let heal = refuse(TWIN, &[]).await?;
    eventually("it has no link", Duration::from_secs(20), || async {
        let left = links_of(TWIN).await?;
        ensure!(left == 0, "{left} links");
        Ok(())
    })
    .await?;
    Ok(heal)
}

/// Waits until it has as many links as before, and is reached by them.
async fn is_back(what: &str, links: usize, healed: Instant) -> Result<()> {
    let took = eventually("all links are there again", RECOVERY * 3, || async {
        let now = links_of(TWIN).await?;
        ensure!(now >= links, "{now} of {links} links");
        anyhow::Ok(healed.elapsed())
    })
    .await?;
    let answered = reached(TWIN, healed, RECOVERY * 3).await?;
    let plain = plain().await?;
    println!(
        "x4, {what}: all {links} links {took:.1?} after the way was there, an answer by {answered:.1?}; by plain TCP {plain:?}"
    );
    ensure!(took <= RECOVERY, "all links only after {took:?}");
    eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await
}

#[tokio::test]
async fn x4_the_way_is_refused() -> Result<()> {
    ground(Reach::there()).await?;
    eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
    reached(TWIN, Instant::now(), RECOVERY).await?;
    let held = Held::at_rest().await?;
    let (links, process) = (settled_links_of(TWIN).await?.len(), process_of_hub(TWIN).await?);
    let heal = refused().await?;
    tokio::time::sleep(away()).await;
    drop(heal);
    is_back("refused by RST", links, Instant::now()).await?;
    ensure!(process_of_hub(TWIN).await? == process, "the hub ended");
    held.is_all_there_is().await
}

/// The balancer has a name, which the node's resolver does not know for a while, as it has links no more.
#[tokio::test]
async fn x4_the_name_is_not_resolved() -> Result<()> {
    let ground = ground(Reach::there()).await?;
    let balancer = &ground.balancer;
    manager_follows(&Api::namespaced(client().await?, "kube-system")).await?;
    eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
    let mut names = Vec::new();
    for node in DIALLING {
        names.push(knows_the_name(node, balancer).await?);
    }
    let at = |host: &str| GATEWAYS.map(|gateway| (gateway, format!("{host}:10262")));
    let by_address = async || dialled_at(&at(balancer), balance(&json!({ "ip": balancer }))).await;
    let test = async {
        dialled_at(&at(NAME), balance(&json!({ "hostname": NAME }))).await.context("the balancer's name")?;
        let links = settled_links_of(TWIN).await?.len();
        let file = "/etc/kubernetes/hosts-without";
        let unknown = format!("grep -v {NAME} /etc/hosts >{file} && mount --bind {file} /etc/hosts");
        let known = Cleanup::hack_cluster(&["exec", TWIN, "--", "umount", "/etc/hosts"]);
        hack_cluster(&["exec", TWIN, "--", "bash", "-c", &unknown]).await?.ok()?;
        drop(refused().await?);
        tokio::time::sleep(away()).await;
        ensure!(links_of(TWIN).await? == 0, "it has links though it does not know the name");
        drop(known);
        is_back("not resolved", links, Instant::now()).await
    };
    let result = test.await;
    by_address().await.context("the balancer's address")?;
    drop(names);
    result
}
