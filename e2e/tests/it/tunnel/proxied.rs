//! A site whose network nothing but an HTTP proxy leads out of: links go through it, come back after it said 502 for long, and what it has
//! against a node is told.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{GATEWAYS, Reach, TWIN, ground, hub_metrics, logs};
use e2e::{eventually, hack_cluster, repository};

use super::asked::{plain, reached};
use super::away::{away, refusal};
use super::faults::process_of_hub;
use super::gateways::both_report;
use super::held::Held;
use super::reach::{links_of, settled_links_of};

/// How soon the node has all its links after the proxy connects again.
const RECOVERY: Duration = Duration::from_secs(15);

/// How soon a hub that began anew has done something.
const SOON: Duration = Duration::from_secs(45);

const PATIENCE: Duration = Duration::from_secs(10);

/// A node from which only the proxy leads to the gateways.
struct Site {
    /// The proxy's URL with the name and password that it wants.
    url: String,
    /// Its address and port.
    proxy: String,
    /// How many links the node has with the way open.
    links: usize,
    // The hub as it was, the way open, and no proxy.
    back: Cleanup,
}

impl Site {
    /// With a hub that is the ground's until it is told of the proxy.
    async fn closed() -> Result<Self> {
        let balancer = &ground(Reach::there()).await?.balancer;
        eventually("links at both", SOON, || both_report(TWIN, true)).await?;
        let links = settled_links_of(TWIN).await?.len();
        ensure!(links > 0 && links == held_links().await?, "{links} connections, {}", held_links().await?);
        let mut back = Cleanup::hack_cluster(&["proxy", "off"]);
        back.add(repository().join("hack/cluster"), &["hub", TWIN, "--tunnel"]);
        let url = hack_cluster(&["proxy", "open"]).await?.ok()?.trim().to_owned();
        let proxy = url.rsplit_once('@').with_context(|| url.clone())?.1.to_owned();
        back.add(repository().join("hack/cluster"), &refusal("-D", TWIN, &[]));
        hack_cluster(&refusal("-I", TWIN, &[])).await?.ok()?;
        let dial = async |to: &str| {
            let dial = format!("exec 3<>/dev/tcp/{}", to.replace(':', "/"));
            hack_cluster(&["exec", TWIN, "--", "timeout", "5", "bash", "-c", &dial]).await
        };
        let straight = dial(&format!("{balancer}:10262")).await?;
        ensure!(!straight.success, "the way past the proxy is open");
        dial(&proxy).await?.ok().context("the way to the proxy")?;
        Ok(Self { url, proxy, links, back })
    }

    /// Has the node's hub begin anew with that proxy.
    async fn hub_goes_by(&self, url: &str) -> Result<()> {
        hack_cluster(&["hub", TWIN, "--tunnel", "--http-proxy", url]).await?.ok().map(drop)
    }

    /// Waits until all links are there, through the proxy and no other way; how long after `began` that was.
    async fn has_all_links(&self, began: Instant, within: Duration) -> Result<Duration> {
        eventually("all links are there, through the proxy", within, || async {
            let (held, through, past) =
                (held_links().await?, self.connections().await?, links_of(TWIN).await?);
            ensure!(
                held == self.links && through == held && past == 0,
                "{held} of {} links, {through} connections to the proxy, {past} past it",
                self.links
            );
            Ok(began.elapsed())
        })
        .await
    }

    /// How many connections the node has to the proxy.
    async fn connections(&self) -> Result<usize> {
        let words = ["exec", TWIN, "--", "ss", "-Htn", "state", "established", "dst", &self.proxy];
        Ok(hack_cluster(&words).await?.ok()?.lines().count())
    }

    /// Puts the node back, and waits until it is as it was.
    async fn opens(self) -> Result<()> {
        let Self { url: _, proxy: _, links, back } = self;
        drop(back);
        eventually("all links are there without a proxy", SOON, || async {
            let (held, straight) = (held_links().await?, links_of(TWIN).await?);
            ensure!(held == links && straight == held, "{held} of {links} links, {straight} connections");
            anyhow::Ok(())
        })
        .await?;
        reached(TWIN, Instant::now(), RECOVERY).await.map(drop)
    }
}

