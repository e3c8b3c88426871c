//! Rights and tokens that are taken back in the cloud, by the API server's own authorizer and authenticator: who lost them is told nothing more within the time that
//! the documentation says, and who shares a stream with them misses nothing, not even where that stream went by their credential.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::cleanup::Cleanup;
use e2e::hub::{HubNode, SECURE, token};
use e2e::{client, eventually, fresh_namespace, kubectl, kubectl_apply};
use serde_json::Value;
use tokio::process::Child;
use tokio::sync::watch;

const NAMESPACE: &str = "e2e-hub-revoked";
const NODE: &str = "e2e-revoked-1";

/// How long the hub believes that somebody may read. Open watches are reviewed as often.
const BELIEVED: Duration = Duration::from_secs(5);

/// How long the API server itself goes on taking a token that it took before, whatever became of its owner.
const TAKEN: Duration = Duration::from_secs(10);

/// A busy machine takes some time to ask.
const SLACK: Duration = Duration::from_secs(5);

const OBJECTS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: permits.revoked.isthmus.dev}
spec:
  group: revoked.isthmus.dev
  scope: Namespaced
  names: {plural: permits, singular: permit, kind: Permit, listKind: PermitList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-revoked}
rules:
- {apiGroups: [revoked.isthmus.dev], resources: [permits], verbs: [get, list, watch]}
";

/// A watch by one token, and what it has told: the numbers of the object, in their order, and whether it has ended.
struct Watching {
    told: watch::Receiver<(Vec<u64>, bool)>,
    _curl: Child,
}

impl Watching {
    /// Opens it through the hub, and waits until it tells something.
    async fn open(node: &HubNode, token: &str) -> Result<Self> {
        let (curl, mut lines) = node.watch(SECURE, Some(token), &format!("{}&watch=1", path()))?;
        let (tell, mut told) = watch::channel((Vec::new(), false));
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                // What is no event of the object, such as an error, is a number that nobody writes.
                let number = event["object"]["spec"]["number"].as_u64().unwrap_or(u64::MAX);
                tell.send_modify(|(numbers, _)| numbers.push(number));
            }
            tell.send_modify(|(_, ended)| *ended = true);
        });
        let first = told.wait_for(|(numbers, ended)| !numbers.is_empty() || *ended);
        tokio::time::timeout(Duration::from_secs(20), first).await.context("a watch tells nothing")??;
        Ok(Self { told, _curl: curl })
    }

    /// When it ended, within that time.
    async fn ended(&self, within: Duration, who: &str) -> Result<Instant> {
        let mut told = self.told.clone();
        let ended = tokio::time::timeout(within, told.wait_for(|(_, ended)| *ended)).await;
        ended.with_context(|| format!("{who} is told on, {within:?} after the right was taken back"))??;
        Ok(Instant::now())
    }

    fn has_ended(&self) -> bool {
        self.told.borrow().1
    }

    /// It was told every number from its first one to `last`, each once, in their order, and nothing else.
    fn missed_nothing(&self, last: u64) -> Result<()> {
        let numbers = self.told.borrow().0.clone();
        let first = *numbers.first().context("nothing was told")?;
        ensure!(numbers == (first..=last).collect::<Vec<_>>(), "{first} to {last}: {numbers:?}");
        Ok(())
    }
}

fn path() -> String {
    format!("/apis/revoked.isthmus.dev/v1/namespaces/{NAMESPACE}/permits?resourceVersion=0")
}

async fn write(number: u64) -> Result<()> {
    let permit = format!(
        "{{apiVersion: revoked.isthmus.dev/v1, kind: Permit, metadata: {{name: one, namespace: {NAMESPACE}}}, spec: {{number: {number}}}}}"
    );
    kubectl_apply(&permit).await?.ok().map(drop)
}

