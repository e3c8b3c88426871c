//! A replica that does not lead, beside a real leader: all that it answers is the leader's, and where it cannot reach the leader it says so. Of its copy
//! it answers nothing, be that ever so whole: neither an old list for a fresh one nor an empty one. Who leads, who is ready and the APIService
//! stay as they are meanwhile, and once there is a way again it follows again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::hub::token;
use e2e::{SYSTEM, eventually, replicas, run, throughout};
use futures::future::join_all;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use self::watch::Watch;
use super::callers::port;
use super::figures::Figures;
use super::ground::{Cut, Ground, Replica};
use super::observers::Observers;
use super::{NODE, SOON};

pub(super) mod watch;

const API: &str = "/apis/slo.koordinator.sh/v1beta1";

/// Whatever is asked for: what may be old, a page, the state before changes.
const READS: [&str; 7] = [
    "nodemetrics",
    "nodemetrics?resourceVersion=0",
    "nodemetrics?limit=1",
    "nodemetrics/cloud-1",
    "nodemetrics?watch=1&timeoutSeconds=5",
    "nodemetrics?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5",
    "nodeloads",
];

/// What a standby says that does not come to its leader.
const NOT_REACHED: [&str; 2] = ["the leader does not answer", "the leader has not answered in time"];

/// Within how long a standby that does not come to its leader says so, by its own limits, and what a busy machine adds.
const SAID: Duration = Duration::from_secs(18 + 10);

/// Within how long of what the leader tells it is told at a standby.
const TOLD: Duration = Duration::from_secs(2);

/// So many reports are looked at.
const REPORTS: usize = 5;

/// Until what was on its way has come, and shows in a replica's metrics, which are those of a second ago.
const COME: Duration = Duration::from_secs(3);

/// For how long a copy is looked at that must not move.
const STILL: Duration = Duration::from_secs(5);

/// A watch that was handed on ends with its connection, or after 75 seconds in which the leader was not heard.
const ENDS: Duration = Duration::from_secs(15);
const ENDS_IN_SILENCE: Duration = Duration::from_secs(75 + 15);

/// Within how long of there being a way it follows again.
const FOLLOWS: Duration = Duration::from_secs(15);

/// How often is asked through the API server, which takes either replica, until both have answered.
const ASKED: usize = 30;

#[tokio::test]
async fn a_standby_hands_reads_on_and_answers_nothing_of_its_own() -> Result<()> {
    let ground = Ground::new().await?;
    let observers = Observers::start(&ground).await?;
    let figures = Figures::new().await?;
    figures.standbys_are_warm(&ground).await?;
    let pair = Pair::find(ground, figures).await?;
    let restarts = replicas::restarts(&pair.ground.client).await?;
    pair.standby_says_what_the_leader_says().await.context("with a way to the leader")?;
    // In silence a watch takes more than a minute to end.
    let ways = if e2e::ground::long() { &[Cut::Refused, Cut::Silent][..] } else { &[Cut::Refused] };
    for &how in ways {
        pair.without_a_way(how).await.with_context(|| format!("without a way to the leader: {how:?}"))?;
        observers.check(&format!("{how:?}"))?;
    }
    pair.standby_says_what_the_leader_says().await.context("with a way again")?;
    observers.up_to_date(&pair.ground).await?;
    observers.check("at the end")?;
    observers.was_discovered(Duration::ZERO).await?;
    let unavailable = observers.unavailable();
    ensure!(unavailable.is_empty(), "the APIService was not available: {unavailable:?}");
    let after = replicas::restarts(&pair.ground.client).await?;
    ensure!(restarts == after, "restarted: {restarts:?}, now {after:?}");
    Ok(())
}

/// Who leads, who stands by, and one who may read at either.
struct Pair {
    ground: Ground,
    figures: Figures,
    leader: Replica,
    standby: Replica,
    holder: String,
    port: i32,
    header: String,
}

/// What somebody was answered.
#[derive(Debug)]
struct Answer {
    status: String,
    retry_after: String,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// A whole list: its version, and the node's.
    fn listed(&self, nodes: &BTreeSet<String>) -> Result<(u64, u64)> {
        ensure!(self.status == "200", "{self:?}");
        let list = self.json();
        let items = list["items"].as_array().context("no list")?;
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = items.iter().map(name).collect();
        ensure!(names == *nodes, "a list of {names:?}");
        let node = items.iter().find(|item| name(item) == NODE).context("no object of the node")?;
        Ok((watch::version(&list)?, watch::version(node)?))
    }

