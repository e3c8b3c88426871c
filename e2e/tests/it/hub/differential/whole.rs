//! The whole product of the parameters, walked: both are asked each combination at once over connections that are kept, and what they said is
//! compared and forgotten. Without `--long` a part of it that is spread over the whole.
//!
//! The versions that are asked for must be there: etcd is compacted every few minutes, and with it goes what was before. So the objects are
//! written anew again and again, and a combination is asked of versions that are minutes old at most.
//!
//! With `--long` that takes hours. `ISTHMUS_PRODUCT` names a part that is walked by itself, and nothing else of the comparison: a resource and `lists` or
//! `watches`, as in `ISTHMUS_PRODUCT="pods watches"`; `ISTHMUS_PRODUCT_FROM=N` leaves out its first N requests. Which come N-th the seed says
//! (`ISTHMUS_SEED`): a walk says as it goes with what it can be gone on from.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::eventually;
use testkit::client::connection::{ConnectionError, Endpoint};
use testkit::differential::{Case, Common, Landmarks, Product, Raw, Subject, Verb, populate};
use tokio::task::JoinSet;

use super::decoded::is_good;
use super::part::{self, Part};
use super::{Found, Pair, busy, read, subjects};

/// The resources whose product is walked: one that is built in, of which the API server knows most fields, and a custom one.
pub(super) const WALKED: [&str; 2] = ["pods", "widgets"];

/// How many are asked without `--long`.
const SOME_LISTS: usize = 600;
const SOME_WATCHES: usize = 300;

/// Most of the product are errors. Of fewer than this with objects it says nothing which of them the hub answered by itself.
const TELLING: usize = 100;

/// The least share of those with objects that the hub is to answer by itself and with objects, in percent. It is less than of what is drawn:
/// each version stands here as often as any other, and pages and objects as they were at an exact version are the API server's to tell.
const HELD_AND_GOOD: usize = 40;

/// How many are asked at once. Of lists so many that both ends have something to do; watches that begin at all last a second or two each.
const LISTS_AT_ONCE: usize = 64;
const WATCHES_AT_ONCE: usize = 200;

/// How long a new namespace may wait for its `ServiceAccount`, without which it takes no pods.
const TAKES_PODS: Duration = Duration::from_secs(30);

/// How long versions are asked for before there are others. What is older than five minutes is compacted.
const FRESH: Duration = Duration::from_mins(2);

/// Of so many requests the hub may have one sent once more that the API server answers.
const BUSY_ALONE: usize = 200;

/// What came of a walk, as far as it went.
struct Walk {
    title: String,
    /// With what in its environment the test walks this alone.
    chosen: String,
    began: Instant,
    whole: usize,
    /// How many come before the first that is asked, and how many of the whole are answered, none of those before left out.
    from: usize,
    done: usize,
    all: usize,
    asked: usize,
    /// How many the API server answered with objects, the hub by itself, and the hub by itself and with objects.
    good: usize,
    held: usize,
    held_and_good: usize,
    of_others: usize,
    before_the_hub: usize,
    busy: usize,
    busy_alone: usize,
    kinds: BTreeMap<String, (usize, String)>,
}

/// What came of one request.
struct Told {
    good: bool,
    held: bool,
    busy: usize,
    /// How often the hub alone had too much to do.
    busy_alone: usize,
    found: Found,
}

/// Walks the product of lists, and of watches, of a resource: each difference, one of a kind.
pub(super) async fn walk(subject: &Subject, servers: [&Endpoint; 2], seed: usize) -> Result<Vec<String>> {
    let mut report = walk_from(subject, Verb::List, 0, servers, seed).await?;
    report.extend(walk_from(subject, Verb::Watch, 0, servers, seed).await?);
    Ok(report)
}

/// Walks the part that is chosen, where nothing else was asked or written before.
pub(super) async fn alone(part: Part, servers: [&Endpoint; 2], seed: usize) -> Result<Vec<String>> {
    let mut subjects = subjects().map(|(subject, _)| subject);
    let subject = subjects.find(|subject| subject.resource == part.resource).context("no such subject")?;
    eventually("the objects can be made", TAKES_PODS, || populate(servers[0], &subject)).await?;
    walk_from(&subject, part.verb, part.from, servers, seed).await
}

