//! New certificates and addresses while everything is in use: nothing is cut, no process starts anew, and what is no longer valid is refused.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE_GATEWAY, GATEWAYS, ORDINARY, Reach, SOLO, TWIN, background, balance, exec, ground, hub_metrics,
    in_namespace, logs, pod,
};
use e2e::{client, eventually, hack_cluster, internal_ip, kubectl, run};
use kube::Api;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;

use super::away::refuse;
use super::faults::replicas;
use super::gateways::{both_report, endpoints_are, manager_follows, reports};
use super::held::{Held, press_all, sessions};
use super::identity::shake;
use super::reach::{link_ports_of, settled_links};

/// How soon a stream works.
const SOON: Duration = Duration::from_secs(45);

/// How soon a hub has a new certificate: the manager approves, the controller manager signs. That one is back at its watches up to a
/// minute after the API server was away more than once (client-go's backoff), which it was where another test began anew with it.
const SIGNED: Duration = Duration::from_secs(100);

/// A script that prints the fingerprint of the certificate that is shown there.
pub(super) fn fingerprint_at(address: &str) -> String {
    format!(
        "openssl s_client -connect {address} -alpn h2 </dev/null 2>/dev/null | openssl x509 -noout -fingerprint -sha256"
    )
}

/// What a node's hub shows where it accepts links: the certificate's fingerprint.
pub(super) async fn shown(node: &str) -> Result<String> {
    let script = fingerprint_at("127.0.0.1:10262");
    let said = hack_cluster(&["exec", node, "--", "timeout", "10", "bash", "-c", &script]).await?;
    ensure!(said.success && !said.stdout.is_empty(), "{node} shows nothing: {said:?}");
    Ok(said.stdout)
}

/// The process of a node's hub.
fn process(state: &Path, node: &str) -> Result<String> {
    Ok(fs::read_to_string(state.join(format!("run/{node}.edge-hub.pid")))?)
}

/// A certificate of the cluster's authority for a node's hub, with a key of its own, valid for so many days.
async fn issue(state: &Path, node: &str, days: &str, into: &Path) -> Result<()> {
    let script = format!(
        "set -e
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout '{into}.key' -out '{into}.csr' \
  -subj /O=system:nodes/CN=system:node:{node} 2>/dev/null
openssl x509 -req -in '{into}.csr' -CA '{state}/pki/ca.crt' -CAkey '{state}/pki/ca.key' -days {days} \
  -set_serial 0x$(openssl rand -hex 8) -extfile <(printf 'extendedKeyUsage=clientAuth\\n') -out '{into}.crt' 2>/dev/null",
        into = into.display(),
        state = state.display(),
    );
    run("bash", &["-c", &script], "").await?.ok().map(drop)
}

/// Writes a line into the log that is followed, and reads it.
async fn says(lines: &mut Lines<BufReader<ChildStdout>>, word: &str, within: Duration) -> Result<()> {
    let script = format!("echo {word} >/proc/1/fd/1");
    kubectl(&in_namespace(&["exec", &pod(EDGE_GATEWAY), "--", "sh", "-c", &script])).await?.ok()?;
    let read = async {
        while lines.next_line().await?.context("the stream ended")? != word {}
        anyhow::Ok(())
    };
    tokio::time::timeout(within, read).await.with_context(|| format!("no line {word}"))?
}

/// How often the edge's hub took a client certificate into use.
async fn in_use() -> Result<usize> {
    let log = hack_cluster(&["logs", "edge-hub", EDGE_GATEWAY]).await?.ok()?;
    let told = |line: &&str| line.contains("client certificate") && line.contains("in use for the tunnel");
    Ok(log.lines().filter(told).count())
}