/// How many links the node's hub says that it has.
async fn held_links() -> Result<usize> {
    let metrics = hub_metrics(TWIN).await?;
    let counts = metrics.lines().filter(|line| line.starts_with("isthmus_hub_tunnel_links{"));
    let counts = counts.filter_map(|line| line.rsplit_once(' ')).map(|(_, count)| count.parse::<usize>());
    Ok(counts.sum::<Result<_, _>>()?)
}

/// All that the node's hub has told since it was first started, which is of no panic.
async fn log() -> Result<String> {
    let log = hack_cluster(&["logs", "edge-hub", TWIN]).await?.ok()?;
    ensure!(!log.contains("panicked"), "a panic in the hub of {TWIN}");
    Ok(log)
}

/// How many lines of it have these words.
async fn told(words: &[&str]) -> Result<usize> {
    Ok(log().await?.lines().filter(|line| words.iter().all(|word| line.contains(word))).count())
}

/// The proxy lives and comes to no gateway, and what it had is cut.
#[tokio::test]
async fn x4_the_proxy_says_502() -> Result<()> {
    const REFUSED: [&str; 2] = ["no link", "the proxy answered 502"];
    let site = Site::closed().await?;
    site.hub_goes_by(&site.url).await?;
    site.has_all_links(Instant::now(), SOON).await?;
    eventually("links at both", SOON, || both_report(TWIN, true)).await?;
    reached(TWIN, Instant::now(), RECOVERY).await?;
    logs(TWIN, PATIENCE).await?;
    let held = Held::at_rest().await?;
    let process = process_of_hub(TWIN).await?;

    let refused = told(&REFUSED).await?;
    hack_cluster(&["proxy", "refused"]).await?.ok()?;
    eventually("it has no link", Duration::from_secs(20), || async {
        let left = held_links().await?;
        ensure!(left == 0, "{left} links");
        Ok(())
    })
    .await?;
    let made = told(&["link up"]).await?;
    tokio::time::sleep(away()).await;
    let (left, made_since) = (held_links().await?, told(&["link up"]).await? - made);
    ensure!(left == 0 && made_since == 0, "{left} links and {made_since} made while the proxy said 502");
    let refused = told(&REFUSED).await? - refused;
    ensure!(refused == GATEWAYS.len(), "the proxy's answer was told {refused} times");

    hack_cluster(&["proxy", "open"]).await?.ok()?;
    let healed = Instant::now();
    let took = site.has_all_links(healed, RECOVERY * 3).await?;
    let answered = reached(TWIN, healed, RECOVERY * 3).await?;
    let plain = plain().await?;
    println!(
        "x4, a proxy said 502 {refused} times: all {} links {took:.1?} after it connected again, an answer by {answered:.1?}; by plain TCP {plain:?}",
        site.links
    );
    ensure!(took <= RECOVERY, "all links only after {took:?}");
    logs(TWIN, PATIENCE).await?;
    eventually("links at both", SOON, || both_report(TWIN, true)).await?;
    ensure!(process_of_hub(TWIN).await? == process, "the hub ended");
    held.is_all_there_is().await?;
    log().await?;
    site.opens().await
}

/// What the proxy wants of the node no waiting heals, so the node's log has to name it. With the name and password all links are there, by
/// the proxy alone, and lead to the node.
#[tokio::test]
async fn a_proxy_that_wants_a_password_is_told() -> Result<()> {
    const REFUSED: [&str; 2] = ["no link", "the proxy answered 407"];
    let site = Site::closed().await?;
    let before = told(&REFUSED).await?;
    site.hub_goes_by(&format!("http://{}", site.proxy)).await?;
    eventually("the log names the proxy's answer", SOON, || async {
        let lines = told(&REFUSED).await? - before;
        ensure!(lines == GATEWAYS.len(), "{lines} lines");
        anyhow::Ok(())
    })
    .await?;
    let left = held_links().await?;
    ensure!(left == 0, "{left} links without a password");
    site.hub_goes_by(&site.url).await?;
    let took = site.has_all_links(Instant::now(), SOON).await?;
    println!("by the proxy, with its password: all {} links after {took:.1?}", site.links);
    eventually("links at both", SOON, || both_report(TWIN, true)).await?;
    reached(TWIN, Instant::now(), RECOVERY).await?;
    logs(TWIN, PATIENCE).await.context("by the proxy")?;
    site.opens().await
}
