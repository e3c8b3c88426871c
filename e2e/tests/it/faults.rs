//! What may break beneath the manager: a leader node falls silent, the API server dies, etcd stands still.

mod looks;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{NodePool, annotations};
use e2e::pools::{
    SOON, apply_pool, attributes, condition, expect_label, fresh_pool, leaders_are, leaders_are_within,
    node_is, remove_pool,
};
use e2e::replicas::{all_ready, holder, replicas, restarts, transitions};
use e2e::{client, eventually, hack_cluster, node, set_pool, throughout};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::looks::watch_leaders;

/// A kubelet that falls silent is noticed after the node grace period, a minute where fake nodes are; then again some.
const NOTICED: Duration = Duration::from_mins(3);

/// The default `--leader-elect-renew-deadline`: a leader that cannot renew for so long ends.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// What a renewal that was due, and a machine that has other things to do, may add to it or take from it.
const MARGIN: Duration = Duration::from_secs(3);

/// For how long what the manager renews its Lease with was away, by what can be seen from outside.
#[derive(Debug, Clone, Copy)]
struct Outage {
    least: Duration,
    most: Duration,
}

impl Outage {
    /// A leader gets over it.
    fn is_survived(self) -> bool {
        self.most + MARGIN < RENEW_DEADLINE
    }

    /// A leader must step down in it.
    fn is_too_long(self) -> bool {
        self.least > RENEW_DEADLINE + MARGIN
    }
}

#[tokio::test]
async fn a_leader_node_that_falls_silent_is_replaced_and_the_survivor_stays() -> Result<()> {
    let client = client().await?;
    let spec = json!({ "enableLeaderElection": true, "leaderReplicas": 2 });
    fresh_pool(&client, "e2e-silent", spec).await?;
    let outcome = silence(&client).await;
    hack_cluster(&["start", "kubelet", "edge-1"]).await?.ok()?;
    outcome?;

    // Back again: nobody is unseated for it.
    eventually("the node is ready", SOON, || ready_is(&client, "edge-1", "True")).await?;
    throughout("the leaders stay", Duration::from_secs(2), || async {
        leaders_are_within(&client, "e2e-silent", &["fake-00010", "fake-00011"], Duration::from_secs(1)).await
    })
    .await?;
    // Now the others leave, and it leads again.
    for name in ["fake-00010", "fake-00011"] {
        set_pool(&client, name, None).await?;
    }
    leaders_are(&client, "e2e-silent", &["edge-1"]).await?;
    remove_pool(&client, "e2e-silent").await
}

/// Two of three lead, a real node and a fake one; then the real one's kubelet ends, as if its power were cut.
async fn silence(client: &Client) -> Result<()> {
    set_pool(client, "edge-1", Some("e2e-silent")).await?;
    leaders_are(client, "e2e-silent", &["edge-1"]).await?;
    for name in ["fake-00010", "fake-00011"] {
        set_pool(client, name, Some("e2e-silent")).await?;
        leaders_are(client, "e2e-silent", &["edge-1", "fake-00010"]).await?;
    }
    let pools = Api::<NodePool>::all(client.clone());
    eventually("all three are counted", SOON, || async {
        let status = pools.get_status("e2e-silent").await?.status.unwrap_or_default();
        ensure!((status.ready_node_num, status.unready_node_num) == (3, 0), "{status:?}");
        Ok(())
    })
    .await?;

    hack_cluster(&["stop", "kubelet", "edge-1"]).await?.ok()?;
    eventually("the API server calls the node not ready", NOTICED, || async {
        ensure!(ready_is(client, "edge-1", "True").await.is_err(), "still ready");
        Ok(())
    })
    .await?;
    leaders_are(client, "e2e-silent", &["fake-00010", "fake-00011"]).await?;
    condition(&pools, "e2e-silent", "LeaderReady", "True").await?;
    let status = pools.get_status("e2e-silent").await?.status.unwrap_or_default();
    ensure!((status.ready_node_num, status.unready_node_num) == (2, 1), "{status:?}");
    Ok(())
}