#[tokio::test]
async fn x11_new_certificates_cut_no_stream() -> Result<()> {
    let ground = ground(Reach::Names).await?;
    for node in [EDGE_GATEWAY, ORDINARY] {
        logs(node, SOON).await?;
    }
    let held = Held::at_rest().await?;
    let authority = hack_cluster(&["path", "cloud-1", "hub-ca"]).await?.ok()?;
    let state = Path::new(authority.trim()).ancestors().nth(2).context("the cluster's folder")?;
    let mut follow = background(&["logs", "-f", "--tail=0", &pod(EDGE_GATEWAY)])?;
    let mut lines = BufReader::new(follow.stdout.take().context("its output")?).lines();
    // It is followed once a line came: what was written before is not shown.
    let mut followed = Err(anyhow!("no line"));
    for _ in 0..5 {
        followed = says(&mut lines, "followed", Duration::from_secs(3)).await;
        if followed.is_ok() {
            break;
        }
    }
    followed?;

    let dialled = settled_links().await?;
    // Over both gateways, and so over each link whose ends show another certificate.
    let mut sessions = sessions(EDGE_GATEWAY).await?;
    // Those who accept links: the cloud's gateways, and the endpoint that its pool goes out by.
    for node in GATEWAYS.into_iter().chain([EDGE_GATEWAY]) {
        let (hub, before) = (process(state, node)?, shown(node).await?);
        hack_cluster(&["signal", "HUP", "edge-hub", node]).await?.ok()?;
        eventually(&format!("{node} has another certificate"), SIGNED, || async {
            let now = shown(node).await?;
            ensure!(now != before, "still {before}");
            Ok(())
        })
        .await?;
        ensure!(process(state, node)? == hub, "the hub of {node} was started anew");
        says(&mut lines, &format!("after-{node}"), SOON).await?;
        press_all(&mut sessions).await.with_context(|| format!("after another certificate of {node}"))?;
    }

    let now = link_ports_of(EDGE_GATEWAY).await?;
    ensure!(now == dialled, "other certificates of gateways made links anew: {dialled:?}, now {now:?}");

    // Who dials shows another one: its links are made anew, and the streams of the old ones go on.
    let pki = state.join(format!("nodes/{EDGE_GATEWAY}/pki"));
    let hub = process(state, EDGE_GATEWAY)?;
    let put = |from: &Path| -> Result<()> {
        for kind in ["key", "crt"] {
            let new = pki.join(format!("new.{kind}"));
            fs::copy(from.with_extension(kind), &new)?;
            fs::rename(new, pki.join(format!("kubelet-client.{kind}")))?;
        }
        Ok(())
    };
    let folder = std::env::temp_dir().join(format!("e2e-x11-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    for kind in ["key", "crt"] {
        fs::copy(pki.join(format!("kubelet-client.{kind}")), folder.join(format!("old.{kind}")))?;
    }
    let used = in_use().await?;
    issue(state, EDGE_GATEWAY, "2", &folder.join("new")).await?;
    put(&folder.join("new"))?;
    hack_cluster(&["signal", "HUP", "edge-hub", EDGE_GATEWAY]).await?.ok()?;
    eventually("the edge's hub uses the new certificate", SOON, || async {
        ensure!(in_use().await? > used, "it does not yet");
        Ok(())
    })
    .await?;
    eventually("the edge has links that show it", SOON, || async {
        let now = link_ports_of(EDGE_GATEWAY).await?;
        ensure!(now.difference(&dialled).count() >= dialled.len(), "{dialled:?}, now {now:?}");
        Ok(())
    })
    .await?;
    says(&mut lines, "after-the-edge", SOON).await?;
    press_all(&mut sessions).await.context("after another certificate of the edge")?;
    ensure!(process(state, EDGE_GATEWAY)? == hub, "the edge's hub was started anew");
    logs(ORDINARY, SOON).await?;
    ensure!(follow.try_wait()?.is_none(), "the stream ended");

    // A certificate that has expired is none.
    issue(state, EDGE_GATEWAY, "0", &folder.join("expired")).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (certificate, key) = (path("expired.crt"), path("expired.key"));
    let said = shake(&ground.balancer, Some((&certificate, &key))).await?;
    ensure!(said.contains("alert") && said.contains("expired"), "an expired certificate: {said}");
    drop((follow, sessions));
    // What comes after finds links that stay.
    let used = in_use().await?;
    put(&folder.join("old"))?;
    fs::remove_dir_all(&folder)?;
    hack_cluster(&["signal", "HUP", "edge-hub", EDGE_GATEWAY]).await?.ok()?;
    eventually("the edge's hub uses its own certificate again", SOON, || async {
        ensure!(in_use().await? > used, "it does not yet");
        Ok(())
    })
    .await?;
    held.is_all_there_is().await
}

/// A balancer's checks of the port where links are accepted are no news, and are counted.
#[tokio::test]
async fn checks_of_the_balancer_are_quiet() -> Result<()> {
    ground(Reach::Names).await?;
    let series = "isthmus_hub_tunnel_silent_connections_total{listener=\"links\"} ";
    let count = || async {
        let metrics =
            hack_cluster(&["exec", GATEWAYS[0], "--", "curl", "-sm5", "http://127.0.0.1:10267/metrics"])
                .await?
                .ok()?;
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)).map(str::to_owned);
        line.with_context(|| format!("no {series}"))?.parse::<u64>().context("a number")
    };
    let lines = || async {
        let log = hack_cluster(&["logs", "edge-hub", GATEWAYS[0]]).await?.ok()?;
        anyhow::Ok(log.lines().filter(|line| line.contains("handshake") && line.contains("no link")).count())
    };
    let (counted, logged) = (count().await?, lines().await?);
    eventually("more are counted", Duration::from_secs(30), || async {
        ensure!(count().await? >= counted + 5, "not yet");
        Ok(())
    })
    .await?;
    let now = lines().await?;
    ensure!(now == logged, "{} lines of failed handshakes", now - logged);
    Ok(())
}