    /// Whether it says that the leader is not reached, and nothing else.
    fn refused(&self) -> Result<()> {
        let status = self.json();
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(self.status == "503" && self.retry_after == "1", "{self:?}");
        ensure!(status["kind"] == "Status" && status["reason"] == "ServiceUnavailable", "{self:?}");
        ensure!(NOT_REACHED.contains(&message) && status.get("items").is_none(), "{self:?}");
        Ok(())
    }
}

impl Pair {
    async fn find(ground: Ground, figures: Figures) -> Result<Self> {
        let (holder, leader) = (ground.holder().await?, ground.leader().await?);
        let mut others = ground.replicas().await?.into_iter().filter(|replica| replica.pod != leader.pod);
        let standby = others.next().context("no standby")?;
        let pods = replicas::replicas(&ground.client).await?;
        let port = port(pods.first().context("no pod")?)?;
        let header = format!("Authorization: Bearer {}", token(SYSTEM, "e2e-reader", "view").await?);
        Ok(Self { ground, figures, leader, standby, holder, port, header })
    }

    fn url(&self, replica: &Replica, path: &str) -> String {
        format!("https://{}:{}{path}", replica.address, self.port)
    }

    /// What a replica answers to one who comes straight.
    async fn ask(&self, replica: &Replica, path: &str) -> Result<Answer> {
        let (url, seconds) = (self.url(replica, path), SAID.as_secs().to_string());
        let last = "\n%{http_code} %header{retry-after}";
        let words = ["-sk", "-m", &seconds, "-H", &self.header, "-w", last, &url];
        let text = run("curl", &words, "").await?.stdout;
        let (text, last) = text.rsplit_once('\n').context("no last line")?;
        let (status, retry_after) = last.split_once(' ').context("no status")?;
        Ok(Answer { status: status.to_owned(), retry_after: retry_after.to_owned(), text: text.to_owned() })
    }

    async fn list(&self, replica: &Replica) -> Result<(u64, u64)> {
        self.ask(replica, &format!("{API}/nodemetrics")).await?.listed(&self.ground.nodes)
    }

    async fn watch(&self, replica: &Replica) -> Result<Watch> {
        let path =
            format!("{API}/nodemetrics?watch=1&fieldSelector=metadata.name%3D{NODE}&timeoutSeconds=600");
        Watch::begin(&self.header, &self.url(replica, &path)).await
    }

    /// Lists of both stand in one order, whoever is asked when; and what the leader told is in a list of the standby at once, and in its watch within two
    /// seconds.
    #[allow(clippy::print_stdout, reason = "how long it took is read beside the test's name")]
    async fn standby_says_what_the_leader_says(&self) -> Result<()> {
        let Self { leader, standby, .. } = self;
        let (at_leader, at_standby) = (self.watch(leader).await?, self.watch(standby).await?);
        let mut before = (0, 0);
        for (who, replica) in
            [("leader", leader), ("standby", standby), ("leader", leader), ("standby", standby)]
        {
            let now = self.list(replica).await?;
            ensure!(now.0 >= before.0 && now.1 >= before.1, "the {who} lists {now:?} after {before:?}");
            before = now;
        }
        let begin = at_leader.told().len();
        for number in 0..REPORTS {
            let (_, told) = eventually("the leader tells of a report", SOON, || async {
                at_leader.told().get(begin + number).copied().context("not yet")
            })
            .await?;
            let (list, node) = self.list(standby).await?;
            ensure!(list >= told && node >= told, "the standby lists {list}, {node} after {told} was told");
        }
        let reports: Vec<_> = at_leader.told().into_iter().skip(begin).take(REPORTS).collect();
        let mut longest = Duration::ZERO;
        for (at, version) in reports {
            let heard = eventually("the standby tells of it", SOON, || async {
                let told = at_standby.told();
                told.iter().find(|(_, told)| *told >= version).copied().context("not yet")
            });
            let (heard, _) = heard.await?;
            longest = longest.max(heard.saturating_duration_since(at));
        }
        println!("told at the standby {longest:?} after the leader at most");
        ensure!(longest <= TOLD, "told at the standby {longest:?} after the leader");
        Ok(())
    }