async fn ready_is(client: &Client, name: &str, expected: &str) -> Result<()> {
    let node = Api::<Node>::all(client.clone()).get(name).await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready =
        conditions.into_iter().find(|condition| condition.type_ == "Ready").context("no condition")?;
    ensure!(ready.status == expected, "{ready:?}");
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_dies_and_comes_back_finds_everything_in_order() -> Result<()> {
    let client = client().await?;
    all_ready().await?;
    // Short enough for the leader to stay; then so long that it must end.
    for down in [Duration::ZERO, 2 * RENEW_DEADLINE] {
        let before = Before::observe(&client).await?;
        let outcome = die(&client, down).await;
        // Whatever happened, the tests that follow need it.
        hack_cluster(&["start", "kube-apiserver"]).await?.ok()?;
        if outcome.is_err() {
            eventually("the pool is gone", SOON, || remove_pool(&client, "e2e-outage")).await?;
        }
        let outage = outcome?;
        println!("outage of {}", before.compare(&client, outage).await?);
    }
    Ok(())
}

/// Half of the nodes are members when the API server dies, the others are on their way. Returns for how long it was away.
async fn die(client: &Client, down: Duration) -> Result<Outage> {
    let nodes: Vec<String> = (0..16).map(|number| format!("fake-{number:05}")).collect();
    let (settled, on_their_way) = nodes.split_at(8);
    let spec = json!({
        "enableLeaderElection": true, "leaderReplicas": 2, "labels": { "e2e/outage": "1" },
        "taints": [{ "key": "e2e/outage", "value": "1", "effect": "NoSchedule" }],
    });
    let pools = fresh_pool(client, "e2e-outage", spec.clone()).await?;
    let mut as_they_came = Vec::new();
    for name in &nodes {
        // A test that failed may have left it in a pool.
        set_pool(client, name, None).await?;
        node_is(client, name, |node| {
            let record = &node["metadata"]["annotations"][annotations::PREVIOUS_ATTRIBUTES];
            ensure!(record.is_null(), "still has {record}");
            Ok(())
        })
        .await?;
        as_they_came.push(attributes(&node(client, name).await?));
    }
    for name in settled {
        set_pool(client, name, Some("e2e-outage")).await?;
        node_is(client, name, |node| expect_label(node, "e2e/outage", Some("1"))).await?;
    }
    eventually("leaders", SOON, || leader_names(&pools)).await?;
    let leaders = leader_names(&pools).await?;

    let joining = async {
        for name in on_their_way {
            // The server is dying: what it did not take is asked for again below.
            set_pool(client, name, Some("e2e-outage")).await.ok();
        }
    };
    let killing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        hack_cluster(&["signal", "KILL", "kube-apiserver"]).await?.ok()?;
        tokio::time::sleep(down).await;
        hack_cluster(&["start", "kube-apiserver"]).await?.ok()?;
        anyhow::Ok(Outage { least: down, most: began.elapsed() })
    };
    let ((), outage) = tokio::join!(joining, killing);
    let outage = outage?;
    for name in on_their_way {
        eventually("the node takes its label", SOON, || set_pool(client, name, Some("e2e-outage"))).await?;
    }
    for name in &nodes {
        node_is_after(client, name, |node| {
            expect_label(node, "e2e/outage", Some("1"))?;
            let taints = node["spec"]["taints"].as_array().context("no taints")?;
            let ours = taints.iter().filter(|taint| taint["key"] == "e2e/outage").count();
            ensure!(ours == 1, "{ours} taints of the pool");
            Ok(())
        })
        .await?;
    }
    eventually("the status has every node once", SOON, || async {
        let status = pools.get_status("e2e-outage").await?.status.unwrap_or_default();
        ensure!(status.nodes == nodes, "{:?}", status.nodes);
        Ok(())
    })
    .await?;
    let after: Vec<&str> = leaders.iter().map(String::as_str).collect();
    leaders_are(client, "e2e-outage", &after).await?;

    // And what it writes from now on is done, too.
    let mut more = spec;
    more["labels"]["e2e/after"] = json!("1");
    apply_pool(&pools, "e2e-outage", more).await?;
    for name in &nodes {
        node_is(client, name, |node| expect_label(node, "e2e/after", Some("1"))).await?;
    }
    for name in &nodes {
        set_pool(client, name, None).await?;
    }
    for (name, before) in nodes.iter().zip(&as_they_came) {
        node_is(client, name, |node| {
            let after = attributes(node);
            ensure!(after == *before, "{after} is not {before}");
            Ok(())
        })
        .await?;
    }
    remove_pool(client, "e2e-outage").await?;
    Ok(outage)
}

/// A manager that has to begin anew waits for the lease to run out, and its kubelet for its turn.
async fn node_is_after(client: &Client, name: &str, check: impl Fn(&Value) -> Result<()>) -> Result<()> {
    eventually(&format!("node {name}"), Duration::from_mins(2), || async {
        check(&node(client, name).await?)
    })
    .await
}

async fn leader_names(pools: &Api<NodePool>) -> Result<Vec<String>> {
    let status = pools.get_status("e2e-outage").await?.status.unwrap_or_default();
    ensure!(status.leader_endpoints.len() == 2, "{:?}", status.leader_endpoints);
    Ok(status.leader_endpoints.into_iter().map(|leader| leader.node_name).collect())
}

/// The manager as it was before a fault.
struct Before {
    holder: String,
    restarts: std::collections::BTreeMap<String, i32>,
    transitions: i32,
}