/// Walks the product of a verb, but for so many that come first.
async fn walk_from(
    subject: &Subject,
    verb: Verb,
    from: usize,
    servers: [&Endpoint; 2],
    seed: usize,
) -> Result<Vec<String>> {
    let kept = servers.map(|server| server.clone().keeping());
    let is_watch = verb == Verb::Watch;
    let (some, at_once) =
        if is_watch { (SOME_WATCHES, WATCHES_AT_ONCE) } else { (SOME_LISTS, LISTS_AT_ONCE) };
    let whole = Case::product(is_watch, seed as u64).len();
    let mut product = Case::product(is_watch, seed as u64).beginning_at(from);
    let left = product.len();
    let all = if e2e::ground::long() { left } else { some.min(left) };
    let chosen = format!("ISTHMUS_SEED={seed} ISTHMUS_PRODUCT={:?}", part::name(&subject.resource, verb));
    let mut walk = Walk::new(format!("{}, {verb:?}", subject.resource), chosen, [from, whole], all);
    while walk.asked < all {
        let landmarks = written(subject, servers).await?;
        stretch(&mut walk, &mut product, subject, &kept, &landmarks, at_once).await?;
        walk.done = walk.from + walk.asked;
    }
    walk.end()?;
    Ok(walk.report())
}

/// Writes objects anew, and waits until the hub knows of it.
pub(super) async fn written(subject: &Subject, [real, hub]: [&Endpoint; 2]) -> Result<Landmarks> {
    read(hub, &subject.path(false)).await?;
    let landmarks = populate(real, subject).await?;
    read(hub, &format!("{}?resourceVersion={}", subject.path(false), landmarks.current)).await?;
    Ok(landmarks)
}

/// Walks on as long as these versions are fresh. One request begins when another is answered, so that what waits holds up nothing.
async fn stretch(
    walk: &mut Walk,
    product: &mut Product,
    subject: &Subject,
    [real, hub]: &[Endpoint; 2],
    landmarks: &Landmarks,
    at_once: usize,
) -> Result<()> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() < at_once && began.elapsed() < FRESH && walk.asked + tasks.len() < walk.all {
            let Some(case) = product.next() else { break };
            let (real, hub, subject, landmarks) =
                (real.clone(), hub.clone(), subject.clone(), landmarks.clone());
            tasks.spawn(async move { told(case, &subject, [&real, &hub], &landmarks).await });
        }
        let Some(told) = tasks.join_next().await else { return Ok(()) };
        walk.count(told??);
    }
}

/// Asks both, and compares.
async fn told(case: Case, subject: &Subject, servers: [&Endpoint; 2], landmarks: &Landmarks) -> Result<Told> {
    let (mut said, mut busy, mut busy_alone) = (both(&case, subject, servers, landmarks).await?, 0, 0);
    while said.iter().any(|said| said.status == 429) && busy < busy::TIMES {
        busy_alone += usize::from(said[0].status != 429);
        tokio::time::sleep(busy::AFTER).await;
        (said, busy) = (both(&case, subject, servers, landmarks).await?, busy + 1);
    }
    let [real, hub] = said;
    let is_body = real.is_same_body(&hub, &case);
    if is_body && real.status != 200 {
        return Ok(Told { good: false, held: false, busy, busy_alone, found: Found::Same });
    }
    let [real, hub] = [real, hub].map(|said| said.read(&case, landmarks, Common::Cluster));
    let good = is_good(&case, &real, landmarks)?;
    let pair = Pair { case, real, hub };
    let found = pair.settled(subject, servers, landmarks).await?;
    // Of what the hub cannot know it is to answer no share.
    let good = good && !matches!(found, Found::BeforeTheHub);
    Ok(Told { good, held: pair.is_held(), busy, busy_alone, found })
}

