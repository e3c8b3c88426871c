//! The same without a link: what the API server said while it could be asked, and what the hub says to that in a cut. Objects that nobody writes
//! meanwhile are to be the same, in the same order and in every form, on all pages of a list together and in each watch; and errors are to be the same to
//! their details, which the hub has to word by itself then. Where it may refuse in words of its own stands in [`Case::refused_offline`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use e2e::eventually;
use e2e::hub::HubNode;
use futures::future::try_join_all;
use testkit::client::connection::Endpoint;
use testkit::differential::{self, Case, Landmarks, Said, Subject, Verb, is_same, pages};

use super::before::is_unknown;
use super::decoded::{is_good, token};
use super::whole::written;
use super::{AT_ONCE, Found, Pair, combined, corners, drawn};

/// How long rights, tokens and the cells of tables take to be stored.
const STORED: Duration = Duration::from_secs(4);

/// How soon a black hole is to be noticed: in 5 s (docs/adr/0017-idle-link.md), and what a busy machine takes to ask.
const NOTICED: Duration = Duration::from_secs(10);

/// How soon there is a link again after a cut, which the hub tries at most 30 s apart.
const LINKED: Duration = Duration::from_mins(1);

/// The most cuts: others write seldom, as when a node is not ready any more, or is again.
const CUTS: usize = 3;

/// The least share of the requests that the API server answers with objects, in percent; the hub has to answer all of these but for what it may refuse.
const GOOD: usize = 50;

/// The least share of the others that the API server refuses, in percent.
const REFUSED: usize = 50;

/// What is asked.
#[derive(Debug, Clone, Copy)]
enum What {
    /// What clients ask.
    Drawn,
    /// What is compared with a link besides, most of it errors.
    Others,
}

impl What {
    fn cases(self, seed: usize, typed: bool) -> Vec<Case> {
        match self {
            Self::Drawn => drawn(seed, typed),
            Self::Others => {
                let mut cases = corners();
                cases.extend(combined(seed));
                // A version that never comes is waited for, and without a link nobody knows that it does not.
                cases.retain(|case| !case.waits());
                cases
            }
        }
    }

    /// Fails if that says nothing: of so many requests the API server answered some with objects, and refused some.
    fn tells(self, resource: &str, asked: usize, good: usize, refused: usize) -> Result<()> {
        let (is_telling, what) = match self {
            Self::Drawn => (good * 100 >= asked * GOOD, "have objects"),
            Self::Others => (refused * 100 >= asked * REFUSED, "are errors"),
        };
        ensure!(is_telling, "{resource}, without a link: too few {what}");
        Ok(())
    }
}

/// What the API server said about one resource.
struct Told {
    what: What,
    subject: Subject,
    landmarks: Landmarks,
    said: Vec<(Case, Vec<Said>)>,
}

/// What the hub said to one request otherwise.
struct Other<'a> {
    case: &'a Case,
    real: &'a [Said],
    found: (String, String),
}

/// Whether what was said can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Whole,
    /// Others wrote too much meanwhile.
    Disturbed,
}

/// Writes objects anew, shows the hub all of them as `kubectl get` does, and asks the API server what the hub is to be asked.
async fn told(subject: &Subject, servers: [&Endpoint; 2], seed: usize, typed: bool) -> Result<Vec<Told>> {
    let [real, hub] = servers;
    let landmarks = written(subject, servers).await?;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let mut shown = hub.get(&subject.path(false), table).await?;
    shown.bytes().await?;
    ensure!(shown.status == 200, "{}, as a table: {}", subject.resource, shown.status);
    let mut told = Vec::new();
    for what in [What::Drawn, What::Others] {
        let said = asked(what.cases(seed, typed), async |case| {
            differential::told(real, case, subject, &landmarks, token).await
        })
        .await?;
        told.push(Told { what, subject: subject.clone(), landmarks: landmarks.clone(), said });
    }
    Ok(told)
}

/// Everything that a server says to each.
async fn asked(
    mut cases: Vec<Case>,
    ask: impl AsyncFn(&Case) -> Result<Vec<Said>>,
) -> Result<Vec<(Case, Vec<Said>)>> {
    // What takes its time together, or each batch waits for one of them.
    cases.sort_by_key(|case| case.verb == Verb::Watch);
    let mut all = Vec::new();
    for some in cases.chunks(AT_ONCE) {
        all.extend(some.iter().cloned().zip(try_join_all(some.iter().map(|case| ask(case))).await?));
    }
    Ok(all)
}

/// Asks the API server about each of these, cuts the node's link, asks the hub the same, and says what differs: each difference, one of a kind. About what
/// others wrote too much meanwhile both are asked anew.
pub(super) async fn compared(
    node: &HubNode,
    mut subjects: Vec<(Subject, bool)>,
    servers: [&Endpoint; 2],
    seed: usize,
) -> Result<Vec<String>> {
    let [real, hub] = servers;
    let mut report = Vec::new();
    for _ in 0..CUTS {
        let mut all = Vec::new();
        for (subject, typed) in &subjects {
            all.extend(told(subject, servers, seed, *typed).await?);
        }
        tokio::time::sleep(STORED).await;
        node.black_hole(true).await?;
        let said = in_the_cut(hub, &all).await;
        node.black_hole(false).await?;
        let mut disturbed = BTreeSet::new();
        for (told, said) in all.iter().zip(said?) {
            if told.compared(real, &said, &mut report).await? == Comparison::Disturbed {
                disturbed.insert(told.subject.resource.clone());
            }
        }
        subjects.retain(|(subject, _)| disturbed.contains(&subject.resource));
        if subjects.is_empty() {
            return Ok(report);
        }
        eventually("the hub has its link back", LINKED, || async {
            let (status, warning) = warned(hub).await?;
            ensure!(status == 200 && warning.is_empty(), "{status} {warning:?}");
            Ok(())
        })
        .await?;
    }
    let names: Vec<&str> = subjects.iter().map(|(subject, _)| &*subject.resource).collect();
    bail!("others write too much for a comparison, in {CUTS} cuts: {}", names.join(", "))
}

