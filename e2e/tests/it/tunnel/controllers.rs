//! What isthmus-manager makes of Gateways, pools and the two ConfigMaps, on a cluster where tunnels are up.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{EDGE, EDGE_GATEWAY, GATEWAYS, Reach, TWIN, balance, connected, ground, logs};
use e2e::keyboard::Keyboard;
use e2e::{client, eventually, kubectl, kubectl_apply};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use serde_json::{Value, json};

use super::faults::replicas;
use super::gateways::{endpoints, endpoints_are, manager_follows, slices_within};
use super::identity::ask_kubelet;
use super::reach::{links_of, node_names_in_dns};

/// How soon the manager has done what is asked of it.
const SOON: Duration = Duration::from_secs(20);

/// How soon links that nobody wants any more have drained: the API server keeps a connection to a kubelet, which is a stream, for a minute and a
/// half after its last request.
const DRAINED: Duration = Duration::from_mins(2);

/// How soon what a pool owned goes with it: Kubernetes' garbage collector looks for new kinds each half minute, and the cluster may be new.
const COLLECTED: Duration = Duration::from_mins(1);

/// A Gateway, if there is one.
async fn gateway(name: &str) -> Result<Option<Value>> {
    let found = kubectl(&["get", "gateway", name, "-o", "json", "--ignore-not-found"]).await?.ok()?;
    if found.trim().is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&found)?)) }
}

