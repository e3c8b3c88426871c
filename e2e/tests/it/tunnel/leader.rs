//! A gateway's node dies, and with it the replica of the manager that decides: the Services follow as soon as else.

// How long it took is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{EDGE_GATEWAY, GATEWAYS, Reach, TWIN, ground};
use e2e::replicas::{all_ready, another_leads, holder_of, process};
use e2e::{client, eventually, hack_cluster, kubectl, run};
use kube::api::Api;

use super::asked::done;
use super::faults::power;
use super::gateways::{both_report, endpoints_are, gateways_report, manager_follows, slices_within};

/// The Lease of who decides about Gateways.
const LEASE: &str = "isthmus-manager-gateways";

/// How much longer is waited, to say how late it was.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a node dies.
#[derive(Debug, Clone, Copy)]
enum Death {
    /// Its processes are killed: their connections end with it.
    Killed,
    /// It loses power: nothing is sent any more, and nothing tells anybody.
    Power,
}

/// Which replica decides is the scheduler's chance, so what dies on it and on the gateway's node is done to both, in the same moment.
#[tokio::test]
async fn x2_a_cloud_gateway_dies_with_the_manager_that_leads() -> Result<()> {
    ground(Reach::there()).await?;
    let client = client().await?;
    let slices = Api::namespaced(client.clone(), "kube-system");
    for death in [Death::Killed, Death::Power] {
        all_ready().await?;
        manager_follows(&slices).await?;
        gateways_report().await?;
        eventually("links at both", Duration::from_secs(40), || both_report(TWIN, true)).await?;
        let holder = holder_of(&client, LEASE).await?;
        let (pod, _) = holder.rsplit_once('_').with_context(|| holder.clone())?;
        let replicas = e2e::replicas::replicas(&client).await?.len();
        ensure!(replicas > 1, "one replica of the manager alone: nobody could follow");
        let process = process(pod)?;
        let process = process.file_name().and_then(|id| id.to_str()).context("its number")?.to_owned();
        let mut back = Cleanup::default();
        let (signal, words) = match death {
            Death::Killed => {
                back.add(e2e::repository().join("hack/cluster"), &["start", "edge-hub", GATEWAYS[0]]);
                ("-KILL", ["signal", "KILL", "edge-hub", GATEWAYS[0]].map(str::to_owned).to_vec())
            }
            Death::Power => {
                let cut = |verb| {
                    ["exec", GATEWAYS[0], "--", "bash", "-c", &power(verb)].map(str::to_owned).to_vec()
                };
                let heal = cut("-D");
                back.add(
                    e2e::repository().join("hack/cluster"),
                    &heal.iter().map(String::as_str).collect::<Vec<_>>(),
                );
                // Its own kubelet would start it anew some time.
                back.add("kill", &["-CONT", &process]);
                ("-STOP", cut("-I"))
            }
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let began = Instant::now();
        let manager = async {
            run("kill", &[signal, &process], "").await?.ok()?;
            anyhow::Ok(began.elapsed())
        };
        let (gone, hub, manager) = tokio::join!(
            endpoints_are(&slices, &GATEWAYS[1..], began, slices_within() + PATIENCE),
            done(began, &words),
            manager
        );
        let (gone, hub, manager) = (gone?, hub?, manager?);
        println!(
            "x2, {death:?}: the hub after {hub:.1?}, the manager after {manager:.1?}, out of the endpoints after {gone:.1?}"
        );
        // Whichever died last: the other had its time from then on at the latest.
        let died = hub.max(manager);
        ensure!(
            gone.saturating_sub(died) <= slices_within(),
            "out of the endpoints after {gone:.1?}; dead after {died:.1?}"
        );
        another_leads(&client, LEASE, &holder, Duration::from_secs(5)).await?;
        drop(back);
        endpoints_are(&slices, &GATEWAYS, Instant::now(), Duration::from_secs(40)).await?;
        eventually("links at both", Duration::from_mins(1), || both_report(EDGE_GATEWAY, true)).await?;
        all_ready().await?;
    }
    let said = kubectl(&["-n", "kube-system", "get", "lease", LEASE, "--ignore-not-found"]).await?.ok()?;
    ensure!(said.is_empty(), "the Lease is in the manager's namespace: {said}");
    let log = hack_cluster(&["logs", "edge-hub", GATEWAYS[0]]).await?.ok()?;
    ensure!(!log.contains("panicked"), "a panic in the hub of {}", GATEWAYS[0]);
    Ok(())
}