/// A name of the balancer that edge nodes which dial know, and nobody else.
pub(super) const NAME: &str = "balancer.isthmus.test";

/// The nodes that dial the cloud's gateways.
pub(super) const DIALLING: [&str; 3] = [EDGE_GATEWAY, TWIN, SOLO];

/// Adds the balancer's name to what a node looks up in files.
pub(super) async fn knows_the_name(node: &str, address: &str) -> Result<Cleanup> {
    let file = "/etc/kubernetes/hosts";
    let script = format!("(cat /etc/hosts; echo {address} {NAME}) >{file} && mount --bind {file} /etc/hosts");
    hack_cluster(&["exec", node, "--", "bash", "-c", &script]).await?.ok()?;
    Ok(Cleanup::hack_cluster(&["exec", node, "--", "umount", "/etc/hosts"]))
}

/// How the cloud's gateways are reached: the way, and the fields that it needs of each endpoint, by an address or one with a port.
async fn exposed_by(way: &str, addresses: &[(&str, String)]) -> Result<()> {
    let mut endpoints = Vec::new();
    for (node, address) in addresses {
        let mut endpoint = json!({ "nodeName": node, "type": "proxy" });
        let (host, port) = address.split_once(':').unwrap_or((address, ""));
        if !host.is_empty() {
            endpoint["publicIP"] = json!(host);
        }
        if !port.is_empty() {
            endpoint["publicPort"] = json!(port.parse::<u16>()?);
        }
        endpoints.push(endpoint);
    }
    let spec = json!({ "spec": { "exposeType": way, "endpoints": endpoints } }).to_string();
    kubectl(&["patch", "gateway", "cloud", "--type=merge", "-p", &spec]).await?.ok().map(drop)
}

/// Waits until the status of the cloud's Gateway says that it is dialled at these.
async fn recorded(wanted: &[String]) -> Result<()> {
    eventually("the addresses are in the Gateway's status", Duration::from_secs(10), || async {
        let path = "jsonpath={range .status.addresses[*]}{.host}:{.port}{\"\\n\"}{end}";
        let said = kubectl(&["get", "gateway", "cloud", "-o", path]).await?.ok()?;
        ensure!(said.lines().eq(wanted), "{said:?}");
        Ok(())
    })
    .await
}

/// How often a node had a link to a gateway which it dialled at an address.
async fn linked(node: &str, gateway: &str, address: &str) -> Result<usize> {
    let log = hack_cluster(&["logs", "edge-hub", node]).await?.ok()?;
    let (gateway, address) = (format!("gateway=\"{gateway}\""), format!("address=\"{address}\""));
    let up = |line: &&str| line.contains("link up") && line.contains(&gateway) && line.contains(&address);
    Ok(log.lines().filter(up).count())
}

/// Does what changes the addresses, and waits until that is recorded and each node that dials has new links to both gateways there. An address that
/// leads to both is recorded once.
pub(super) async fn dialled_at(
    addresses: &[(&str, String)],
    change: impl Future<Output = Result<()>>,
) -> Result<()> {
    let mut wanted: Vec<String> = addresses.iter().map(|(_, address)| address.clone()).collect();
    wanted.dedup();
    dialled(addresses, &wanted, change).await
}

