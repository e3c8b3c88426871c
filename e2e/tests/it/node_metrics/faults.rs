//! What befalls the leader: it is killed, stands still, is cut off, loses its Lease, is followed by one whose clock is behind, is replaced by a
//! rollout, and is killed with all that follow it, while stock clients look on. The names F1 to F8 are those of the plan of failure tests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::hub::token;
use e2e::{SYSTEM, eventually, kubectl, replicas, throughout};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::discovery;
use super::figures::Figures;
use super::flow::{self, Flow, Gap};
use super::ground::{Ground, LEASE, announced};
use super::observers::{LIST_WITHIN, Observers};
use super::stale::Former;
use super::{NODE, WARM, fresh, of_last_report};

/// How long the leader stands still, and with `--long`.
const FROZEN: Duration = Duration::from_secs(15);
const LONG_FROZEN: Duration = Duration::from_mins(1);

/// How far the next leader's clock is behind what was told.
const BEHIND: Duration = Duration::from_mins(10);

/// How long lists through the API server may be without an answer while a leader stands still or is cut off (docs/node-metrics.md).
const LISTS_AGAIN: Duration = Duration::from_secs(45);

/// How long a watch through it may tell nothing: it waits for the API server to give a connection up, and may be given another that is as dead.
const WATCHES_AGAIN: Duration = Duration::from_mins(2);

/// How often it is looked whether lists are answered.
const LOOK: Duration = Duration::from_millis(100);

/// What a leader says that does not know enough yet.
const COLD: &str = "not enough nodes have reported to this leader yet";

/// How long a namespace may take to go.
const GONE: Duration = Duration::from_mins(1);

/// Within how long of a new leader's beginning nodes have reported again what was lost with the one before, and what a busy machine adds.
const REPORTED: Duration = Duration::from_secs(10);
const BUSY: Duration = Duration::from_secs(5);

#[tokio::test]
// What was seen is what the run is read for.
#[allow(clippy::print_stdout)]
async fn stock_clients_stay_right_whatever_befalls_the_leader() -> Result<()> {
    let ground = Ground::new().await?;
    let observers = Observers::start(&ground).await?;
    let (figures, reader) = (Figures::new().await?, token(SYSTEM, "e2e-reader", "view").await?);
    // Only who has a copy answers at once; one that began a moment ago may not have it yet.
    figures.standbys_are_warm(&ground).await.context("F1: killed")?;
    let gap = killed(&ground, &reader).await.context("F1: killed")?;
    println!("F1: {gap:?}");
    gap.is_within(flow::KILL).context("F1: killed")?;
    observers.check("F1: killed")?;
    observers.was_discovered(discovery::AFTER_A_KILL).await.context("F1: killed")?;
    refused_at_most(&observers).context("F1: killed")?;
    lease_deleted(&ground).await.context("F4: the Lease is deleted")?;
    observers.check("F4: the Lease is deleted")?;
    observers.was_discovered(Duration::ZERO).await.context("F4: the Lease is deleted")?;
    let unavailable = observers.unavailable();
    ensure!(unavailable.is_empty(), "F4: the APIService was not available: {unavailable:?}");
    figures.standbys_are_warm(&ground).await.context("F5: a clock that is behind")?;
    let gap = clock_behind(&ground, &reader).await.context("F5: a clock that is behind")?;
    println!("F5: {gap:?}");
    gap.is_within(flow::KILL).context("F5: a clock that is behind")?;
    observers.check("F5: a clock that is behind")?;
    observers.was_discovered(discovery::AFTER_A_KILL).await.context("F5: a clock that is behind")?;
    refused_at_most(&observers).context("F5: a clock that is behind")?;

    observers.failed();
    while_namespaces_come_and_go(rolled_out(&ground)).await.context("F6: a rollout")?;
    observers.check("F6: a rollout")?;
    observers.was_discovered(Duration::ZERO).await.context("F6: a rollout")?;
    let failed = observers.failed();
    ensure!(failed.is_empty(), "F6: lists failed: {failed:?}");
    let unavailable = observers.unavailable();
    ensure!(unavailable.is_empty(), "F6: the APIService was not available: {unavailable:?}");

    observers.up_to_date(&ground).await?;
    observers.longest_without_a_list();
    observers.longest_silence();
    figures.standbys_are_warm(&ground).await.context("F2: frozen")?;
    let stands_still = Box::pin(frozen(&ground, &reader));
    let gap = while_namespaces_come_and_go(stands_still).await.context("F2: frozen")?;
    came_again(&ground, &observers, &gap).await.context("F2: frozen")?;
    figures.standbys_are_warm(&ground).await.context("F3: cut off")?;
    let is_cut_off = Box::pin(cut_off(&ground, &reader));
    let gap = while_namespaces_come_and_go(is_cut_off).await.context("F3: cut off")?;
    came_again(&ground, &observers, &gap).await.context("F3: cut off")?;
    // The API server asks five times at random: with a dead one of two, all five may be lost once in a while. What it asks for discovery may wait for
    // one that does not answer, too.
    let (unavailable, stale) = (observers.unavailable().len(), observers.longest_undiscovered());
    println!("F2, F3: not available {unavailable} times, discovery stale for {stale:?} at most");
    observers.discovered().await.context("F2, F3")?;

    let all = Box::pin(killed_all(&ground));
    let reported = while_namespaces_come_and_go(all).await.context("F8: all are killed")?;
    println!("F8: a report was taken {reported:?} after the next leader began");
    observers.check("F8: all are killed")?;
    observers.discovered().await.context("F8: all are killed")?;
    observers.up_to_date(&ground).await?;
    observers.check("at the end")?;
    println!("{}", observers.summary());
    Ok(())
}

