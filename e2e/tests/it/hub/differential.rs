//! The hub and the API server, asked the same: every kind of list, watch and read of one object, and what differs in the answers. Both
//! are ways to one cluster, so that objects are the same to the last field; of versions of lists, and of ages, see [`Common::Cluster`].
//! Watches are compared twice: of what was written before, and of what is written while they are open. In the end the link is cut, and the hub is
//! asked what the API server was asked before.
//!
//! That both say the same shows something only where it is the hub that says it: of all that is drawn, it is to answer at least half by
//! itself, and with objects. It counts what it answers; which answers these are shows in a header, which the API server gives and
//! the hub does not.

mod answered;
mod before;
mod busy;
mod decoded;
mod indifferent;
mod offline;
mod part;
mod whole;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use e2e::cleanup::Cleanup;
use e2e::hub::{HubNode, token};
use e2e::{client, fresh_namespace, kubectl, kubectl_apply};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use testkit::client::connection::Endpoint;
use testkit::differential::{
    Case, Common, Difference, Landmarks, Live, Reply, Said, Subject, Verb, ask, live, populate, written,
};
use tokio::task::JoinSet;

use self::answered::Answered;
use self::decoded::{decoded, is_good};
use self::indifferent::indifferent;
use self::part::Part;

const NAMESPACE: &str = "e2e-hub-differential";

/// How many requests are drawn for each resource as clients make them; with `--long` so many times that.
const LISTS: usize = 120;
const WATCHES: usize = 60;
const GETS: usize = 60;
/// Of each verb in forms that few ask for.
const UNUSUAL: usize = 16;
const LONG: usize = 20;

/// The least share of the corners that the hub is to answer by itself, in percent: the others are errors, which are the API server's
/// to word, or of versions that the hub does not have. Who hands everything on has none.
const HELD: usize = 10;

/// The least share of what is drawn of a verb and has objects that the hub is to answer by itself and with objects, in percent.
const HELD_AND_GOOD: usize = 50;

/// How many are asked at once. Watches last a second or two each, whatever else is asked.
const AT_ONCE: usize = 80;

/// How often both are asked once more what they answered with different objects of others.
const TIMES_WRITTEN: usize = 4;

/// Custom resources, in namespaces and without.
const DEFINITIONS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.isthmus.dev}
spec:
  group: test.isthmus.dev
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
$VERSION
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: places.test.isthmus.dev}
spec:
  group: test.isthmus.dev
  scope: Cluster
  names: {plural: places, singular: place, kind: Place, listKind: PlaceList}
  versions:
  - name: v1
    served: true
    storage: true
$VERSION
    additionalPrinterColumns:
    - {name: Number, type: integer, jsonPath: .spec.n}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
";

/// What both say of their version: a number by which they are selected.
const VERSION: &str = "    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {'n': {type: integer}}}
    selectableFields: [{jsonPath: .spec.n}]";

/// Where they are.
const CUSTOM: &str = "/apis/test.isthmus.dev/v1";

const DEFINED: [&str; 2] = ["crd/widgets.test.isthmus.dev", "crd/places.test.isthmus.dev"];

/// `ISTHMUS_PRODUCT` and `ISTHMUS_PRODUCT_FROM` choose a part of the whole product that is walked by itself: see [`whole`].
#[tokio::test]
async fn reads_are_answered_as_by_the_api_server() -> Result<()> {
    let part = Part::chosen()?;
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let node = Arc::new(HubNode::fresh("e2e-differential-1", &[]).await?);
    token(NAMESPACE, "admin", "cluster-admin").await?;
    // The whole product takes longer than that one lasts.
    let lasting = ["-n", NAMESPACE, "create", "token", "admin", "--duration=24h"];
    let admin = kubectl(&lasting).await?.ok()?.trim().to_owned();
    // Left over from a run that was killed; objects cannot be made in a namespace that is on its way out.
    kubectl(&["delete", "namespace", "dt-a", "dt-a-b", "--ignore-not-found"]).await?.ok()?;
    let mut made = Cleanup::kubectl(&[&["delete", "--ignore-not-found"][..], &DEFINED].concat());
    made.add("kubectl", &["delete", "namespace", "dt-a", "dt-a-b", "--ignore-not-found"]);
    kubectl_apply(&DEFINITIONS.replace("$VERSION", VERSION)).await?.ok()?;
    let established = ["wait", "--for=condition=Established", "--timeout=30s"];
    kubectl(&[&established[..], &DEFINED].concat()).await?.ok()?;
    let seed = usize::try_from(e2e::seed::seed()?)?;

    let network = File::open(&node.network)?;
    let asked = node.clone();
    // A thread of its own goes into the node's network, where the hub's port is, and stays there to its end.
    let asking = std::thread::spawn(move || -> Result<String> {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(compared(&asked, &admin, seed, part))
    });
    let report = tokio::task::spawn_blocking(|| asking.join()).await?.map_err(|_| anyhow!("a panic"))??;
    ensure!(report.is_empty(), "the hub differs from the API server:\n{report}");
    drop(made);
    Arc::into_inner(node).context("the thread has ended")?.leave().await
}