/// The same with what is recorded.
async fn dialled(
    addresses: &[(&str, String)],
    wanted: &[String],
    change: impl Future<Output = Result<()>>,
) -> Result<()> {
    let mut before = Vec::new();
    for node in DIALLING {
        for (gateway, address) in addresses {
            before.push((node, *gateway, address, linked(node, gateway, address).await?));
        }
    }
    change.await?;
    recorded(wanted).await?;
    for (node, gateway, address, links) in before {
        eventually(&format!("{node} dials {gateway} at {address}"), SOON, || async {
            ensure!(linked(node, gateway, address).await? > links, "not yet");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The same gateways by the balancer's name, by port 443 of a public address, which firewalls let out, by public addresses of their own, and by
/// the balancer's address again, while sessions are open.
#[tokio::test]
async fn x13_x14_new_addresses_cut_no_stream() -> Result<()> {
    let ground = ground(Reach::Names).await?;
    let balancer = &ground.balancer;
    manager_follows(&Api::namespaced(client().await?, "kube-system")).await?;
    for node in DIALLING {
        logs(node, SOON).await?;
    }
    let held = Held::at_rest().await?;
    let mut sessions = sessions(TWIN).await?;
    let mut names = Vec::new();
    for node in DIALLING {
        names.push(knows_the_name(node, balancer).await?);
    }
    let at = |host: &str| GATEWAYS.map(|gateway| (gateway, format!("{host}:10262")));
    let nowhere = GATEWAYS.map(|gateway| (gateway, String::new()));
    let by_balancer = async || {
        exposed_by("LoadBalancer", &nowhere).await?;
        balance(&json!({ "ip": balancer })).await
    };
    let changes = async {
        dialled_at(&at(NAME), balance(&json!({ "hostname": NAME }))).await.context("the balancer's name")?;
        press_all(&mut sessions).await?;
        let public = GATEWAYS.map(|gateway| (gateway, format!("{balancer}:443")));
        // One can begin nothing at another port any more; what it has it keeps.
        let shut = refuse(SOLO, &["--syn"]).await?;
        // One entry of each endpoint, though they are alike.
        let listed = public.clone().map(|(_, address)| address);
        dialled(&public, &listed, exposed_by("PublicIP", &public)).await.context("port 443")?;
        press_all(&mut sessions).await?;
        drop(shut);
        let mut own = Vec::new();
        for gateway in GATEWAYS {
            own.push((gateway, internal_ip(gateway).await?));
        }
        let dialled: Vec<_> =
            own.iter().map(|(gateway, address)| (*gateway, format!("{address}:10262"))).collect();
        dialled_at(&dialled, exposed_by("PublicIP", &own)).await.context("public addresses")?;
        press_all(&mut sessions).await
    };
    let result = changes.await;
    if result.is_err() {
        by_balancer().await?;
    }
    result?;
    dialled_at(&at(balancer), by_balancer()).await.context("the balancer's address")?;
    press_all(&mut sessions).await?;
    for node in DIALLING {
        logs(node, SOON).await?;
    }
    drop((names, sessions));
    held.is_all_there_is().await
}

/// How many streams a node's hub has open.
async fn open_streams(node: &str) -> Result<u64> {
    let metrics = hub_metrics(node).await?;
    let open = metrics.lines().find_map(|line| line.strip_prefix("isthmus_hub_tunnel_open_streams "));
    open.with_context(|| format!("no streams of {node}"))?.parse::<u64>().context("a number")
}

/// One of the two gateways is active no more, and is again, while sessions are open over both: nodes keep the links to the one that stays, and those to
/// the other go with their last stream.
#[tokio::test]
async fn x13_fewer_gateways_and_more_cut_no_stream() -> Result<()> {
    let ground = ground(Reach::Names).await?;
    let address = format!("{}:10262", ground.balancer);
    let slices = Api::namespaced(client().await?, "kube-system");
    manager_follows(&slices).await?;
    eventually("links at both", SOON, || both_report(TWIN, true)).await?;
    logs(TWIN, SOON).await?;
    let held = Held::at_rest().await?;
    let [first, second] = GATEWAYS;
    let before = (open_streams(first).await?, open_streams(second).await?);
    let mut sessions = sessions(TWIN).await?;
    let open = (open_streams(first).await?, open_streams(second).await?);
    ensure!(open.0 > before.0 && open.1 > before.1, "sessions are not over both: {before:?}, now {open:?}");

    let made = (linked(TWIN, first, &address).await?, linked(TWIN, second, &address).await?);
    let both = Cleanup::kubectl(&["patch", "gateway", "cloud", "--type=merge", "-p", &replicas(2)]);
    kubectl(&["patch", "gateway", "cloud", "--type=merge", "-p", &replicas(1)]).await?.ok()?;
    // The first of its list.
    endpoints_are(&slices, &[first], Instant::now(), SOON).await?;
    eventually("links to the other one drain", SOON, || reports(second, TWIN, false)).await?;
    press_all(&mut sessions).await.context("with one active gateway")?;
    reports(first, TWIN, true).await?;
    eventually("the node is reached", SOON, || exec(TWIN, Duration::from_secs(10))).await?;

    drop(both);
    endpoints_are(&slices, &GATEWAYS, Instant::now(), SOON).await?;
    eventually("links at both again", SOON, || both_report(TWIN, true)).await?;
    press_all(&mut sessions).await.context("with two again")?;
    let now = (linked(TWIN, first, &address).await?, linked(TWIN, second, &address).await?);
    ensure!(
        now.0 == made.0 && now.1 > made.1,
        "links to {first} and {second} were made {made:?}, {now:?} times"
    );
    drop(sessions);
    held.is_all_there_is().await
}
