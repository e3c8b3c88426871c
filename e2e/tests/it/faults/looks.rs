//! Looks at replicas from outside: whether each says that it leads, while etcd stands still and after.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::pools::SOON;
use e2e::replicas::replicas;
use e2e::{eventually, hack_cluster, kubectl, run};
use kube::{Client, ResourceExt};
use tokio::time::Instant;

use super::Outage;

/// What a replica said, when it was asked.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// The name of its pod.
    pub(super) replica: String,
    /// When it was asked, since etcd had stopped.
    asked: Duration,
    /// When that was over.
    answered: Duration,
    /// Whether it leads; `None` if it did not answer.
    leads: Option<bool>,
}

/// All looks at the replicas in their order, and for how long etcd stood still meanwhile.
pub(super) struct Looks {
    pub(super) all: Vec<Look>,
    pub(super) outage: Outage,
}

/// Stops etcd for a while and asks each replica in turn, meanwhile and after, whether it leads.
pub(super) async fn watch_leaders(client: &Client, pause: Duration) -> Result<Looks> {
    let mut asked = Vec::new();
    for pod in replicas(client).await? {
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("no address")?;
        asked.push((pod.name_any(), format!("https://{address}:10271/metrics")));
    }
    ensure!(asked.len() > 1, "one replica alone cannot disagree");
    kubectl(&["create", "serviceaccount", "e2e-watcher"]).await.ok();
    let bind = ["create", "clusterrolebinding", "e2e-watcher", "--clusterrole=isthmus-metrics-reader"];
    kubectl(&[&bind[..], &["--serviceaccount=default:e2e-watcher"]].concat()).await.ok();
    let token = kubectl(&["create", "token", "e2e-watcher"]).await?.ok()?;
    let header = format!("Authorization: Bearer {}", token.trim());
    // The verdict on the token is remembered for a minute: while etcd stands still it cannot be asked for.
    for (_, url) in &asked {
        eventually("metrics", SOON, || leads(url, &header)).await?;
    }
    let mut all = Vec::new();
    let stopping = Instant::now();
    hack_cluster(&["signal", "STOP", "etcd"]).await?.ok()?;
    let stopped = Instant::now();
    let mut outage = None;
    while stopped.elapsed() < pause + Duration::from_secs(15) {
        for (replica, url) in &asked {
            let asked = stopped.elapsed();
            let leads = leads(url, &header).await.ok();
            all.push(Look { replica: replica.clone(), asked, answered: stopped.elapsed(), leads });
        }
        if outage.is_none() && stopped.elapsed() >= pause {
            let least = stopped.elapsed();
            hack_cluster(&["signal", "CONT", "etcd"]).await?.ok()?;
            outage = Some(Outage { least, most: stopping.elapsed() });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    kubectl(&["delete", "clusterrolebinding", "e2e-watcher"]).await?.ok()?;
    kubectl(&["delete", "serviceaccount", "e2e-watcher"]).await?.ok()?;
    Ok(Looks { all, outage: outage.context("etcd never went on")? })
}

/// Whether the replica there says that it leads.
async fn leads(url: &str, header: &str) -> Result<bool> {
    let answer = run("curl", &["-sk", "--max-time", "1", "-H", header, url], "").await?.stdout;
    let line = answer.lines().find(|line| line.starts_with("isthmus_leader ")).context("no answer")?;
    Ok(line.ends_with(" 1"))
}

impl Looks {
    /// Looks that were answered while etcd stood still.
    pub(super) fn answered(&self) -> usize {
        self.all.iter().filter(|look| look.leads.is_some() && look.answered <= self.outage.least).count()
    }

    /// Looks that found a leader.
    pub(super) fn leading(&self) -> usize {
        self.all.iter().filter(|look| look.leads == Some(true)).count()
    }

    /// Those that found a leader though etcd had stood still for so long, and still did.
    pub(super) fn leading_after(&self, deadline: Duration) -> Vec<&Look> {
        self.late(deadline).filter(|look| look.leads == Some(true)).collect()
    }

    /// Those that were answered then, whatever the answer.
    pub(super) fn answered_after(&self, deadline: Duration) -> usize {
        self.late(deadline).filter(|look| look.leads.is_some()).count()
    }

    fn late(&self, deadline: Duration) -> impl Iterator<Item = &Look> {
        self.all.iter().filter(move |look| look.asked >= deadline && look.answered <= self.outage.least)
    }

    /// Whether one led before and after a moment at which another did.
    pub(super) fn two_at_once(&self) -> bool {
        let leading = self.all.iter().filter(|look| look.leads == Some(true));
        let order: Vec<&str> = leading.map(|look| look.replica.as_str()).collect();
        order.windows(3).any(|three| three[0] == three[2] && three[0] != three[1])
    }
}

/// One look a second; in capitals: it leads, `-`: no answer. Etcd stands still for `pause` seconds.
#[cfg(test)]
fn seen(order: &str, pause: u64) -> Looks {
    let pause = Duration::from_secs(pause);
    let look = |(second, c): (u64, char)| Look {
        replica: c.to_ascii_lowercase().to_string(),
        asked: Duration::from_secs(second),
        answered: Duration::from_secs(second),
        leads: (c != '-').then_some(c.is_uppercase()),
    };
    Looks { all: (0..).zip(order.chars()).map(look).collect(), outage: Outage { least: pause, most: pause } }
}

#[test]
fn a_leader_between_two_looks_at_another_is_found_out() {
    assert!(!seen("AbAbabaBaBaB", 12).two_at_once());
    assert!(seen("AbABAb", 6).two_at_once());
    assert!(seen("aBABab", 6).two_at_once());
}

#[test]
fn a_leader_past_its_deadline_is_found_out_and_silence_is_no_answer() {
    let steps_down = seen("AbAb-b-bAbAb", 7);
    let deadline = Duration::from_secs(4);
    assert!(steps_down.leading_after(deadline).is_empty());
    assert_eq!((steps_down.answered(), steps_down.answered_after(deadline)), (6, 2));
    assert_eq!(seen("AbAbAb-b", 7).leading_after(deadline).len(), 1);
}