/// Until its Pod is known not to be ready, whose process was killed is one of two that the API server may ask: five times at random, all of which may be
/// lost. Whoever lives must not be what is unavailable.
// What was seen is what the run is read for.
#[allow(clippy::print_stdout)]
fn refused_at_most(observers: &Observers) -> Result<()> {
    let unavailable = observers.unavailable();
    println!("not available {} times", unavailable.len());
    let others: Vec<_> = unavailable.iter().filter(|said| !said.contains("connection refused")).collect();
    ensure!(others.is_empty(), "the APIService was not available: {others:?}");
    Ok(())
}

/// Where the leader does not answer at all: by a standby reads go on soon, through the API server within its own timeouts.
// What was seen is what the run is read for.
#[allow(clippy::print_stdout)]
async fn came_again(ground: &Ground, observers: &Observers, gap: &Gap) -> Result<()> {
    observers.up_to_date(ground).await?;
    let (longest, silent) = (observers.longest_without_a_list(), observers.longest_silence());
    println!("{gap:?}, {longest:?} without a list, {silent:?} without an event through the API server");
    gap.is_within(flow::FROZEN)?;
    ensure!(
        silent <= WATCHES_AGAIN,
        "a client of the API server was told nothing for {silent:?}, more than {WATCHES_AGAIN:?}"
    );
    // One may have been under way when they would have come again.
    ensure!(
        longest <= LISTS_AGAIN + LIST_WITHIN,
        "no list was answered for {longest:?}, more than {LISTS_AGAIN:?} and {LIST_WITHIN:?}"
    );
    observers.check("while the leader did not answer")
}

