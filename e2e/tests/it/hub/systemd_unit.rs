//! The hub as a unit of systemd: what `edge-hub manifest systemd` prints, kept by a real manager, with all that the unit takes from the hub's process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::hub::{HubNode, LOOPBACK, token};
use e2e::{Finished, client, eventually, fresh_namespace, repository, run};

const NAMESPACE: &str = "e2e-hub-systemd";
const NODE: &str = "e2e-systemd-1";
const PROBES: &str = "http://127.0.0.1:10267";
const CONTROL_GROUP: &str = "isthmus-e2e-systemd";

/// Where the manager runs, and its first process.
struct Manager {
    process: String,
}

impl Manager {
    /// Runs a command beside the manager, with its files.
    async fn inside(&self, words: &[&str]) -> Result<Finished> {
        let place = ["--target", &self.process, "--all", "--root", "--wd=/"];
        run("nsenter", &[&place[..], words].concat(), "").await
    }

    async fn property(&self, name: &str) -> Result<String> {
        let said = self.inside(&["systemctl", "show", "--value", "-p", name, "edge-hub"]).await?.ok()?;
        Ok(said.trim().to_owned())
    }

    /// What the kernel says of the unit's process.
    async fn status(&self, field: &str) -> Result<String> {
        let file = format!("/proc/{}/status", self.property("MainPID").await?);
        let status = self.inside(&["cat", &file]).await?.ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
        Ok(line.with_context(|| format!("no {field} in {status}"))?.trim().to_owned())
    }
}

#[tokio::test]
async fn a_hub_runs_as_a_unit_of_systemd() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let node = HubNode::without_hub(NODE).await?;
    let folder = tempfile::tempdir()?;
    lay_out(&node, folder.path()).await?;
    let script = repository().join("e2e/tests/it/hub/systemd_unit/manager.sh");
    let words = ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--ipc", "--uts", "bash"];
    let (script, folder_name) = (script.display().to_string(), folder.path().display().to_string());
    let mut control_groups = Cleanup::default();
    let remove = format!("find /sys/fs/cgroup -depth -type d -path '*/{CONTROL_GROUP}*' -exec rmdir {{}} +");
    control_groups.add("sh", &["-c", &remove]);
    let started = node.start(&[&words[..], &[&script, &folder_name, CONTROL_GROUP]].concat())?;
    let parent = started.id().context("it has ended")?.to_string();

    let log = || fs::read_to_string(folder.path().join("out/log")).unwrap_or_default();
    let ready = async || {
        let ready = node.get(PROBES, None, "/readyz").await?;
        ensure!(ready.status == 200, "{ready:?}; the hub's log: {}", log());
        Ok(())
    };
    eventually("the hub is ready", Duration::from_mins(1), ready).await?;
    let process = run("pgrep", &["--parent", &parent], "").await?.ok()?.trim().to_owned();
    let manager = Manager { process };
    // By a token: whether a process is the node's or a pod's cannot be seen beside cgroups of version 1.
    let reader = token(NAMESPACE, "reader", "view").await?;
    let serves = async || {
        let services = node.get(LOOPBACK, Some(&reader), "/api/v1/services?resourceVersion=0").await?;
        ensure!(services.status == 200 && services.body.contains("\"kubernetes\""), "{services:?}");
        Ok(())
    };
    serves().await?;
    for (field, value) in
        [("CapEff", "0000000000000000"), ("CapBnd", "0000000000000000"), ("NoNewPrivs", "1")]
    {
        ensure!(manager.status(field).await? == value, "{field}");
    }
    ensure!(manager.status("Seccomp").await? == "2", "system calls are filtered");

    // The certificate is read anew, and the process is the same.
    let first = manager.property("MainPID").await?;
    manager.inside(&["systemctl", "reload", "edge-hub"]).await?.ok()?;
    ready().await?;
    ensure!(manager.property("MainPID").await? == first && log().contains("SIGHUP"), "{}", log());

    manager.inside(&["kill", "-9", &first]).await?.ok()?;
    eventually("systemd has started it anew", Duration::from_secs(20), async || {
        let now = manager.property("MainPID").await?;
        ensure!(now != first && now != "0", "{now}");
        ready().await
    })
    .await?;
    serves().await?;

    manager.inside(&["systemctl", "stop", "edge-hub"]).await?.ok()?;
    ensure!(manager.property("Result").await? == "success", "it ends by itself when it is told to");
    ensure!(node.get(PROBES, None, "/readyz").await?.status == 0);
    drop(started);
    node.leave().await
}

/// The unit, and what its options name, in `folder`.
async fn lay_out(node: &HubNode, folder: &Path) -> Result<()> {
    for name in ["etc", "out"] {
        fs::create_dir(folder.join(name))?;
    }
    let keys = node.keys()?;
    let copies = [
        (keys.join("kubelet-client.crt"), "client.crt"),
        (keys.join("kubelet-client.key"), "client.key"),
        (node.authority.clone(), "ca.crt"),
    ];
    for (from, to) in copies {
        fs::copy(&from, folder.join("etc").join(to)).with_context(|| from.display().to_string())?;
    }
    fs::copy(repository().join("dist/edge-hub"), folder.join("edge-hub"))?;
    let words = [
        ["manifest", "systemd"],
        ["--", "--node-name"],
        [NODE, "--server-addr"],
        [&node.api_server, "--ca-file"],
        ["/etc/edge-hub/ca.crt", "--client-cert-file"],
        ["/etc/edge-hub/client.crt", "--client-key-file"],
    ];
    let words = [&words.concat()[..], &["/etc/edge-hub/client.key"]].concat();
    let unit = run("edge-hub", &words, "").await?.ok()?;
    Ok(fs::write(folder.join("edge-hub.service"), unit)?)
}