fn endpoint(authority: &Path, address: &str, token: &str) -> Result<Endpoint> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority)? {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let address: SocketAddr = address.parse()?;
    Ok(Endpoint::tls(address, config, ServerName::IpAddress(address.ip().into())).with_token(token))
}

/// Each difference, one of a kind, or nothing.
// How many were asked is what the run is read for.
#[allow(clippy::print_stdout)]
async fn compared(node: &HubNode, token: &str, seed: usize, part: Option<Part>) -> Result<String> {
    let server = node.api_server.strip_prefix("https://").context("https")?;
    let [real, hub] = [server, "127.0.0.1:10268"].map(|at| endpoint(&node.authority, at, token));
    let (real, hub) = (real?, hub?);
    if let Some(part) = part {
        return Ok(whole::alone(part, [&real, &hub], seed).await?.join("\n"));
    }
    let mut report = Vec::new();
    for (subject, typed) in subjects() {
        let resource = &*subject.resource;
        // From here on the hub watches it, and so has the history that is asked for.
        read(&hub, &subject.path(false)).await?;
        let landmarks = populate(&real, &subject).await?;
        read(&hub, &format!("{}?resourceVersion={}", subject.path(false), landmarks.current)).await?;
        let mut kinds = BTreeMap::<String, (usize, String)>::new();
        let (mut asked, mut of_others, mut before_the_hub) = (0, 0, 0);
        for what in ["corners", "pairs", "drawn", "written meanwhile"] {
            let before = Answered::read().await?;
            let pairs = match what {
                "corners" => pairs(corners(), &subject, [&real, &hub], &landmarks).await?,
                "pairs" => pairs(combined(seed), &subject, [&real, &hub], &landmarks).await?,
                "drawn" => pairs(drawn(seed, typed), &subject, [&real, &hub], &landmarks).await?,
                // The API server is written to; what it deletes is nobody's to ask for afterwards.
                _ => live(&subject, &landmarks, [&real, &hub], &real, typed)
                    .await?
                    .into_iter()
                    .map(Pair::of)
                    .collect(),
            };
            let after = Answered::read().await?;
            asked += pairs.len();
            for verb in [Verb::List, Verb::Watch, Verb::Get] {
                let of: Vec<&Pair> = pairs.iter().filter(|pair| pair.case.verb == verb).collect();
                if of.is_empty() {
                    continue;
                }
                let [held, all] = after.since(&before, &format!("{verb:?}"));
                let by_header = of.iter().filter(|pair| pair.is_held()).count();
                let mut good = 0;
                for pair in of.iter().filter(|pair| pair.is_held()) {
                    good += usize::from(is_good(&pair.case, &pair.hub, &landmarks)?);
                }
                let mut possible = 0;
                for pair in of.iter().filter(|pair| pair.real.reply.is_good()) {
                    possible += usize::from(!pair.is_before_the_hub(&subject, &landmarks)?);
                }
                println!(
                    "{resource}, {what}: of {all} requests of verb {verb:?}, {possible} of them with objects, the hub answered {held} by itself, {good} of \
                     them with objects"
                );
                // The kubelet asks as well, now and then.
                ensure!(
                    held >= by_header as u64 && all >= of.len() as u64,
                    "the hub counts {held} of {all} of verb {verb:?}; by their headers it is {by_header} of {}",
                    of.len()
                );
                let enough = match what {
                    "corners" => by_header * 100 >= of.len() * HELD,
                    // Most of them are errors.
                    "pairs" => true,
                    _ => good * 100 >= possible * HELD_AND_GOOD,
                };
                // Whatever else differs is to be seen as well.
                if !enough {
                    report.push(format!(
                        "{resource}, {what}: too few of verb {verb:?} are answered by the hub itself"
                    ));
                }
            }
            for pair in &pairs {
                // What is written meanwhile cannot be asked again.
                let found = match what {
                    "written meanwhile" => pair.difference(&subject, &landmarks)?,
                    _ => pair.settled(&subject, [&real, &hub], &landmarks).await?,
                };
                match found {
                    Found::Same => {}
                    Found::OfOthers => of_others += 1,
                    Found::BeforeTheHub => before_the_hub += 1,
                    Found::Difference(kind, example) => kinds.entry(kind).or_insert((0, example)).0 += 1,
                }
            }
        }
        let differing: usize = kinds.values().map(|(count, _)| count).sum();
        println!(
            "{resource}: {asked} requests, {differing} differ, {before_the_hub} ask for what was before the hub began, and {of_others} differ in what \
             others wrote meanwhile"
        );
        ensure!(of_others * 20 <= asked, "{resource}: others write too much for a comparison");
        for (kind, (count, example)) in kinds {
            report.extend([format!("{resource}: {count} x {kind}"), example]);
        }
        if whole::WALKED.contains(&resource) {
            // Of the API server alone, and so the same each time.
            if e2e::ground::long() {
                report.extend(indifferent(&real, &subject, seed, typed).await?);
            }
            report.extend(whole::walk(&subject, [&real, &hub], seed).await?);
        }
    }
    report.extend(offline::compared(node, subjects().collect(), [&real, &hub], seed).await?);
    Ok(report.join("\n"))
}