    /// The standby does not come to the leader for a while.
    #[allow(clippy::print_stdout, reason = "how long it took is read beside the test's name")]
    async fn without_a_way(&self, how: Cut) -> Result<()> {
        let Self { ground, figures, leader, standby, .. } = self;
        let watch = self.watch(standby).await?;
        let cut = standby.cut_off_from(leader, self.port, how).await?;
        let began = Instant::now();
        let paths: Vec<_> = READS.iter().map(|read| format!("{API}/{read}")).collect();
        let answers = join_all(paths.iter().map(|path| self.ask(standby, path))).await;
        println!("{how:?}: reads at the standby were answered after {:?}", began.elapsed());
        for (read, answer) in READS.iter().zip(answers) {
            answer?.refused().with_context(|| (*read).to_owned())?;
        }
        sleep(COME).await;
        self.stays_as_it_is().await?;
        // Its own answers are not of the leader.
        let discovery = self.ask(standby, API).await?;
        ensure!(discovery.status == "200" && discovery.json()["kind"] == "APIResourceList", "{discovery:?}");
        let ready = self.ask(standby, "/readyz?verbose").await?;
        ensure!(ready.status == "200" && ready.text.contains("follows, epoch "), "{ready:?}");
        self.through_the_api_server().await?;
        let within = if how == Cut::Silent { ENDS_IN_SILENCE } else { ENDS };
        watch.ends(within.saturating_sub(began.elapsed()).max(SOON)).await?;
        println!("{how:?}: a watch at the standby had ended after {:?}", began.elapsed());
        self.stays_as_it_is().await?;

        let (_, version) = figures.copy(&leader.address).await?;
        drop(cut);
        let lifted = Instant::now();
        eventually("the standby follows again", FOLLOWS, || async {
            let (copied, copy) = figures.copy(&standby.address).await?;
            ensure!(copied && copy >= version, "it knows of {copy}, not {version}");
            let (list, _) = self.list(standby).await?;
            ensure!(list >= version, "it lists {list}, not {version}");
            Ok(())
        })
        .await?;
        println!("{how:?}: it followed {:?} after there was a way again", lifted.elapsed());
        ground.whole().await
    }

    /// The copy stays what it was and counts as one, while the leader goes on; the same leads, and all are ready.
    async fn stays_as_it_is(&self) -> Result<()> {
        let Self { ground, figures, leader, standby, holder, .. } = self;
        let before = figures.copy(&standby.address).await?;
        ensure!(before.0, "it holds no copy any more");
        throughout("it follows nobody, and nothing else changes", STILL, || async {
            let now = figures.copy(&standby.address).await?;
            ensure!(now == before, "its copy is {now:?}, after {before:?}");
            let leads = ground.holder().await?;
            ensure!(leads == *holder, "{leads} leads after {holder}");
            for pod in replicas::replicas(&ground.client).await? {
                let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let ready = conditions.filter(|one| one.type_ == "Ready").all(|one| one.status == "True");
                ensure!(ready, "{} is not ready", pod.name_any());
            }
            Ok(())
        })
        .await?;
        let (_, version) = figures.copy(&leader.address).await?;
        ensure!(version > before.1, "the leader stands at {version}, too");
        Ok(())
    }

    /// A client of the API server is answered a whole list that is not older than the one before, or told why it is not.
    #[allow(clippy::print_stdout, reason = "what was answered is read beside the test's name")]
    async fn through_the_api_server(&self) -> Result<()> {
        let metrics = self.ground.impatient().await?;
        let (mut listed, mut refused, mut last) = (0, 0, 0_u64);
        for _ in 0..ASKED {
            let params = ListParams::default();
            match timeout(SAID, metrics.list(&params)).await.context("no answer by the API server")? {
                Ok(answer) => {
                    let names: BTreeSet<_> = answer.iter().map(ResourceExt::name_any).collect();
                    ensure!(names == self.ground.nodes, "a list of {names:?}");
                    let version = answer.metadata.resource_version.unwrap_or_default().parse()?;
                    ensure!(version >= last, "a list at {version} after one at {last}");
                    (listed, last) = (listed + 1, version);
                }
                Err(kube::Error::Api(status)) => {
                    let known = status.code == 503 && NOT_REACHED.contains(&&*status.message);
                    ensure!(known, "refused with {status:?}");
                    refused += 1;
                }
                Err(error) => return Err(error).context("by the API server"),
            }
            if listed > 0 && refused > 0 {
                println!("through the API server: {listed} lists, {refused} refusals");
                return Ok(());
            }
        }
        anyhow::bail!(
            "{listed} lists and {refused} refusals through the API server: it asks one replica alone"
        )
    }
}