async fn both(
    case: &Case,
    subject: &Subject,
    [real, hub]: [&Endpoint; 2],
    landmarks: &Landmarks,
) -> Result<[Raw; 2], ConnectionError> {
    let (real, hub) = tokio::try_join!(
        Raw::fetch(real, case, subject, landmarks),
        Raw::fetch(hub, case, subject, landmarks)
    )?;
    Ok([real, hub])
}

impl Walk {
    fn new(title: String, chosen: String, [from, whole]: [usize; 2], all: usize) -> Self {
        Self {
            title,
            chosen,
            began: Instant::now(),
            whole,
            from,
            done: from,
            all,
            asked: 0,
            good: 0,
            held: 0,
            held_and_good: 0,
            of_others: 0,
            before_the_hub: 0,
            busy: 0,
            busy_alone: 0,
            kinds: BTreeMap::new(),
        }
    }

    #[allow(
        clippy::print_stdout,
        reason = "how far it has come is what whoever waits for an hour wants to know"
    )]
    fn count(&mut self, told: Told) {
        let twentieth = |asked: usize| asked * 20 / self.all;
        let is_twentieth = twentieth(self.asked) < twentieth(self.asked + 1);
        self.asked += 1;
        self.good += usize::from(told.good);
        self.held += usize::from(told.held);
        self.held_and_good += usize::from(told.held && told.good);
        self.busy += told.busy;
        self.busy_alone += told.busy_alone;
        match told.found {
            Found::Same => {}
            Found::OfOthers => self.of_others += 1,
            Found::BeforeTheHub => self.before_the_hub += 1,
            Found::Difference(kind, example) => {
                // The first of a kind is seen when it comes, not an hour later.
                let (count, _) = self.kinds.entry(kind).or_insert_with(|| {
                    println!("{}: {example}", self.title);
                    (0, example)
                });
                *count += 1;
            }
        }
        if is_twentieth && e2e::ground::long() {
            println!("{self}");
        }
    }

    fn differing(&self) -> usize {
        self.kinds.values().map(|(count, _)| count).sum()
    }

    /// Says what came of it.
    #[allow(clippy::print_stdout, reason = "how many were asked is what the run is read for")]
    fn end(&self) -> Result<()> {
        let Self {
            title,
            whole,
            asked,
            good,
            held,
            held_and_good,
            of_others,
            before_the_hub,
            busy,
            busy_alone,
            ..
        } = self;
        let took = self.began.elapsed().as_secs();
        println!(
            "{title}: {asked} of all {whole} combinations asked in {took} s, {good} of them with objects; the hub answered {held} by itself, \
             {held_and_good} of them with objects; {} differ, {before_the_hub} ask for what was before the hub began, and {of_others} differ in \
             what others wrote meanwhile; {busy} were sent once more, for a server had too much to do, {busy_alone} of them for the hub alone",
            self.differing()
        );
        for (kind, (count, _)) in &self.kinds {
            println!("  {count} x {kind}");
        }
        ensure!(of_others * 20 <= *asked, "{title}: others write too much for a comparison");
        ensure!(busy_alone * BUSY_ALONE <= *asked, "{title}: the hub had too much to do {busy_alone} times");
        ensure!(
            *good < TELLING || held_and_good * 100 >= *good * HELD_AND_GOOD,
            "{title}: too few with objects are answered by the hub itself"
        );
        Ok(())
    }

    fn report(self) -> Vec<String> {
        let Self { title, kinds, .. } = self;
        let each = kinds.into_iter();
        each.flat_map(|(kind, (count, example))| [format!("{title}: {count} x {kind}"), example]).collect()
    }
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, chosen, done, all, asked, .. } = self;
        let millis = self.began.elapsed().as_millis().max(1);
        let rate = *asked as u128 * 1000 / millis;
        let minutes = (all - asked) as u128 * millis / (*asked).max(1) as u128 / 60_000;
        let percent = asked * 100 / all;
        let differing = self.differing();
        write!(
            f,
            "{title}: {percent} %, {asked} of {all} asked, {differing} differ, {rate} in a second, {minutes} min to go; from here on: {chosen} \
             ISTHMUS_PRODUCT_FROM={done}"
        )
    }
}