/// A pool that asks gets a Gateway of its own, which goes with the request or with the pool; one that somebody made by hand stays.
#[tokio::test]
async fn a_pool_that_asks_gets_a_gateway() -> Result<()> {
    const ASKS: &str = "e2e-asks";
    const SILENT: &str = "e2e-silent";
    const BY_HAND: &str = "e2e-by-hand";
    client().await?;
    let mut gone = Cleanup::default();
    for pool in [ASKS, SILENT, BY_HAND] {
        gone.add("kubectl", &["delete", &format!("nodepool/{pool}"), "--ignore-not-found"]);
        kubectl_apply(&format!(
            "apiVersion: apps.openyurt.io/v1beta2\nkind: NodePool\nmetadata: {{name: {pool}}}\nspec: {{type: Edge}}\n"
        ))
        .await?
        .ok()?;
    }
    gone.add("kubectl", &["delete", &format!("gateway/{BY_HAND}"), "--ignore-not-found"]);
    kubectl_apply(&format!(
        "apiVersion: raven.openyurt.io/v1beta1\nkind: Gateway\nmetadata: {{name: {BY_HAND}}}\nspec: {{endpoints: [{{nodeName: nowhere, type: proxy}}]}}\n"
    ))
    .await?
    .ok()?;
    let ask = async |pool: &str, word: &str| {
        kubectl(&["annotate", "--overwrite", "nodepool", pool, word]).await?.ok().map(drop)
    };
    let made = async || {
        let made = eventually("a Gateway for the pool", SOON, || async {
            gateway(ASKS).await?.context("there is none")
        })
        .await?;
        let pool = kubectl(&["get", "nodepool", ASKS, "-o", "jsonpath={.metadata.uid}"]).await?.ok()?;
        let owner = &made["metadata"]["ownerReferences"][0];
        ensure!(owner["kind"] == "NodePool" && owner["name"] == ASKS && owner["uid"] == pool, "{made}");
        anyhow::Ok(())
    };
    let is_gone = async |within| {
        eventually("the Gateway is gone", within, || async {
            let left = gateway(ASKS).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await
    };
    ask(ASKS, "isthmus.dev/gateway=true").await?;
    ask(BY_HAND, "isthmus.dev/gateway=true").await?;
    made().await?;
    ask(ASKS, "isthmus.dev/gateway-").await?;
    ask(BY_HAND, "isthmus.dev/gateway-").await?;
    is_gone(SOON).await.context("after the pool no longer asks")?;
    ask(ASKS, "isthmus.dev/gateway=true").await?;
    made().await.context("asked once more")?;
    kubectl(&["delete", "nodepool", ASKS]).await?.ok()?;
    is_gone(COLLECTED).await.context("after its pool")?;
    ensure!(gateway(SILENT).await?.is_none(), "a pool that does not ask has a Gateway");
    let by_hand = gateway(BY_HAND).await?.context("the one that was made by hand is gone")?;
    ensure!(by_hand["metadata"]["ownerReferences"].is_null(), "{by_hand}");
    ensure!(by_hand["spec"]["endpoints"][0]["nodeName"] == "nowhere", "{by_hand}");
    Ok(())
}

/// Has a Gateway made for a pool of two nodes, which each dial until then: one of them stands for both, and alone holds links, by which the other one
/// is reached, too. Without it both dial again.
pub(super) async fn a_gateway_of_its_own_leads_to(pool: &str, nodes: [&str; 2]) -> Result<()> {
    kubectl(&["annotate", "--overwrite", "nodepool", pool, "isthmus.dev/gateway=true"]).await?.ok()?;
    connected(pool, Duration::from_mins(1)).await?;
    let path = "jsonpath={.status.activeEndpoints[?(@.type==\"proxy\")].nodeName}";
    let elected = kubectl(&["get", "gateway", pool, "-o", path]).await?.ok()?;
    let [standing, other] = if elected == nodes[0] { nodes } else { [nodes[1], nodes[0]] };
    ensure!(elected == standing, "of {nodes:?} {elected:?} are elected");
    eventually("the elected node alone holds links", DRAINED, || async {
        let (links, others) = (links_of(standing).await?, links_of(other).await?);
        ensure!(links > 0 && others == 0, "{standing} has {links} links, {other} {others}");
        Ok(())
    })
    .await?;
    for node in [other, standing] {
        logs(node, SOON).await.with_context(|| format!("{node} by {standing}"))?;
    }
    kubectl(&["annotate", "nodepool", pool, "isthmus.dev/gateway-"]).await?.ok()?;
    eventually("each dials for itself again", Duration::from_mins(1), || async {
        let left = gateway(pool).await?;
        ensure!(left.is_none(), "{left:?}");
        for node in nodes {
            ensure!(links_of(node).await? > 0, "{node} has no links");
            logs(node, SOON).await?;
        }
        Ok(())
    })
    .await
}

/// Status and reason of a condition of a Gateway.
pub(super) async fn condition(gateway: &str, type_: &str) -> Result<(String, String)> {
    let of = format!("{{.status.conditions[?(@.type==\"{type_}\")]");
    let path = format!("jsonpath={of}.status}} {of}.reason}}");
    let said = kubectl(&["get", "gateway", gateway, "-o", &path]).await?.ok()?;
    let (status, reason) = said.split_once(' ').with_context(|| format!("{said:?}"))?;
    Ok((status.to_owned(), reason.to_owned()))
}

/// Raven's switch takes everything down, with a reason at each Gateway, and brings it up again. It cuts no session: links go with their last one.
#[tokio::test]
async fn ravens_switch_turns_the_tunnel_off_and_on() -> Result<()> {
    ground(Reach::Names).await?;
    let slices = Api::<EndpointSlice>::namespaced(client().await?, "kube-system");
    manager_follows(&slices).await?;
    eventually("the edge is reached", SOON, || logs(EDGE_GATEWAY, SOON)).await?;
    let mut session = Keyboard::open(EDGE_GATEWAY).await?;
    let patch = ["-n", "kube-system", "patch", "configmap", "raven-cfg", "--type=merge", "-p"];
    let said = |value: &str| json!({ "data": { "enable-l7-proxy": value } }).to_string();
    let on = Cleanup::kubectl(&[&patch[..], &[&said("true")]].concat());
    kubectl(&[&patch[..], &[&said("false")]].concat()).await?.ok()?;
    let began = Instant::now();
    eventually("nobody is in the slices", slices_within(), || async {
        let left = endpoints(&slices).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    println!("no endpoints {:.1?} after the switch", began.elapsed());
    let conditions = [("cloud", "Elected"), ("cloud", "Exposed"), ("cloud", "Connected")];
    for (gateway, type_) in conditions.into_iter().chain([("tunnel-a", "Elected"), ("tunnel-a", "Connected")])
    {
        eventually("the reason is told", SOON, || async {
            let (status, reason) = condition(gateway, type_).await?;
            ensure!(status == "False" && reason == "L7Disabled", "{gateway}: {type_} {status} {reason}");
            Ok(())
        })
        .await?;
    }
    session.press().await.context("a session of before the tunnel was switched off")?;
    drop(session);
    nothing_leads_to_the_edge().await?;
    logs(GATEWAYS[0], SOON).await.context("a cloud node, while there is no tunnel")?;
    drop(on);
    let back = ground(Reach::Names).await?;
    balance(&json!({ "ip": back.balancer })).await?;
    for gateway in ["tunnel-a", "tunnel-b"] {
        connected(gateway, Duration::from_mins(1)).await?;
    }
    endpoints_are(&slices, &GATEWAYS, Instant::now(), SOON).await?;
    let (status, reason) = condition("cloud", "Elected").await?;
    ensure!(status == "True", "{status} {reason}");
    let told = node_names_in_dns().await?;
    ensure!(told.contains(EDGE_GATEWAY), "{told:?}");
    // The file of names that the API server's machine has is made of that.
    ground(Reach::Names).await?;
    for node in [EDGE_GATEWAY, TWIN] {
        eventually("the edge is reached again", Duration::from_mins(1), || logs(node, SOON)).await?;
    }
    Ok(())
}

/// Waits until no name of an edge node leads to gateways and no hub has dialled another one; whoever asks for a log of the edge is told by the API
/// server whom it did not reach.
async fn nothing_leads_to_the_edge() -> Result<()> {
    eventually("no edge node is in DNS", SOON, || async {
        let listed = node_names_in_dns().await?;
        ensure!(listed.is_empty(), "{listed:?}");
        Ok(())
    })
    .await?;
    let began = Instant::now();
    eventually("no hub has links", DRAINED, || async {
        for node in EDGE.into_iter().chain(GATEWAYS) {
            let links = links_of(node).await?;
            ensure!(links == 0, "{node} has {links}");
        }
        Ok(())
    })
    .await?;
    println!("no links {:.1?} after the last session", began.elapsed());
    for node in [EDGE_GATEWAY, TWIN] {
        let error = logs(node, SOON).await.err();
        let error = error.with_context(|| format!("there is another way to {node} than the tunnel"))?;
        let error = format!("{error:#}");
        ensure!(error.contains(&format!("https://{node}:10250/")), "a log of {node}: {error}");
    }
    Ok(())
}

/// The port for TLS is another one, at which hubs listen and to which the Service leads, whose own port stays.
#[tokio::test]
async fn ravens_ports_are_followed() -> Result<()> {
    const OBJECT: &str = "configmap/raven-agent-config";
    const MOVED: &str = "10273";
    ground(Reach::there()).await?;
    let usual =
        Cleanup::kubectl(&["-n", "kube-system", "delete", OBJECT, "--ignore-not-found", "--wait=true"]);
    let target = async |wanted: &str| {
        eventually(&format!("the slices lead to port {wanted}"), SOON, || async {
            let label = "-lkubernetes.io/service-name=x-raven-proxy-internal-svc";
            let path = "jsonpath={.items[*].ports[?(@.name==\"https-10250\")].port}";
            let said =
                kubectl(&["-n", "kube-system", "get", "endpointslices", label, "-o", path]).await?.ok()?;
            ensure!(said == wanted, "{said:?}");
            Ok(())
        })
        .await
    };
    let answers = async |when: &str| {
        eventually(&format!("{when} a kubelet answers"), SOON, || async {
            let (status, body) = ask_kubelet(EDGE_GATEWAY, None).await?;
            ensure!(status == "401", "{status} {body}");
            Ok(())
        })
        .await
    };
    target("10263").await?;
    answers("at the usual port").await?;
    kubectl_apply(&format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: raven-agent-config, namespace: kube-system}}\n\
         data: {{proxy-internal-secure-addr: \"0.0.0.0:{MOVED}\"}}\n"
    ))
    .await?
    .ok()?;
    target(MOVED).await?;
    answers("at the port of raven-agent-config").await?;
    drop(usual);
    target("10263").await?;
    answers("at the usual port again").await
}

/// How often each reason was told in events of Gateways, repetitions included.
async fn told() -> Result<BTreeMap<String, u64>> {
    let said = kubectl(&["get", "events.events.k8s.io", "-A", "-o", "json"]).await?.ok()?;
    let said: Value = serde_json::from_str(&said)?;
    let mut told = BTreeMap::new();
    let events = said["items"].as_array().context("events")?;
    for event in events.iter().filter(|event| event["regarding"]["kind"] == "Gateway") {
        let reason = event["reason"].as_str().context("a reason")?;
        *told.entry(reason.to_owned()).or_default() += event["series"]["count"].as_u64().unwrap_or(1);
    }
    Ok(told)
}

/// Round trips and reports change all the time, and are no news.
#[tokio::test]
async fn events_tell_of_changes_alone() -> Result<()> {
    const REASONS: [&str; 4] = ["ActiveEndpointElected", "ActiveEndpointLost", "Connected", "NoTunnel"];
    ground(Reach::there()).await?;
    for gateway in ["tunnel-a", "tunnel-b"] {
        connected(gateway, Duration::from_mins(1)).await?;
    }
    let of_them = |told: &BTreeMap<String, u64>| REASONS.map(|reason| told.get(reason).copied());
    let before = told().await?;
    // Longer than a round trip is written anew.
    tokio::time::sleep(Duration::from_secs(35)).await;
    let now = told().await?;
    println!("told: {before:?}");
    // Some may have been forgotten meanwhile.
    for (reason, (before, now)) in REASONS.iter().zip(of_them(&before).into_iter().zip(of_them(&now))) {
        ensure!(now <= before, "{reason}: {before:?} times, now {now:?}, and nothing has changed");
    }
    // What has changed is told, or the above shows nothing.
    let elected = now.get(REASONS[0]).copied();
    let _one = Cleanup::kubectl(&["patch", "gateway", "tunnel-a", "--type=merge", "-p", &replicas(1)]);
    kubectl(&["patch", "gateway", "tunnel-a", "--type=merge", "-p", &replicas(2)]).await?.ok()?;
    eventually("the election of another one is told", SOON, || async {
        let now = told().await?.get(REASONS[0]).copied();
        ensure!(now > elected, "{elected:?} times, now {now:?}");
        Ok(())
    })
    .await
}
