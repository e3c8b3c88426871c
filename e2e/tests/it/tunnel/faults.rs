//! What breaks, and how soon everything works again. Times are told; what is asserted has room for a busy machine, except where the
//! requirement is a number of seconds.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE_GATEWAY, GATEWAYS, NAMESPACE, ORDINARY, Reach, TWIN, connected, ground, in_namespace, logs, long,
    pod,
};
use e2e::keyboard::Keyboard;
use e2e::weather::{Weather, delay_of};
use e2e::{eventually, hack_cluster, kubectl};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::asked::{ask_until, done, plain, reached};
use super::gateways::both_report;
use super::held::{Held, fates, sessions};
use super::reach::{links_of, settled_links_of};
use super::told::broken;
use super::weather::Bulk;

/// How soon both ends know that the other is silent, and have made what is needed anew.
const LIVENESS: Duration = Duration::from_secs(20);

/// How soon each end knows that the other is silent.
const NOTICED: Duration = Duration::from_secs(15);

/// How soon a node is reached again after what its tunnel went by is gone.
const RECOVERY: Duration = Duration::from_secs(15);

/// Has so many nodes stand for pool a, which are the first of its list; waits until the links are theirs, and the first is known to have
/// some: until then it comes last, if it had lost them.
async fn stand_for_pool_a(number: u8) -> Result<()> {
    kubectl(&["patch", "gateway", "tunnel-a", "--type=merge", "-p", &replicas(number)]).await?.ok()?;
    eventually("those who stand for the pool hold links", Duration::from_secs(40), || async {
        let (first, second) = (links_of(EDGE_GATEWAY).await?, links_of(ORDINARY).await?);
        ensure!(first > 0 && (second > 0) == (number > 1), "{first} and {second} links");
        both_report(EDGE_GATEWAY, true).await
    })
    .await
}

pub(super) fn replicas(number: u8) -> String {
    format!("{{\"spec\":{{\"proxyConfig\":{{\"Replicas\":{number}}}}}}}")
}

/// Kills the hub that pool a is reached through. Its other node has no link, and is elected when there is none.
#[tokio::test]
async fn x1_an_only_edge_gateway_dies() -> Result<()> {
    ground(Reach::Names).await?;
    reached(ORDINARY, Instant::now(), LIVENESS).await?;
    let held = Held::at_rest().await?;
    let sessions = sessions(ORDINARY).await?;
    let start = Cleanup::hack_cluster(&["start", "edge-hub", EDGE_GATEWAY]);
    let began = Instant::now();
    hack_cluster(&["signal", "KILL", "edge-hub", EDGE_GATEWAY]).await?.ok()?;
    let took = reached(ORDINARY, began, RECOVERY).await?;
    println!("x1, one replica: reached again after {:.1} s", took.as_secs_f64());
    let (alive, ended) = fates(sessions, began).await?;
    ensure!(alive == 0 && ended > 0, "{alive} sessions over the gateway that died go on");
    drop(start);
    connected("tunnel-a", Duration::from_mins(1)).await?;
    // Who was elected stays so: by way of both it is the first again.
    stand_for_pool_a(2).await?;
    stand_for_pool_a(1).await?;
    reached(EDGE_GATEWAY, Instant::now(), LIVENESS).await?;
    held.is_all_there_is().await
}

/// The rules that drop all that a node sends or gets, to insert or delete them. In one step: half of it would be another fault.
pub(super) fn power(verb: &str) -> String {
    let of = |chain, interface| format!("iptables -w {verb} {chain} {interface} lo -j DROP");
    format!("{}; {}", of("INPUT", "! -i"), of("OUTPUT", "! -o"))
}

