//! The crate `aggregated-api` and the API server, asked the same about a resource of one schema: from memory there, a custom resource here. What is answered
//! must be the same but for identities, times and versions, and for what is explained in [`explained`].

mod answers;
mod documents;
mod explained;
mod generate;
mod node_metric;
mod servers;
mod words;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::long;
use e2e::seed::seed;
use e2e::{client, fresh_namespace, kubectl, kubectl_apply};
use futures::future::try_join;
use serde_json::Value;
use testkit::client::connection::Endpoint;
use testkit::differential::{Case, Common, Subject, compare, populate};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::answers::{Kind, Question, Reply, differences};
use self::documents::About;
use self::servers::{Ours, real};
use self::words::Words;

/// Where the objects are that requests are about.
const NAMESPACE: &str = "e2e-aggregated-api";

const DEFINITION: &str = include_str!("aggregated_api/gadgets.yaml");
const REQUESTS: &str = include_str!("aggregated_api/requests.yaml");

/// How many lists and watches are drawn of all combinations, and how many writes are made up: with `--long`, of each seed, and without.
const LISTS: usize = 200;
const WATCHES: usize = 80;
const LONG_WRITES: usize = 400;
const WRITES: usize = 200;

/// How many seeds are gone through, one after the other.
const SEEDS: usize = 1;
const LONG_SEEDS: usize = 20;

/// How long both may take to answer: a server that stands still is to be told.
const PATIENCE: Duration = Duration::from_mins(1);

/// How many requests about the same object are told before one that is answered otherwise.
const BEFORE: usize = 6;

/// The kind under test, while this lives.
async fn gadgets() -> Result<Cleanup> {
    let client = client().await?;
    let mut made = Cleanup::kubectl(&[
        "delete",
        "crd",
        "gadgets.test.isthmus.dev",
        "--ignore-not-found",
        "--timeout=1m",
    ]);
    // A test that ended half-way may leave an object with a finalizer, and is to say so, and not to stand still.
    let words = ["delete", "namespace", NAMESPACE, "dt-a", "dt-a-b", "--ignore-not-found", "--timeout=1m"];
    made.add("kubectl", &words);
    kubectl(&["delete", "namespace", "dt-a", "dt-a-b", "--ignore-not-found", "--timeout=1m"]).await?.ok()?;
    fresh_namespace(&client, NAMESPACE).await?;
    kubectl_apply(DEFINITION).await?.ok()?;
    let established =
        ["wait", "crd/gadgets.test.isthmus.dev", "--for=condition=Established", "--timeout=30s"];
    kubectl(&established).await?.ok()?;
    Ok(made)
}

#[tokio::test]
async fn requests_are_answered_as_by_the_api_server() -> Result<()> {
    let made = gadgets().await?;
    let real = real(NAMESPACE).await?;
    let ours = Ours::start(DEFINITION).await?;
    let kind = Kind {
        collection: format!("/apis/test.isthmus.dev/v1/namespaces/{NAMESPACE}/gadgets"),
        type_meta: r#""apiVersion":"test.isthmus.dev/v1","kind":"Gadget""#,
        strip: |_| {},
    };
    let mut comparison = Comparison::of(&real, &ours.endpoint, &kind);
    let written: Vec<Question> = serde_saphyr::from_str(REQUESTS)?;
    for question in &written {
        comparison.ask(question).await?;
    }
    comparison.made_up(&words::GADGETS).await?;
    comparison.end()?;
    drop(made);
    Ok(())
}

#[tokio::test]
async fn documents_are_those_of_the_api_server() -> Result<()> {
    let made = gadgets().await?;
    let real = real(NAMESPACE).await?;
    let ours = Ours::start(DEFINITION).await?;
    let gadgets = About { group: "test.isthmus.dev", version: "v1", kind: "Gadget" };
    gadgets.discovery((&real, &ours.endpoint)).await?;
    gadgets.openapi_v3((&real, &ours.endpoint)).await?;
    gadgets.openapi_v2((&real, &ours.endpoint)).await?;
    drop(made);
    Ok(())
}

/// Both servers, and what was found.
struct Comparison<'a> {
    real: &'a Endpoint,
    ours: &'a Endpoint,
    kind: &'a Kind,
    explained: usize,
    report: Vec<String>,
    /// What was asked, with the API server's status.
    asked: Vec<String>,
}

impl<'a> Comparison<'a> {
    fn of(real: &'a Endpoint, ours: &'a Endpoint, kind: &'a Kind) -> Self {
        Self { real, ours, kind, explained: 0, report: Vec::new(), asked: Vec::new() }
    }

