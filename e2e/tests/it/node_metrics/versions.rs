//! NodeMetric under Koordinator's own version, by a flag, in a cluster where no CRD holds it: its components find it where they look for it.

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::{client, eventually, kubectl, repository, run};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

use super::discovery::{self, CURRENT, GROUP};
use super::ground::{Ground, INSTALLED};
use super::observers::inform;
use super::{NODE, WARM};

const VERSION: &str = "v1alpha1";

/// Not by kubectl's own discovery: what it keeps of that, other tests go by.
async fn raw(version: &str, rest: &str) -> Result<String> {
    kubectl(&["get", "--raw", &format!("/apis/{GROUP}/{version}/{rest}")]).await?.ok()
}

#[tokio::test]
async fn koordinators_own_version_is_served_where_no_crd_holds_it() -> Result<()> {
    let client = client().await?;
    let install = repository().join("hack/install");
    // Whatever kubectl and helm have learnt of this version meanwhile they forget.
    let _forgotten = Cleanup::kubectl(&["api-resources"]);
    Ground::new().await?;
    let mut back = Cleanup::default();
    back.add(&install, &INSTALLED);
    let set = ["--set", "nodeMetrics.enabled=true,nodeMetrics.apiVersion=v1alpha1", "--wait"];
    run(&install, &set, "").await?.ok()?;
    eventually("a report is seen", WARM, || async {
        let metric: Value = serde_json::from_str(&raw(VERSION, &format!("nodemetrics/{NODE}")).await?)?;
        ensure!(metric["apiVersion"] == "slo.koordinator.sh/v1alpha1", "{}", metric["apiVersion"]);
        let status = &metric["status"];
        ensure!(status["freshness"]["state"] == "Fresh", "{}", status["freshness"]);
        ensure!(status["nodeMetric"]["nodeUsage"]["resources"]["cpu"].is_string(), "{status}");
        Ok(())
    })
    .await?;

    // It stands alone: nothing is served under the version that it is served under without the flag.
    eventually("discovery tells of this version alone", WARM, || async {
        let versions = discovery::versions(&client).await?;
        let told = versions.iter().map(|one| (one["version"].as_str(), one["freshness"].as_str()));
        let told: Vec<_> = told.collect();
        ensure!(told == [(Some(VERSION), Some(CURRENT))], "{told:?}");
        Ok(())
    })
    .await?;
    ensure!(raw(discovery::VERSION, "nodemetrics").await.is_err(), "{} is served, too", discovery::VERSION);

    // Koordinator's types hold what is served.
    let text = raw(VERSION, "nodemetrics").await?;
    let built = run("hack/build-tools", &["informer", "--print-path"], "").await?.ok()?;
    let binary = built.split_whitespace().last().context("the path of the informer")?;
    let read: Value = serde_json::from_str(&run(binary, &["-reread"], &text).await?.ok()?)?;
    let (served, read) = (of_node(&serde_json::from_str(&text)?)?, of_node(&read)?);
    for path in
        ["/status/nodeMetric/nodeUsage/resources/cpu", "/status/updateTime", "/spec/metricCollectPolicy"]
    {
        let (served, read) = (served.pointer(path), read.pointer(path));
        ensure!(served.is_some() && served == read, "{path} is {served:?}, and {read:?} to Koordinator");
    }

    // A stock informer hears of reports; so do people.
    let mut informer = inform(VERSION).await?;
    let mut lines = BufReader::new(informer.stdout.take().context("stdout")?).lines();
    let updated = async {
        while let Some(line) = lines.next_line().await? {
            let line: Value = serde_json::from_str(&line)?;
            if line["event"] == "update" && line["name"] == NODE {
                return Ok(());
            }
        }
        anyhow::bail!("the informer has ended")
    };
    timeout(WARM, updated).await.context("the informer hears of no report")??;
    let top = run("isthmus-manager", &["top", "nodes"], "").await?.ok()?;
    let line = top.lines().find(|line| line.split_whitespace().next() == Some(NODE));
    ensure!(line.is_some_and(|line| line.contains("Fresh")), "{top}");
    Ok(())
}

/// The node's object of a list.
fn of_node(list: &Value) -> Result<Value> {
    let items = list["items"].as_array().context("no items")?;
    let found = items.iter().find(|object| object["metadata"]["name"] == NODE);
    Ok(found.with_context(|| format!("no {NODE}: {list}"))?.clone())
}