/// The same of one that loses power, which nothing tells anybody: all that its node sends or gets is dropped. Its time is that of a request
/// that is answered, from when the command that cuts it off has ended, less what one by plain TCP takes.
#[tokio::test]
async fn x1_an_only_edge_gateway_loses_power() -> Result<()> {
    ground(Reach::Names).await?;
    reached(ORDINARY, Instant::now(), LIVENESS).await?;
    let held = Held::at_rest().await?;
    let sessions = sessions(ORDINARY).await?;
    let heal = Cleanup::hack_cluster(&["exec", EDGE_GATEWAY, "--", "bash", "-c", &power("-D")]);
    let began = Instant::now();
    let cut = done(began, &["exec", EDGE_GATEWAY, "--", "bash", "-c", &power("-I")]).await?;
    let took = reached(ORDINARY, began, cut + RECOVERY + Duration::from_secs(5)).await?.saturating_sub(cut);
    let plain = plain().await?;
    println!("x1, power lost: reached again {took:.1?} after it was cut off; by plain TCP {plain:?}");
    ensure!(took.saturating_sub(plain) <= RECOVERY, "reached {took:?} after it was cut off");
    let (alive, ended) = fates(sessions, began).await?;
    ensure!(alive == 0 && ended > 0, "{alive} sessions over the gateway that died go on");
    drop(heal);
    connected("tunnel-a", Duration::from_mins(1)).await?;
    stand_for_pool_a(2).await?;
    stand_for_pool_a(1).await?;
    reached(EDGE_GATEWAY, Instant::now(), LIVENESS).await?;
    held.is_all_there_is().await
}

/// It is killed while requests are made, of which those that are under way then may fail. Its node's kubelet, which has no way to the API
/// server any more, was asked before, and knows the rights of who asks.
#[tokio::test]
async fn x1_one_of_two_edge_gateways_dies() -> Result<()> {
    ground(Reach::Names).await?;
    let one = Cleanup::kubectl(&["patch", "gateway", "tunnel-a", "--type=merge", "-p", &replicas(1)]);
    stand_for_pool_a(2).await?;
    reached(EDGE_GATEWAY, Instant::now(), LIVENESS).await?;
    let held = Held::at_rest().await?;
    let sessions = sessions(ORDINARY).await?;
    let start = Cleanup::hack_cluster(&["start", "edge-hub", EDGE_GATEWAY]);
    let began = Instant::now();
    let (asked, killed) = tokio::join!(
        ask_until(Duration::from_secs(10), began, &[ORDINARY, EDGE_GATEWAY], true),
        done(began, &["signal", "KILL", "edge-hub", EDGE_GATEWAY]),
    );
    let (asked, killed) = (asked?, killed?);
    println!("x1, two replicas: killed after {killed:.1?}; {asked}; by plain TCP {}", asked.plain);
    ensure!(asked.failed(killed) <= 1, "killed after {killed:.1?}; {asked}");
    let (wait, bound) = (asked.waits().percentile(99), Duration::from_secs(1) + asked.plain.percentile(99));
    ensure!(wait <= bound, "{wait:?} of at most {bound:?}: {asked}");
    let (alive, ended) = fates(sessions, began).await?;
    println!("x1, two replicas: {alive} sessions go on, {ended} ended");
    ensure!(alive > 0 && ended > 0, "not over both gateways: {alive} sessions go on, {ended} ended");
    drop(start);
    stand_for_pool_a(2).await?;
    drop(one);
    stand_for_pool_a(1).await?;
    held.is_all_there_is().await
}

