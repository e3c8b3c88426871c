//! The hub measures a node of files and reports it to servers of the test: who leads, what is refused, what survives.

mod leader;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use edge_hub::node_metric::NodeMetricConfig;
use node_report::{Policy, Report, Resources};
use node_sampler::Roots;
use serde_json::{Value, json};

use self::leader::{Leader, Say};
use super::site::{Site, get};

/// A window of percentiles, of which half must be known.
const WINDOW_S: u32 = 8;

const UID: &str = "0f5d3c1e-0000-4000-8000-000000000001";

/// A node with cgroups of version 2 and one pod.
fn write_node(folder: &Path) -> Roots {
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let pod = format!("cgroup/kubepods/burstable/pod{UID}");
    write("proc/stat", "cpu  100 0 0 9 9 0 0 0\ncpu0 1\ncpu1 1\n");
    write("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 3072 kB\n");
    write("proc/pressure/memory", "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n");
    write("cgroup/cgroup.controllers", "cpu memory");
    write(&format!("{pod}/cpu.stat"), "usage_usec 5\n");
    write(&format!("{pod}/memory.stat"), "inactive_anon 0\nactive_anon 65536\nunevictable 0\n");
    let at = |name: &str| folder.join(name);
    Roots { proc: at("proc"), sys: at("sys"), cgroup: at("cgroup"), kubelet: String::new() }
}

/// A site whose cluster knows the node, the pod and where `leader` is.
async fn site(leader: &Leader) -> Site {
    let site = Site::new().await;
    let cluster = site.server.cluster();
    cluster
        .create("nodes", json!({ "metadata": { "name": "n" }, "status": { "allocatable": { "cpu": "2" } } }))
        .unwrap();
    // The UID of a mirror pod's cgroup is in its annotation: here so that the test can choose it.
    let metadata = json!({ "namespace": "a", "name": "web", "annotations": { "kubernetes.io/config.mirror": UID },
        "labels": { "koordinator.sh/qosClass": "BE" } });
    cluster.create("pods", json!({ "metadata": metadata, "spec": { "nodeName": "n" } })).unwrap();
    let metadata = json!({ "namespace": "kube-system", "name": "isthmus-node-metric" });
    cluster.create("configmaps", json!({ "metadata": metadata, "data": leader.config(1) })).unwrap();
    site
}

async fn start(site: &mut Site) {
    let roots = write_node(&site.file("kernel"));
    site.start_inside(|config| {
        let interval = Duration::from_secs(1);
        config.node_metric = Some(NodeMetricConfig { servers: Vec::new(), roots, interval });
    })
    .await;
}

async fn status(site: &Site) -> Value {
    get(&site.admin(), "/v1/status").await.map(|(_, status)| status["nodeMetric"].clone()).unwrap_or_default()
}

/// Waits for a report that is as wanted, and gives it.
async fn reported(site: &Site, leader: &Leader, what: &str, wanted: impl Fn(&Report) -> bool) -> Report {
    let held = async || leader.reports().iter().any(&wanted);
    site.until_or(what, held, async || {
        format!("{:?} {:?}", get(&site.admin(), "/v1/status").await, leader.callers())
    })
    .await;
    leader.reports().into_iter().find(|report| wanted(report)).unwrap()
}

#[tokio::test]
async fn a_node_reports_in_full_and_then_what_changes() {
    let leader = Leader::start("first").await;
    let mut site = site(&leader).await;
    leader.trust(&site.authority);
    start(&mut site).await;
    let first = reported(&site, &leader, "a report with the pod", |report| !report.pods.is_empty()).await;
    assert_eq!((first.node.as_str(), first.pods[0].name.as_str()), ("n", "web"));
    assert_eq!(first.pods[0].qos, Some(node_report::report::Qos::Be.into()));
    assert_eq!(first.pods[0].usage.unwrap().memory_bytes, Some(65_536));
    let usage = first.usage.clone().unwrap();
    assert_eq!(usage.capacity, Some(Resources { cpu_milli: Some(2_000), memory_bytes: Some(4_096 << 10) }));
    assert_eq!(usage.pressure.unwrap().memory.unwrap().some.unwrap().avg10_ppm, Some(10_000));
    assert_eq!((usage.run_queue, usage.io), (None, None), "absent, not zero");
    let delta = reported(&site, &leader, "a delta", |report| {
        report.base_seq.is_some() && report.pods.is_empty() && !report.node_uid.is_empty()
    })
    .await;
    assert_eq!((delta.incarnation, delta.epoch), (first.incarnation, Some(1)));
    assert_eq!(leader.view().pods.len(), 1, "what did not change is still held");
    // Once a connection: the node's own certificate.
    assert_eq!(leader.callers(), ["system:node:n"]);
    site.until("the status tells", async || status(&site).await["seq"].as_u64() >= Some(delta.seq)).await;
    let status = status(&site).await;
    assert_eq!((status["leader"].as_str(), status["epoch"].as_u64()), (Some("first"), Some(1)), "{status}");
}