/// Nobody has a copy: until the nodes have reported, or were waited for, lists are refused. None is short of a node, and what was lost has been reported
/// again by then. Returns how long that took from when somebody led.
async fn killed_all(ground: &Ground) -> Result<Duration> {
    let before = ground.holder().await?;
    let epoch = eventually("the node reports", WARM, || of_last_report("epoch")).await?;
    let (replicas, metrics) = (ground.replicas().await?, ground.impatient().await?);
    ensure!(replicas.len() >= 2, "{} replicas", replicas.len());
    let killed = futures::future::join_all(replicas.iter().map(|replica| replica.signal("-KILL"))).await;
    killed.into_iter().collect::<Result<()>>()?;
    let mut refused = BTreeSet::new();
    let listed = async {
        loop {
            match metrics.list(&ListParams::default()).await {
                Ok(listed) => return listed.items,
                Err(error) => drop(refused.insert(error.to_string())),
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let reported = async {
        replicas::another_leads(&ground.client, LEASE, &before, WARM).await?;
        let began = Instant::now();
        eventually("the node reports to the next leader", WARM, || async {
            let now = of_last_report("epoch").await?;
            ensure!(now > epoch, "the last report was taken in term {now}");
            Ok(())
        })
        .await?;
        anyhow::Ok(began.elapsed())
    };
    let (listed, reported) = tokio::join!(tokio::time::timeout(WARM, listed), reported);
    let (listed, reported) = (listed.context("no list is answered")?, reported?);
    let names: BTreeSet<_> = listed.iter().map(ResourceExt::name_any).collect();
    ensure!(names == ground.nodes, "the first list is of {names:?}");
    ensure!(refused.iter().any(|answer| answer.contains(COLD)), "never refused with {COLD:?}: {refused:?}");
    ensure!(
        reported <= REPORTED + BUSY,
        "what was lost was reported again after {reported:?}, not {REPORTED:?}"
    );
    let node = listed.iter().find(|object| object.name_any() == NODE).context("no object of the node")?;
    let freshness = &node.data["status"]["freshness"];
    ensure!(freshness["state"] == "Fresh", "the first list says of {NODE}: {freshness}");
    ground.recovered(&before).await?;
    Ok(reported)
}

async fn killed(ground: &Ground, reader: &str) -> Result<Gap> {
    let before = ground.holder().await?;
    let leader = ground.leader().await?;
    let gap = Flow::new(ground, &leader, reader).await?.over(leader.signal("-KILL")).await?;
    ground.recovered(&before).await?;
    Ok(gap)
}

/// It gives the leadership up by itself before another takes it, and what it says afterwards is not heard; nor does it tell anybody what is no more.
// What was seen is what the run is read for.
#[allow(clippy::print_stdout)]
async fn frozen(ground: &Ground, reader: &str) -> Result<Gap> {
    let before = ground.holder().await?;
    let old = ground.leader().await?;
    let former = Former::watched(ground, &old, reader).await?;
    let gap = Flow::new(ground, &old, reader).await?.over(old.signal("-STOP")).await;
    let long = e2e::ground::long();
    tokio::time::sleep(if long { LONG_FROZEN } else { FROZEN }).await;
    let told = former.told().await;
    // The kubelet may have killed it meanwhile.
    let after = former.goes_on(&old).await?;
    println!("F2: {after:?}");
    let (gap, told) = (gap?, told?);
    ensure!(after.told.iter().all(|version| *version >= told), "{:?} were told after {told}", after.told);
    former.took_nothing(&after).await?;
    let next = ground.holder().await?;
    ensure!(next != before, "{next} leads");
    if after.awake {
        throughout("it does not come back", Duration::from_secs(5), || async {
            let now = ground.holder().await?;
            ensure!(now == next, "{now} leads after {next}");
            former.tells_nothing_old().await?;
            announced_is_not(ground, &old.address).await
        })
        .await?;
    }
    former.watch_ends().await?;
    ground.whole().await?;
    Ok(gap)
}

async fn announced_is_not(ground: &Ground, address: &str) -> Result<()> {
    let leader = announced(&ground.client, "leader").await?;
    ensure!(!leader.starts_with(&format!("{address}:")), "{leader} is announced");
    Ok(())
}

async fn cut_off(ground: &Ground, reader: &str) -> Result<Gap> {
    let before = ground.holder().await?;
    let old = ground.leader().await?;
    let gap = Flow::new(ground, &old, reader).await?.over(old.cut_off()).await;
    // Its network goes with it.
    let pods = ["-n", SYSTEM, "delete", "pod", &old.pod, "--force", "--grace-period=0"];
    kubectl(&pods).await?.ok()?;
    let gap = gap?;
    ground.recovered(&before).await?;
    Ok(gap)
}

async fn lease_deleted(ground: &Ground) -> Result<()> {
    let leases = Api::<Lease>::namespaced(ground.client.clone(), SYSTEM);
    leases.delete(LEASE, &DeleteParams::default()).await?;
    eventually("somebody leads", WARM, || ground.holder()).await?;
    ground.whole().await
}

/// What was told is ten minutes ahead of the next leader's clock: it goes on above that, and nobody is the staler for it.
async fn clock_behind(ground: &Ground, reader: &str) -> Result<Gap> {
    let maps = Api::<ConfigMap>::namespaced(ground.client.clone(), "kube-system");
    let before = ground.holder().await?;
    let leader = ground.leader().await?;
    let flow = Flow::new(ground, &leader, reader).await?;
    // Not below what was told: each change of the leader goes on above what the one before had reserved.
    let data = maps.get(LEASE).await?.data.unwrap_or_default();
    let told: i64 = data.get("version-ceiling").context("no ceiling")?.parse()?;
    let ahead = told.max(jiff::Timestamp::now().as_microsecond()) + i64::try_from(BEHIND.as_micros())?;
    let patch = json!({ "data": { "version-ceiling": ahead.to_string() } });
    maps.patch(LEASE, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let gap = flow.over(leader.signal("-KILL")).await?;
    ground.recovered(&before).await?;
    eventually("a report is seen above what was told", WARM, || async {
        let version = fresh().await?;
        ensure!(i128::from(version) > i128::from(ahead), "{version}, not above {ahead}");
        Ok(())
    })
    .await?;
    let stale = ListParams::default().fields("status.freshness.state=Expired");
    let stale = ground.metrics().list(&stale).await?;
    ensure!(stale.iter().all(|object| object.metadata.name.as_deref() != Some(NODE)), "{NODE} is expired");
    Ok(gap)
}

/// All replicas are replaced, one after the other, twice.
async fn rolled_out(ground: &Ground) -> Result<()> {
    for _ in 0..2 {
        kubectl(&["-n", SYSTEM, "rollout", "restart", "deployment/isthmus-manager"]).await?.ok()?;
        kubectl(&["-n", SYSTEM, "rollout", "status", "deployment/isthmus-manager", "--timeout=180s"])
            .await?
            .ok()?;
    }
    ground.whole().await
}

/// Makes and deletes namespaces for as long as something else takes: an API that cannot be discovered would keep them from going.
async fn while_namespaces_come_and_go<T>(what: impl Future<Output = Result<T>>) -> Result<T> {
    let end = CancellationToken::new();
    let whole = async {
        let outcome = what.await;
        end.cancel();
        outcome
    };
    let (outcome, count) = tokio::join!(whole, come_and_go(end.clone()));
    let outcome = outcome?;
    ensure!(count? > 0, "no namespace came and went");
    Ok(outcome)
}

/// Makes namespaces and deletes them until `end`; returns how many.
async fn come_and_go(end: CancellationToken) -> Result<usize> {
    let mut count = 0;
    while !end.is_cancelled() || count == 0 {
        let name = format!("e2e-nm-{count}");
        kubectl(&["create", "namespace", &name]).await?.ok()?;
        let seconds = format!("--timeout={}s", GONE.as_secs());
        kubectl(&["delete", "namespace", &name, &seconds])
            .await?
            .ok()
            .with_context(|| format!("namespace {name}"))?;
        count += 1;
    }
    Ok(count)
}