/// What status the hub answers with, and what warning stands beside it.
async fn warned(hub: &Endpoint) -> Result<(u16, String)> {
    let mut answer = hub.get("/api/v1/services?resourceVersion=0", "application/json").await?;
    answer.bytes().await?;
    let warning = answer.headers.get("warning").and_then(|warning| warning.to_str().ok());
    Ok((answer.status.as_u16(), warning.unwrap_or_default().to_owned()))
}

/// What the hub says, once it knows that there is no link.
async fn in_the_cut(hub: &Endpoint, told: &[Told]) -> Result<Vec<Vec<(Case, Vec<Said>)>>> {
    eventually("the hub notices the black hole", NOTICED, || async {
        let (status, warning) = warned(hub).await?;
        ensure!(warning.contains("no link"), "{status} {warning:?}");
        Ok(())
    })
    .await?;
    let mut all = Vec::new();
    for told in told {
        let cases = told.said.iter().map(|(case, _)| case.clone()).collect();
        let said = asked(cases, async |case| pages(hub, case, &told.subject, &told.landmarks, token).await);
        all.push(said.await?);
    }
    Ok(all)
}

impl Told {
    /// Adds what differs to the `report`. Of that the API server is asked again: that others wrote meanwhile says nothing of the hub.
    #[allow(clippy::print_stdout, reason = "how many were asked is what the run is read for")]
    async fn compared(
        &self,
        real: &Endpoint,
        hub: &[(Case, Vec<Said>)],
        report: &mut Vec<String>,
    ) -> Result<Comparison> {
        let Self { what, subject, landmarks, said } = self;
        let (mut good, mut errors, mut refused, mut of_others) = (0, 0, 0, 0);
        let mut differing = Vec::new();
        for ((case, real), (_, hub)) in said.iter().zip(hub) {
            for said in real.iter().take(1) {
                good += usize::from(is_good(case, said, landmarks)?);
                errors += usize::from(said.reply.status != 200);
            }
            match self.found(case, real, hub)? {
                Some(Found::Same | Found::BeforeTheHub) => {}
                // A watch that was told what others wrote cannot be asked for again.
                Some(Found::OfOthers) if case.verb == Verb::Watch => of_others += 1,
                Some(Found::OfOthers) => {
                    let (path, accept) = case.request(subject, landmarks);
                    let kind = "others' objects, which nobody wrote".to_owned();
                    differing.push(Other { case, real, found: (kind, format!("{path} ({accept})")) });
                }
                Some(Found::Difference(kind, example)) => {
                    differing.push(Other { case, real, found: (kind, example) });
                }
                None => refused += 1,
            }
        }
        let mut kinds = BTreeMap::<String, (usize, String)>::new();
        for Other { case, real: before, found: (kind, example) } in differing {
            let after = differential::told(real, case, subject, landmarks, token).await?;
            if case.verb != Verb::Watch && !is_same(before, &after) {
                of_others += 1;
            } else {
                kinds.entry(kind).or_insert((0, example)).0 += 1;
            }
        }
        let (resource, asked) = (&subject.resource, said.len());
        let differ: usize = kinds.values().map(|(count, _)| count).sum();
        println!(
            "{resource}, {what:?}, without a link: of {asked} requests the API server answered {good} with objects and refused {errors}; the hub refused \
             {refused} that it may refuse; {differ} differ, and {of_others} in what others wrote meanwhile"
        );
        what.tells(resource, asked, good, errors)?;
        for (kind, (count, example)) in kinds {
            report.extend([format!("{resource}, without a link: {count} x {kind}"), example]);
        }
        Ok(if of_others * 20 <= asked { Comparison::Whole } else { Comparison::Disturbed })
    }

    /// What the comparison of all pages comes to; nothing if the hub refuses what it may: also what was before it began, and the API server told still.
    fn found(&self, case: &Case, real: &[Said], hub: &[Said]) -> Result<Option<Found>> {
        let Self { subject, landmarks, .. } = self;
        if let ([first, ..], [only]) = (real, hub)
            && (case.refused_offline(subject, &first.reply) == Some(only.reply.status)
                || is_unknown(case, first, only, landmarks)?)
        {
            return Ok(None);
        }
        if real.len() != hub.len() {
            let statuses =
                |said: &[Said]| -> Vec<u16> { said.iter().map(|said| said.reply.status).collect() };
            let (path, accept) = case.request(subject, landmarks);
            let kind = format!("pages {:?} | {:?}", statuses(real), statuses(hub));
            return Ok(Some(Found::Difference(kind, format!("{path} ({accept})\n  {real:?}\n  {hub:?}"))));
        }
        let mut all = Found::Same;
        for (real, hub) in real.iter().zip(hub) {
            let pair = Pair { case: case.clone(), real: real.clone(), hub: hub.clone() };
            match pair.difference(subject, landmarks)? {
                Found::Same | Found::BeforeTheHub => {}
                Found::OfOthers => all = Found::OfOthers,
                difference @ Found::Difference(..) => return Ok(Some(difference)),
            }
        }
        Ok(Some(all))
    }
}