/// What is asked about: where it is, and what an object of it is made of; and whether there is protobuf of whole objects.
fn subjects() -> impl Iterator<Item = (Subject, bool)> {
    let custom = |kind: &str| json!({"apiVersion": "test.isthmus.dev/v1", "kind": kind, "spec": {"n": 1}});
    let subjects = [
        ("/api/v1", "services", json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}})),
        ("/api/v1", "limitranges", json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}})),
        (
            "/apis/discovery.k8s.io/v1",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": [], "ports": []}),
        ),
        // Built in and without namespaces, and nobody else writes them.
        ("/apis/storage.k8s.io/v1", "storageclasses", json!({"provisioner": "isthmus.dev/none"})),
        (CUSTOM, "widgets", custom("Widget")),
        (CUSTOM, "places", custom("Place")),
        // Last, when the namespaces have their ServiceAccounts. Nobody schedules them, so that nobody but the test writes them.
        (
            "/api/v1",
            "pods",
            json!({"spec": {
                "schedulerName": "nobody", "automountServiceAccountToken": false,
                // As the limitranges want it, which are there still.
                "containers": [{"name": "c", "image": "isthmus.dev/busybox:1", "resources": {"limits": {"cpu": "1"}}}],
            }}),
        ),
    ];
    subjects.into_iter().map(|(root, resource, template)| {
        let namespaced = !["places", "storageclasses"].contains(&resource);
        let subject = Subject { root: root.to_owned(), resource: resource.to_owned(), namespaced, template };
        (subject, root != CUSTOM)
    })
}

/// What a reader thinks of first.
fn corners() -> Vec<Case> {
    let mut cases = Case::corners(true, &["resourceVersion", "resourceVersionMatch", "sendInitialEvents"]);
    cases.extend(Case::corners(false, &["resourceVersion", "resourceVersionMatch", "limit"]));
    cases
}

/// `typed`: whether there is protobuf of whole objects.
fn drawn(seed: usize, typed: bool) -> Vec<Case> {
    let times = if e2e::ground::long() { LONG } else { 1 };
    let plausible = |verb, count| Case::plausible(verb, count * times, seed as u64, typed);
    let mut cases = plausible(Verb::List, LISTS);
    cases.extend(plausible(Verb::Watch, WATCHES));
    cases.extend(plausible(Verb::Get, GETS));
    for verb in [Verb::List, Verb::Watch, Verb::Get] {
        cases.extend(Case::unusual(verb, UNUSUAL * times, seed as u64, typed));
    }
    cases
}

/// Of the whole product of parameters: each value of each with each of every other.
fn combined(seed: usize) -> Vec<Case> {
    let mut cases = Case::pairs(false, seed as u64);
    cases.extend(Case::pairs(true, seed as u64));
    cases
}

/// What both said to the same request.
struct Pair {
    case: Case,
    real: Said,
    hub: Said,
}

/// Asks both.
async fn pairs(
    mut cases: Vec<Case>,
    subject: &Subject,
    [real, hub]: [&Endpoint; 2],
    landmarks: &Landmarks,
) -> Result<Vec<Pair>> {
    // What takes its time together, or each batch waits for one of them.
    cases.sort_by_key(|case| (case.waits(), case.verb == Verb::Watch));
    let (mut pairs, mut stalled) = (Vec::new(), 0);
    for some in cases.chunks(AT_ONCE) {
        let mut tasks = JoinSet::new();
        for case in some.iter().cloned() {
            let (real, hub, subject) = (real.clone(), hub.clone(), subject.clone());
            let landmarks = landmarks.clone();
            tasks.spawn(async move { Pair::asked(case, &subject, [&real, &hub], &landmarks).await });
        }
        let mut batch = Vec::new();
        for pair in tasks.join_all().await {
            batch.push(pair?);
        }
        stalled += usize::from(busy::asked_again(&mut batch, subject, [real, hub], landmarks).await?);
        pairs.extend(batch);
    }
    ensure!(
        stalled <= busy::STALLS,
        "{}: in {stalled} batches the hub alone had too much to do",
        subject.resource
    );
    Ok(pairs)
}