impl Before {
    async fn observe(client: &Client) -> Result<Self> {
        // What happened while a kubelet could not tell the API server of it is told up to ten seconds after.
        let restarts = eventually("the replicas are at rest", Duration::from_mins(2), || async {
            all_ready().await?;
            let first = restarts(client).await?;
            tokio::time::sleep(Duration::from_secs(12)).await;
            let then = restarts(client).await?;
            ensure!(first == then, "{first:?}, then {then:?}");
            Ok(then)
        })
        .await?;
        Ok(Self { holder: holder(client).await?, restarts, transitions: transitions(client).await? })
    }

    /// A leader that could renew in time leads on, in the same process; one that could not has ended, and another process
    /// leads. No other replica begins anew.
    async fn compare(&self, client: &Client, outage: Outage) -> Result<String> {
        let Self { holder: led, restarts: started, transitions: handed_over } = self;
        all_ready().await?;
        if outage.is_too_long() {
            // The kubelet tells of it when the API server answers again, and a standby leads when the Lease has run out.
            eventually("the leader has stepped down", Duration::from_mins(1), || async {
                let (leads, restarts) = (holder(client).await?, restarts(client).await?);
                ensure!(leads != *led, "{led} still leads, after {outage:?}");
                ensure!(restarts != *started, "{led} has not ended, after {outage:?}");
                Ok(())
            })
            .await?;
            all_ready().await?;
        }
        let (leads, restarts) = (holder(client).await?, restarts(client).await?);
        let again: Vec<&String> = restarts
            .iter()
            .filter(|(pod, count)| started.get(*pod) != Some(*count))
            .map(|(pod, _)| pod)
            .collect();
        let story = format!("{outage:?}: led by {led}, then {leads}; began anew: {again:?}");
        ensure!(restarts.len() == started.len() && started.keys().eq(restarts.keys()), "pods were replaced");
        ensure!(
            again.iter().all(|pod| led.starts_with(pod.as_str())),
            "not the leader began anew: {again:?}"
        );
        let handed_over = transitions(client).await? - handed_over;
        ensure!(handed_over <= 1, "{handed_over} changes of leadership");
        ensure!(handed_over == 1 || !outage.is_too_long(), "{handed_over} changes of leadership");
        if outage.is_survived() {
            ensure!(leads == *led && again.is_empty(), "the leader ended within its deadline");
        }
        Ok(story)
    }
}

#[tokio::test]
async fn while_etcd_stands_still_there_are_never_two_leaders() -> Result<()> {
    let client = client().await?;
    all_ready().await?;
    let pools = fresh_pool(&client, "e2e-slow", json!({ "labels": { "e2e/slow": "0" } })).await?;
    set_pool(&client, "fake-00013", Some("e2e-slow")).await?;
    node_is(&client, "fake-00013", |node| expect_label(node, "e2e/slow", Some("0"))).await?;
    // The leader gets over the first, and must step down in the second.
    for (number, pause) in [(1, Duration::from_secs(5)), (2, RENEW_DEADLINE + Duration::from_secs(8))] {
        let before = Before::observe(&client).await?;
        let watched = watch_leaders(&client, pause).await;
        hack_cluster(&["signal", "CONT", "etcd"]).await?.ok()?;
        let seen = watched?;
        let (looks, answered, leading) = (seen.all.len(), seen.answered(), seen.leading());
        println!(
            "etcd stood still for {:?}: {looks} looks, {answered} answered meanwhile, {leading} at a leader",
            seen.outage
        );
        ensure!(answered >= 8 && leading > 5, "hardly anything was seen: {:?}", seen.all);
        ensure!(!seen.two_at_once(), "two leaders at once: {:?}", seen.all);
        // Whoever leads says so until its deadline and not after. The standby answers on, so that silence is no proof.
        let after = RENEW_DEADLINE + MARGIN;
        if seen.outage.is_too_long() {
            let late = seen.leading_after(after);
            ensure!(late.is_empty(), "led without its Lease: {late:?}");
            ensure!(
                seen.answered_after(after) >= 2,
                "hardly anybody answered after {after:?}: {:?}",
                seen.all
            );
        }
        println!("pause of {}", before.compare(&client, seen.outage).await?);

        let value = number.to_string();
        apply_pool(&pools, "e2e-slow", json!({ "labels": { "e2e/slow": value } })).await?;
        node_is(&client, "fake-00013", |node| expect_label(node, "e2e/slow", Some(&value))).await?;
        let leader = holder(&client).await?;
        let pods = replicas(&client).await?;
        ensure!(pods.iter().any(|pod| leader.starts_with(&pod.name_any())), "{leader} is no replica");
    }
    remove_pool(&client, "e2e-slow").await
}