    /// What the API server and ours answer, in that order.
    async fn both(&self, question: &Question) -> Result<(Reply, Reply)> {
        let answers = try_join(question.ask(self.real, self.kind), question.ask(self.ours, self.kind));
        timeout(PATIENCE, answers)
            .await
            .with_context(|| format!("no answer within {PATIENCE:?}: {question}"))?
    }

    async fn ask(&mut self, question: &Question) -> Result<()> {
        let (theirs, own) = self.both(question).await?;
        let found = differences(&theirs, &own);
        if found.is_empty() {
        } else if explained::reason(question, &theirs, &own).is_some() {
            self.explained += 1;
        } else {
            let about = |other: &&String| question.name().is_some_and(|name| other.contains(&name));
            let before: Vec<_> = self.asked.iter().rev().filter(about).take(BEFORE).cloned().collect();
            self.report.push(format!(
                "{question}\n    {}\n    before, the last first:\n    {}",
                found.join("\n    "),
                before.join("\n    ")
            ));
        }
        self.asked.push(format!("{} {question}", theirs.status));
        Ok(())
    }

    /// Requests made up from seeds, each seed's from no object on.
    async fn made_up(&mut self, words: &Words) -> Result<()> {
        let first = seed()?;
        let (seeds, writes) = if long() { (LONG_SEEDS, LONG_WRITES) } else { (SEEDS, WRITES) };
        for seed in (first..).take(seeds) {
            let from = self.report.len();
            self.empty().await?;
            for question in generate::questions(seed, writes, words) {
                self.ask(&question).await?;
                if self.report.len() > from {
                    // The objects are others from here on.
                    let last = self.report.pop().unwrap_or_default();
                    self.report.push(format!("ISTHMUS_SEED={seed}: {last}"));
                    break;
                }
            }
        }
        self.empty().await
    }

    /// Takes away what requests have left on both servers: an object with a finalizer keeps its namespace for ever.
    async fn empty(&self) -> Result<()> {
        for question in generate::clean() {
            self.both(&question).await?;
        }
        Ok(())
    }

    // How many were asked is what the run is read for.
    #[allow(clippy::print_stdout)]
    fn end(self) -> Result<()> {
        let Self { explained, report, asked, .. } = self;
        println!(
            "{} requests: {explained} differ as explained, {} without reason",
            asked.len(),
            report.len()
        );
        ensure!(report.is_empty(), "not as the API server:\n{}", report.join("\n"));
        Ok(())
    }
}

#[tokio::test]
// How many were asked is what the run is read for.
#[allow(clippy::print_stdout)]
async fn lists_and_watches_are_answered_as_by_the_api_server() -> Result<()> {
    let made = gadgets().await?;
    let seed = usize::try_from(seed()?)?;
    let real = real(NAMESPACE).await?;
    let server = Ours::start(DEFINITION).await?;
    let ours = server.endpoint.clone();
    let template: Value = serde_json::json!({
        "apiVersion": "test.isthmus.dev/v1", "kind": "Gadget", "spec": { "color": "red" },
    });
    let subject = Subject {
        root: "/apis/test.isthmus.dev/v1".to_owned(),
        resource: "gadgets".to_owned(),
        namespaced: true,
        template,
    };
    let (theirs, own) = (populate(&real, &subject).await?, populate(&ours, &subject).await?);
    let free = ["resourceVersion", "resourceVersionMatch", "sendInitialEvents"];
    let mut cases = Case::corners(true, &free);
    cases.extend(Case::corners(false, &["resourceVersion", "resourceVersionMatch", "limit", "$accept"]));
    cases.extend(Case::sample(false, LISTS, seed).chain(Case::sample(true, WATCHES, seed)));
    // Together, or each batch waits for one of them.
    cases.sort_by_key(Case::waits);
    let mut report = Vec::new();
    let mut explained = 0;
    for some in cases.chunks(48) {
        let mut tasks = JoinSet::new();
        for case in some {
            let case = case.clone();
            let (real, ours, subject) = (real.clone(), ours.clone(), subject.clone());
            let (theirs, own) = (theirs.clone(), own.clone());
            tasks.spawn(async move {
                let found = compare(&case, &subject, (&real, &theirs), (&ours, &own), Common::Writes).await;
                (case, found)
            });
        }
        for (case, found) in tasks.join_all().await {
            match found? {
                None => {}
                Some(found) if explained::list(&case, &found).is_some() => explained += 1,
                Some(found) => report.push(found.to_string()),
            }
        }
    }
    println!(
        "{} lists and watches: {explained} differ as explained, {} without reason",
        cases.len(),
        report.len()
    );
    ensure!(report.is_empty(), "not as the API server:\n{}", report.join("\n"));
    drop(made);
    Ok(())
}