#[tokio::test]
async fn another_leader_gets_a_full_report_and_refusals_are_heeded() {
    let leader = Leader::start("first").await;
    let other = Leader::start("second").await;
    let mut site = site(&leader).await;
    leader.trust(&site.authority);
    other.serve_as(&leader, 2);
    start(&mut site).await;
    reported(&site, &leader, "a delta", |report| report.base_seq.is_some()).await;
    // A base that is not held: the next one is full, at once.
    let before = leader.reports().last().unwrap().seq;
    leader.say(Say::Status(409));
    reported(&site, &leader, "a full report", |report| report.seq > before && report.is_full()).await;
    // Shed: the same connection goes on after that.
    leader.say(Say::RetryAfter(1));
    let before = leader.reports().last().unwrap().seq;
    reported(&site, &leader, "a report after it was shed", |report| report.seq > before + 1).await;
    assert_eq!(leader.callers().len(), 1, "one connection");
    // Not the leader any more: it says who is.
    leader.say(Say::Leader(other.address().to_string()));
    let first = reported(&site, &other, "a report to the other", |_| true).await;
    assert!(first.is_full());
    reported(&site, &other, "a delta to the other", |report| report.base_seq.is_some()).await;
    site.until("the status tells", async || status(&site).await["epoch"] == 2).await;
    let refused = status(&site).await["refused"].as_u64().unwrap();
    assert!(refused >= 1, "{refused}");
}

#[tokio::test]
async fn a_hub_that_is_started_again_reports_as_a_later_one_and_follows_the_config_map() {
    let leader = Leader::start("first").await;
    let mut site = site(&leader).await;
    leader.trust(&site.authority);
    // Percentiles of a few seconds: what is known of them is not of this life alone.
    let policy = Policy { durations_s: vec![WINDOW_S], aggregate_duration_s: 60, ..Policy::default() };
    leader.set_policy(policy.clone());
    start(&mut site).await;
    let known = |report: &Report| {
        let usage = report.usage.clone().unwrap_or_default();
        usage.aggregates.iter().any(|one| one.duration_s == WINDOW_S && one.p99.is_some())
    };
    let first = reported(&site, &leader, "a window that is known", |report| {
        report.seq > u64::from(WINDOW_S) && known(report)
    })
    .await;
    let stopped = Instant::now();
    site.stop().await;
    start(&mut site).await;
    let next =
        reported(&site, &leader, "a later life", |report| report.incarnation > first.incarnation).await;
    assert!(next.is_full());
    // What was kept is there before the leader has said anything: by which policy it is, and what it measured.
    assert_eq!((next.seq, next.policy_hash), (0, Some(policy.hash())));
    assert_eq!(next.usage.as_ref().map(|usage| usage.aggregate_duration_s), Some(60));
    let was_short = stopped.elapsed() < Duration::from_secs(u64::from(WINDOW_S / 2) - 1);
    assert!(known(&next) || !was_short, "{:?} after {:?}", next.usage, stopped.elapsed());
    // The leader goes away for good; the next one writes the ConfigMap.
    let other = Leader::start("second").await;
    other.serve_as(&leader, 2);
    leader.stop();
    let data = json!({ "data": { "servers": other.address().to_string(), "epoch": "2" } });
    site.server.cluster().merge_patch("configmaps", "kube-system/isthmus-node-metric", &data).unwrap();
    let moved = reported(&site, &other, "a report to the other", |_| true).await;
    assert_eq!((moved.incarnation, moved.is_full()), (next.incarnation, true));
}

/// What nodes reach is named by the administrator, always in the same order: that another leads is in the epoch and in `leader` alone. The
/// one before still answers, as one that does not know yet would.
#[tokio::test]
async fn another_leader_of_a_list_that_stays_is_gone_to() {
    let leader = Leader::start("first").await;
    let other = Leader::start("second").await;
    let mut site = site(&leader).await;
    leader.trust(&site.authority);
    other.serve_as(&leader, 2);
    let servers = format!("{},{}", leader.address(), other.address());
    let tell = |site: &Site, of: &Leader, epoch: u64| {
        let config = of.config(epoch);
        let data =
            json!({ "data": { "servers": servers, "epoch": config["epoch"], "leader": config["leader"] } });
        site.server.cluster().merge_patch("configmaps", "kube-system/isthmus-node-metric", &data).unwrap();
    };
    tell(&site, &leader, 1);
    start(&mut site).await;
    reported(&site, &leader, "a delta", |report| report.base_seq.is_some()).await;
    tell(&site, &other, 2);
    let moved = reported(&site, &other, "a report to the other", |_| true).await;
    assert!(moved.is_full());
    reported(&site, &other, "a delta to the other", |report| report.base_seq.is_some()).await;
    assert_eq!((leader.callers().len(), other.callers().len()), (1, 1), "straight there, and no further");
}

#[tokio::test]
async fn a_server_of_another_authority_is_told_nothing() {
    let leader = Leader::start("first").await;
    let impostor = Leader::start("impostor").await;
    let mut site = site(&leader).await;
    impostor.trust(&site.authority);
    let mut data = leader.config(1);
    data["servers"] = json!(impostor.address().to_string());
    site.server
        .cluster()
        .merge_patch("configmaps", "kube-system/isthmus-node-metric", &json!({ "data": data }))
        .unwrap();
    start(&mut site).await;
    site.until("it is refused", async || {
        status(&site).await["problem"].as_str().is_some_and(|problem| problem.contains("certificate"))
    })
    .await;
    assert_eq!(impostor.reports().len(), 0);
}