/// Its time is what a request takes from the moment the link is up, less what one by plain TCP takes then.
#[tokio::test]
async fn x4_the_link_flaps() -> Result<()> {
    ground(Reach::Names).await?;
    reached(TWIN, Instant::now(), LIVENESS).await?;
    let held = Held::at_rest().await?;
    let mut session = Keyboard::open(TWIN).await?;
    let heal = Cleanup::hack_cluster(&["link", "b", "heal"]);
    let process = process_of_hub(TWIN).await?;
    let mut worst = Duration::ZERO;
    for flap in 0..if long() { 50 } else { 3 } {
        // As long as it is up each time.
        if flap > 0 {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        hack_cluster(&["link", "b", "cut"]).await?.ok()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        hack_cluster(&["link", "b", "heal"]).await?.ok()?;
        let began = Instant::now();
        let took = reached(TWIN, began, LIVENESS).await?;
        let plain = plain().await?;
        println!("x4: reached {took:?} after the link was up; by plain TCP {plain:?}");
        worst = worst.max(took.saturating_sub(plain));
    }
    drop(heal);
    println!("x4: the tunnel's share was {worst:?} at the most");
    ensure!(worst <= Duration::from_secs(2), "reached {worst:?} after the link was up");
    session.press().await.context("a session of before the link flapped")?;
    drop(session);
    ensure!(process_of_hub(TWIN).await? == process, "the hub ended");
    for node in [TWIN, GATEWAYS[0], GATEWAYS[1]] {
        let log = hack_cluster(&["logs", "edge-hub", node]).await?.ok()?;
        ensure!(!log.contains("panicked"), "a panic in the hub of {node}");
    }
    held.is_all_there_is().await
}

/// Longer than a peer is given to answer: links are given up and dialled anew, which while the link is down fails each time. Nobody
/// answers then, so it is tried each second, and they are there two seconds after the link is.
#[tokio::test]
async fn x4_the_link_is_down_for_long() -> Result<()> {
    const DOWN: Duration = Duration::from_secs(20);
    const RECONNECTED: Duration = Duration::from_secs(2);
    ground(Reach::Names).await?;
    eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
    reached(TWIN, Instant::now(), LIVENESS).await?;
    let held = Held::at_rest().await?;
    let sessions = sessions(TWIN).await?;
    let heal = Cleanup::hack_cluster(&["link", "b", "heal"]);
    let process = process_of_hub(TWIN).await?;
    hack_cluster(&["link", "b", "cut"]).await?.ok()?;
    let began = Instant::now();
    eventually("the edge has given its links up", DOWN, || async {
        let left = links_of(TWIN).await?;
        ensure!(left == 0, "the edge has {left} links");
        Ok(())
    })
    .await?;
    println!("x4, {DOWN:?} down: the edge's links are gone after {:.1?}", began.elapsed());
    tokio::time::sleep(DOWN.saturating_sub(began.elapsed())).await;
    drop(heal);
    let healed = Instant::now();
    let took = reached(TWIN, healed, RECONNECTED + LIVENESS).await?;
    let plain = plain().await?;
    println!("x4, {DOWN:?} down: reached {took:.1?} after the link was up; by plain TCP {plain:?}");
    ensure!(took.saturating_sub(plain) <= RECONNECTED, "reached {took:?} after the link was up");
    let (alive, ended) = fates(sessions, began).await?;
    ensure!(alive == 0 && ended > 0, "{alive} sessions of before go on without a link");
    ensure!(process_of_hub(TWIN).await? == process, "the hub ended");
    held.is_all_there_is().await
}

/// The process that serves a hub's admin port.
pub(super) async fn process_of_hub(node: &str) -> Result<String> {
    let script = "ss -Hltnp 'sport = :10267' | sed 's/.*pid=//; s/,.*//'";
    let found = hack_cluster(&["exec", node, "--", "bash", "-c", script]).await?.ok()?;
    ensure!(!found.trim().is_empty(), "no hub on {node}");
    Ok(found)
}

/// Its time is that of a request that is answered, less what one by plain TCP takes.
#[tokio::test]
async fn x5_a_nat_forgets() -> Result<()> {
    ground(Reach::Names).await?;
    let delay = Duration::from_millis(5);
    let weather = Weather::over("b", delay).await?;
    reached(TWIN, Instant::now(), LIVENESS).await?;
    let held = Held::at_rest().await?;
    let sessions = sessions(TWIN).await?;
    weather.turns(&[&delay_of(delay), "rebind=1"]).await?;
    let began = Instant::now();
    let took = reached(TWIN, began, RECOVERY + Duration::from_secs(5)).await?;
    let plain = plain().await?;
    println!("x5: reached {took:?} after the NAT forgot; by plain TCP {plain:?}");
    ensure!(took.saturating_sub(plain) <= RECOVERY, "reached {took:?} after the NAT forgot");
    let (alive, ended) = fates(sessions, began).await?;
    ensure!(alive == 0 && ended > 0, "{alive} sessions of before the NAT forgot go on");
    held.is_all_there_is().await
}

/// Beside bulk data of the edge as well: it is the cloud to which an answer to a PING may stand behind it, and which waits longer for it. What is
/// asserted is when each end says that it gave up its links, from before the silence begins.
#[tokio::test]
async fn x6_one_direction_is_silent() -> Result<()> {
    const QUIET: [(&str, bool); 2] = [("loss_up=1", false), ("loss_down=1", false)];
    const BUSY: [(&str, bool); 2] = [("loss_up=1", true), ("loss_down=1", true)];
    ground(Reach::Names).await?;
    let delay = Duration::from_millis(20);
    let weather = Weather::over("b", delay).await?;
    reached(TWIN, Instant::now(), LIVENESS).await?;
    let held = Held::at_rest().await?;
    // Twenty seconds each.
    let rounds = if long() { [QUIET, BUSY].concat() } else { vec![QUIET[0], BUSY[1]] };
    for (direction, busy) in rounds {
        eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
        let links = settled_links_of(TWIN).await?.len();
        let sessions = sessions(TWIN).await?;
        let bulk = if busy { Some(Bulk::flows(TWIN).await?) } else { None };
        let (since, began) = (SystemTime::now(), Instant::now());
        weather.turns(&[&delay_of(delay), direction]).await?;
        let silent = began.elapsed();
        eventually("the edge has given its links up", LIVENESS, || async {
            let left = links_of(TWIN).await?;
            ensure!(left == 0, "the edge has {left} links");
            Ok(())
        })
        .await?;
        eventually("the cloud has reported it", LIVENESS, || both_report(TWIN, false)).await?;
        let (edge, cloud) = tokio::try_join!(
            broken(&[TWIN], None, links, since),
            broken(&GATEWAYS, Some(TWIN), links, since)
        )?;
        println!(
            "x6, {direction} from {silent:.1?} on, bulk data {busy}: the edge gave its {links} links up after {edge:.1?}, the cloud after {cloud:.1?}"
        );
        ensure!(
            links > 0 && edge.iter().chain(&cloud).all(|after| *after <= NOTICED),
            "not within {NOTICED:?}"
        );
        let (alive, ended) = fates(sessions, began).await?;
        ensure!(alive == 0 && ended > 0, "{alive} sessions of before the silence go on");
        if let Some(bulk) = bulk {
            bulk.breaks(LIVENESS.saturating_sub(began.elapsed())).await?;
        }
        weather.turns(&[&delay_of(delay)]).await?;
        let began = Instant::now();
        let took = reached(TWIN, began, Duration::from_secs(30)).await?;
        println!("x6, {direction}, bulk data {busy}: reached {took:.1?} after it was healed");
    }
    held.is_all_there_is_but_memory().await
}

#[tokio::test]
async fn x7_a_nat_forgets_the_silent() -> Result<()> {
    ground(Reach::Names).await?;
    // The API server keeps the connection for the log that is followed.
    logs(TWIN, LIVENESS).await?;
    let held = Held::at_rest().await?;
    let usual = Cleanup::hack_cluster(&["link", "b", "forget", "432000"]);
    hack_cluster(&["link", "b", "forget", "10"]).await?.ok()?;
    let mut follow = e2e::ground::background(&["logs", "-f", "--tail=0", &pod(TWIN)])?;
    let mut lines = BufReader::new(follow.stdout.take().context("its output")?).lines();
    tokio::time::sleep(Duration::from_secs(if long() { 3600 } else { 23 })).await;
    let words = ["exec", &pod(TWIN), "--", "sh", "-c", "echo alive >/proc/1/fd/1"];
    kubectl(&in_namespace(&words)).await?.ok()?;
    let line = tokio::time::timeout(Duration::from_secs(10), lines.next_line()).await;
    let line = line.context("no line after the silence")??;
    ensure!(line.as_deref() == Some("alive"), "{line:?} in {NAMESPACE}");
    drop((usual, follow));
    // A hub that is an hour old holds more than one that has just begun, whatever a NAT does; of connects a soak says that it is flat.
    if long() { held.is_all_there_is_but_memory().await } else { held.is_all_there_is().await }
}