impl Pair {
    /// Asks both at once.
    async fn asked(
        case: Case,
        subject: &Subject,
        [real, hub]: [&Endpoint; 2],
        landmarks: &Landmarks,
    ) -> Result<Self> {
        let (real, hub) = tokio::try_join!(
            ask(real, &case, subject, landmarks, Common::Cluster),
            ask(hub, &case, subject, landmarks, Common::Cluster)
        )?;
        Ok(Self { case, real, hub })
    }

    fn of(live: Live) -> Self {
        let [real, hub] = live.said;
        Self { case: live.case, real, hub }
    }

    /// Whether the hub answered by itself: each answer of the API server has this header.
    fn is_held(&self) -> bool {
        self.hub.reply.status == 200 && !self.hub.headers.contains_key("audit-id")
    }

    /// The same, where both are asked again as long as they differ in objects that others write: nobody writes all the time.
    async fn settled(
        &self,
        subject: &Subject,
        servers: [&Endpoint; 2],
        landmarks: &Landmarks,
    ) -> Result<Found> {
        let case = &self.case;
        let mut found = self.difference(subject, landmarks)?;
        for _ in 0..TIMES_WRITTEN {
            if !matches!(found, Found::OfOthers) {
                return Ok(found);
            }
            found = Self::asked(case.clone(), subject, servers, landmarks)
                .await?
                .difference(subject, landmarks)?;
        }
        Ok(found.lasting(case, subject, landmarks))
    }

    /// What kind of difference there is, and the case.
    fn difference(&self, subject: &Subject, landmarks: &Landmarks) -> Result<Found> {
        let Self { case, real, hub } = self;
        if self.is_before_the_hub(subject, landmarks)? {
            return Ok(Found::BeforeTheHub);
        }
        if real.reply != hub.reply {
            if own(&real.reply) == own(&hub.reply) {
                return Ok(Found::OfOthers);
            }
            let said = |reply: &Reply| {
                let message =
                    reply.values.first().map_or(String::new(), |value| value["message"].to_string());
                format!("{} {message}", reply.status)
            };
            let kind = format!("{} | {}", said(&real.reply), said(&hub.reply));
            let (left, right) = (real.reply.clone(), hub.reply.clone());
            let difference = Difference::of(case, subject, landmarks, left, right);
            return Ok(Found::Difference(kind, difference.to_string()));
        }
        let (left, right) = (decoded(case, real, landmarks)?, decoded(case, hub, landmarks)?);
        if left == right {
            return Ok(Found::Same);
        }
        let [left_own, right_own] = [&left, &right]
            .map(|parts| parts.iter().flatten().filter(|part| part.is_written()).collect::<Vec<_>>());
        if left_own == right_own {
            return Ok(Found::OfOthers);
        }
        let (path, accept) = case.request(subject, landmarks);
        Ok(Found::Difference("protobuf".to_owned(), format!("{path} ({accept})\n  {left:?}\n  {right:?}")))
    }
}

/// What the comparison of two answers comes to.
enum Found {
    /// They are the same.
    Same,
    /// They differ in objects that others wrote between one answer and the other.
    OfOthers,
    /// The API server tells what was before the hub began, and the hub says that this is gone.
    BeforeTheHub,
    /// Its kind, and the case in full.
    Difference(String, String),
}

impl Found {
    /// A difference in objects of others that was there each time is one as any.
    fn lasting(self, case: &Case, subject: &Subject, landmarks: &Landmarks) -> Self {
        if !matches!(self, Self::OfOthers) {
            return self;
        }
        let (path, accept) = case.request(subject, landmarks);
        Self::Difference(
            format!("objects of others, {} times", TIMES_WRITTEN + 1),
            format!("{path} ({accept})"),
        )
    }
}

/// A reply without the objects of others.
fn own(reply: &Reply) -> Reply {
    Reply { values: reply.values.iter().filter_map(written).collect(), ..reply.clone() }
}

async fn read(endpoint: &Endpoint, path: &str) -> Result<()> {
    let mut answer = endpoint.get(path, "application/json").await?;
    let body = answer.bytes().await?;
    ensure!(answer.status.is_success(), "{path}: {} {}", answer.status, String::from_utf8_lossy(&body));
    Ok(())
}