/// Counts on for as long as it is asked to.
async fn write_on(number: &mut u64) -> Result<()> {
    loop {
        *number += 1;
        write(*number).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn who_lost_a_right_is_told_nothing_more_and_others_miss_nothing() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let mut cleanup = Cleanup::default();
    for (kind, name) in [("clusterrole", "e2e-revoked"), ("crd", "permits.revoked.isthmus.dev")] {
        cleanup.add("kubectl", &["delete", kind, name, "--ignore-not-found"]);
    }
    kubectl_apply(OBJECTS).await?.ok()?;
    kubectl(&["wait", "crd/permits.revoked.isthmus.dev", "--for=condition=Established", "--timeout=30s"])
        .await?
        .ok()?;
    let node = HubNode::with_options(NODE, &[&format!("--authorized-ttl={}s", BELIEVED.as_secs())]).await?;
    let token = async |account| token(NAMESPACE, account, "e2e-revoked").await;
    let (first, other, gone) = (token("first").await?, token("other").await?, token("gone").await?);
    write(0).await?;

    // The first one opens the stream, and it goes by that one's credential.
    let by_first = Watching::open(&node, &first).await?;
    let (by_other, by_gone) = (Watching::open(&node, &other).await?, Watching::open(&node, &gone).await?);
    shared(&node, 3).await?;
    let mut number = 0;
    for _ in 0..3 {
        number += 1;
        write(number).await?;
    }

    let binding = format!("{NAMESPACE}-first");
    kubectl(&["delete", "clusterrolebinding", &binding]).await?.ok()?;
    kubectl(&["-n", NAMESPACE, "delete", "serviceaccount", "gone"]).await?.ok()?;
    let began = Instant::now();
    let within = 2 * BELIEVED + SLACK;
    let ends = async {
        tokio::try_join!(by_first.ended(within, "the first"), by_gone.ended(within + TAKEN, "who is gone"))
    };
    let (first_ended, gone_ended) = tokio::select! {
        ended = ends => ended?,
        ended = write_on(&mut number) => bail!("it writes to the end of the test: {ended:?}"),
    };
    // Whether the last change was written is not known: it is none if it was.
    write(number).await?;
    println!(
        "a watch ended {:.1} s after its right was taken back, and one {:.1} s after its owner was deleted",
        (first_ended - began).as_secs_f64(),
        (gone_ended - began).as_secs_f64()
    );

    for (who, token, status) in [("the first", &first, 403), ("who is gone", &gone, 401)] {
        for path in [path(), path().replace("resourceVersion=0", "limit=500"), path() + "&watch=1"] {
            let reply = node.get(SECURE, Some(token), &path).await?;
            ensure!(reply.status == status, "{who} asks for {path}: {reply:?}");
        }
    }
    // The other one goes on, by the stream that it had.
    shared(&node, 1).await?;
    last_is_told(&by_other, &mut number).await?;
    println!("the other one missed none of {number} changes");

    // By its own credential: the API server takes no other one now, and the link is made anew.
    node.black_hole(true).await?;
    eventually("the hub notices the black hole", Duration::from_secs(10), || async {
        let reply = node.get(SECURE, Some(&other), &path()).await?;
        ensure!(reply.status == 200 && reply.is_stale(), "{reply:?}");
        Ok(())
    })
    .await?;
    for (who, token, status) in [("the first", &first, 503), ("who is gone", &gone, 401)] {
        let reply = node.get(SECURE, Some(token), &path()).await?;
        ensure!(reply.status == status, "{who} asks without a link: {reply:?}");
    }
    node.black_hole(false).await?;
    last_is_told(&by_other, &mut number).await?;
    shared(&node, 1).await?;
    drop(cleanup);
    node.leave().await
}

/// Changes the object once more; the watch tells of that, and has told of everything before.
async fn last_is_told(watching: &Watching, number: &mut u64) -> Result<()> {
    *number += 1;
    write(*number).await?;
    let last = *number;
    let mut told = watching.told.clone();
    let last_told = told.wait_for(|(numbers, ended)| numbers.last() == Some(&last) || *ended);
    tokio::time::timeout(Duration::from_secs(30), last_told).await.context("the last change")??;
    ensure!(!watching.has_ended(), "the other one's watch ended");
    watching.missed_nothing(last)
}

/// All readers are told by one stream of the users, which so many watch.
async fn shared(node: &HubNode, watchers: usize) -> Result<()> {
    eventually("one stream for all", Duration::from_secs(20), || async {
        let status = node.status().await?;
        let streams = status["subscriptions"].as_array().context("subscriptions")?.iter();
        let streams: Vec<_> =
            streams.filter(|stream| stream["resource"] == "permits.revoked.isthmus.dev").collect();
        let [stream] = streams[..] else { bail!("not one stream: {streams:?}") };
        ensure!(stream["owner"] == "users" && stream["watchers"] == watchers, "{stream}");
        ensure!(stream["state"] == "watching", "{stream}");
        Ok(())
    })
    .await
}
