//! Pure: which candidates are a Gateway's active endpoints, by the true state of their tunnels.
//!
//! The order of preference decides, and who is elected stays as long as nothing speaks against it. A candidate of an exposed
//! Gateway shows by itself that it is alive; it is elected while it does. One that only does not come to the API server, as others see
//! by its tunnels, keeps its place until somebody who works can have it. One behind NAT dials only once it is elected, so it is
//! elected on trial: without a link for [`TRIAL`] while there was a gateway to dial it gives way, and comes last for a time that doubles.
//! One that had a link and lost it gives way after [`LOST`]: long enough to dial anew, which a hub that lives does at once. One whose
//! link ended because it answered no more was given longer than that, and gives way at once.
//!
//! That its node is not ready takes nobody's place by itself: the kubelet may be what is wrong, and a hub dials only while it is elected, so
//! without its place it could never show that it works. Without a link it gives way at once to any that is ready or linked, and never comes
//! in for another; so nothing is to be waited for, and its trial begins anew when its node is ready again.
//!
//! One of an exposed Gateway that is alive may be where nobody comes. It does not show by itself alone: an endpoint without links is no
//! worse than another while sites are offline. So they give way on trial if nobody is linked to any of them for [`IDLE`] though nodes would
//! dial: one at a time, to one that lives and has an address, and none while another that gave way comes last.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a candidate that was just elected, or has a gateway to dial again, may be without a link.
pub(crate) const TRIAL: Duration = Duration::from_secs(15);

/// How long nothing is told of a candidate that was just elected, or has a gateway to dial again, and has no link. Less than [`TRIAL`], so that it is told
/// of before it gives way.
const DIAL: Duration = Duration::from_secs(10);

/// How long an elected candidate that lost its last link may be without one, while there is a gateway to dial.
const LOST: Duration = Duration::from_secs(5);

/// How long the endpoints of an exposed Gateway may live without a link of anyone to any of them, while nodes would dial.
pub(crate) const IDLE: Duration = Duration::from_secs(30);

/// For how long a candidate that gave way comes last: the first time, and at most.
const LAST: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(10));

/// What is known of a candidate's tunnels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Evidence {
    /// It accepts links, or has one.
    Working,
    /// It accepts links, and nobody has one to it.
    Idle,
    /// It is not known at the moment.
    Unknown,
    /// It says nothing of itself, but another gateway has a link to it, or there is none that could tell.
    Silent,
    /// It had a link, over which it answered no more.
    Unanswering,
    /// There is none.
    Nothing,
}

/// How candidates are judged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Judgement {
    /// Only those that live are elected, and judged by their links since there have been nodes that would dial; `None`: there are none.
    Strict(Option<Instant>),
    /// Those that might work are elected, and judged since there has been something to dial; `None`: there is nothing.
    OnTrial(Option<Instant>),
    /// Tunnels say nothing of them; the nodes' readiness does.
    Readiness,
}

/// A node that can be elected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) node: String,
    pub(crate) evidence: Evidence,
    /// Whether its node is ready.
    pub(crate) ready: bool,
    /// Whether it can be dialled, if it is to be.
    pub(crate) addressed: bool,
}

/// What is remembered between elections.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Record {
    elected: BTreeMap<String, Link>,
    gave_way: BTreeMap<String, GaveWay>,
}

/// Whether an elected candidate had a link when it was looked at last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Link {
    /// It had.
    Had,
    /// It has had none since it was elected, or judged anew, then.
    Awaited(Instant),
    /// It was first seen without then, after it had one.
    Lost(Instant),
    /// It was first seen without then, after it had one over which it answered no more.
    Unanswering(Instant),
    /// It has been seen to live without one since then.
    Idle(Instant),
    /// It has none, and its node is not ready.
    Unready,
}

impl Link {
    /// What is so of a candidate at `now`, by what was so before.
    fn of(candidate: &Candidate, judgement: Judgement, before: Option<Self>, now: Instant) -> Self {
        if is_unready(candidate, judgement) {
            return Self::Unready;
        }
        Self::next(before, candidate.evidence, now)
    }

    /// What its links say at `now`, by what was so before.
    fn next(before: Option<Self>, evidence: Evidence, now: Instant) -> Self {
        match (before, evidence) {
            (_, Evidence::Working) => Self::Had,
            (Some(Self::Idle(since)), Evidence::Idle) => Self::Idle(since),
            (_, Evidence::Idle) => Self::Idle(now),
            // Its hub may have begun anew, to which nodes dial anew.
            (None | Some(Self::Idle(_) | Self::Unready), _) => Self::Awaited(now),
            (Some(before), Evidence::Silent) => before,
            (Some(Self::Had), Evidence::Unanswering) => Self::Unanswering(now),
            (Some(Self::Had), _) => Self::Lost(now),
            (Some(without), _) => without,
        }
    }

    /// When a candidate gives way, if it remains so.
    fn trial_ends(self, judgement: Judgement) -> Option<Instant> {
        let Judgement::OnTrial(Some(judged)) = judgement else { return None };
        match self {
            Self::Had | Self::Unready => None,
            Self::Unanswering(since) if since >= judged => Some(since),
            Self::Lost(since) if since >= judged => Some(since + LOST),
            Self::Unanswering(since) | Self::Lost(since) | Self::Awaited(since) | Self::Idle(since) => {
                Some(since.max(judged) + TRIAL)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct GaveWay {
    until: Instant,
    length: Duration,
}

impl Record {
    /// What a new leader of the manager takes over: who is elected. Their trials begin anew.
    pub(crate) fn of(elected: impl IntoIterator<Item = String>, now: Instant) -> Self {
        let elected = elected.into_iter().map(|node| (node, Link::Awaited(now))).collect();
        Self { elected, gave_way: BTreeMap::new() }
    }

    /// Until when it is to be expected that an elected candidate has no link, where there has been something to dial since `judged`; `None` if it has
    /// one, or had one that it lost since.
    pub(crate) fn dials_until(&self, node: &str, judged: Instant) -> Option<Instant> {
        match *self.elected.get(node)? {
            Link::Awaited(since) => Some(since.max(judged) + DIAL),
            Link::Lost(since) | Link::Unanswering(since) if since < judged => Some(judged + DIAL),
            Link::Had | Link::Lost(_) | Link::Unanswering(_) | Link::Idle(_) | Link::Unready => None,
        }
    }
}

/// What came of an election.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    /// The elected nodes, in order of preference.
    pub(crate) elected: Vec<String>,
    pub(crate) record: Record,
    /// When it must be held again though nothing changes.
    pub(crate) look_at: Option<Instant>,
}

/// Elects up to `replicas` of `candidates`, which are in order of preference and named once each.
pub(crate) fn elect(
    candidates: &[Candidate],
    replicas: usize,
    judgement: Judgement,
    before: &Record,
    now: Instant,
) -> Outcome {
    let mut gave_way: BTreeMap<String, GaveWay> = before.gave_way.clone();
    gave_way.retain(|node, _| candidates.iter().any(|c| c.node == *node && c.evidence != Evidence::Working));
    let idle = idle(candidates, replicas, judgement, &before.elected, &gave_way, now);
    let mut survivors = Vec::new();
    let mut others = Vec::new();
    // They have the places that nobody better wants: those that are silent, to which the cluster sends nothing, and those that are not ready.
    let mut doubtful = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let link = before.elected.get(&candidate.node).copied();
        if !may_be_elected(candidate, judgement, link.is_some()) {
            continue;
        }
        let link = link.map(|link| Link::of(candidate, judgement, Some(link), now));
        let failed = link.and_then(|link| link.trial_ends(judgement)).is_some_and(|end| end <= now);
        if failed || idle.is_some_and(|(leaves, end)| leaves == index && end <= now) {
            let length = gave_way.get(&candidate.node).map_or(LAST.0, |last| (last.length * 2).min(LAST.1));
            gave_way.insert(candidate.node.clone(), GaveWay { until: now + length, length });
        }
        // Who is elected again for want of others gives way as soon as there are any.
        let last = gave_way.get(&candidate.node).map(|last| last.until).filter(|until| *until > now);
        let is_strict = matches!(judgement, Judgement::Strict(_));
        if link.is_some() && is_strict && candidate.evidence == Evidence::Silent {
            doubtful.push((None, index));
        } else if is_unready(candidate, judgement) {
            doubtful.push((last, index));
        } else if link.is_some() && last.is_none() {
            survivors.push((rank(candidate.evidence), !candidate.addressed, index));
        } else {
            // Nobody knows where others of a Gateway could be reached, so all of them have their turn.
            let tried = gave_way.get(&candidate.node).filter(|_| is_strict).map(|last| last.length);
            others.push((last, !candidate.addressed, tried, index));
        }
    }
    // With fewer replicas than before those stay that work, and of them the first.
    survivors.sort_unstable();
    // `None` comes before any time; of those that gave way the one whose time ends first.
    others.sort_unstable();
    doubtful.sort_unstable();
    let survivors = survivors.into_iter().map(|(_, _, index)| index);
    let order = survivors.chain(others.into_iter().map(|(_, _, _, index)| index));
    let mut chosen: Vec<usize> =
        order.chain(doubtful.into_iter().map(|(_, index)| index)).take(replicas).collect();
    chosen.sort_unstable();

    let mut elected = BTreeMap::new();
    let mut look_at: Option<Instant> = None;
    for candidate in chosen.iter().filter_map(|index| candidates.get(*index)) {
        let failed_now = gave_way.get(&candidate.node).is_some_and(|last| last.until == now + last.length);
        let before = before.elected.get(&candidate.node).copied().filter(|_| !failed_now);
        let link = Link::of(candidate, judgement, before, now);
        if let Some(end) = link.trial_ends(judgement) {
            look_at = Some(look_at.map_or(end, |earlier| earlier.min(end)));
        }
        elected.insert(candidate.node.clone(), link);
    }
    let next = self::idle(candidates, replicas, judgement, &elected, &gave_way, now).map(|(_, end)| end);
    look_at = look_at.into_iter().chain(next).min();
    let names = chosen.iter().filter_map(|index| candidates.get(*index)).map(|c| c.node.clone()).collect();
    Outcome { elected: names, record: Record { elected, gave_way }, look_at }
}

fn rank(evidence: Evidence) -> u8 {
    match evidence {
        Evidence::Working => 0,
        Evidence::Idle => 1,
        Evidence::Unknown | Evidence::Silent | Evidence::Unanswering | Evidence::Nothing => 2,
    }
}

/// Which of the endpoints of an exposed Gateway is to give way because nobody is linked to any, and when: while nodes would dial, and
/// there is another to give way to.
fn idle(
    candidates: &[Candidate],
    replicas: usize,
    judgement: Judgement,
    elected: &BTreeMap<String, Link>,
    gave_way: &BTreeMap<String, GaveWay>,
    now: Instant,
) -> Option<(usize, Instant)> {
    let Judgement::Strict(Some(judged)) = judgement else { return None };
    let (mut without, mut spare) = (Vec::new(), false);
    for (index, candidate) in candidates.iter().enumerate() {
        match elected.get(&candidate.node) {
            Some(link) => match Link::next(Some(*link), candidate.evidence, now) {
                Link::Idle(since) => without.push((candidate.addressed, since, index)),
                // It has a link, or what it has is not known.
                Link::Had | Link::Awaited(_) | Link::Lost(_) | Link::Unanswering(_) | Link::Unready => {
                    return None;
                }
            },
            None => {
                spare |=
                    candidate.addressed && matches!(candidate.evidence, Evidence::Working | Evidence::Idle);
            }
        }
    }
    // A place that is free, or one too many, is no matter of trial.
    if !spare || without.len() != replicas {
        return None;
    }
    let (_, _, leaves) = without.iter().min().copied()?;
    let since = without.iter().map(|(_, since, _)| *since).fold(judged, Instant::max);
    let paused = gave_way.values().map(|last| last.until).max();
    let end = since + IDLE;
    Some((leaves, paused.map_or(end, |until| until.max(end))))
}

fn may_be_elected(candidate: &Candidate, judgement: Judgement, is_elected: bool) -> bool {
    match (judgement, candidate.evidence) {
        (Judgement::Strict(_) | Judgement::OnTrial(_), Evidence::Working | Evidence::Idle) => true,
        (Judgement::Strict(_), Evidence::Unknown | Evidence::Silent) => is_elected,
        (Judgement::Strict(_), Evidence::Unanswering | Evidence::Nothing) => false,
        (Judgement::OnTrial(_), _) => is_elected || candidate.ready,
        (Judgement::Readiness, _) => candidate.ready,
    }
}

/// Whether all that speaks for a candidate on trial is that it is elected: it has no link, and its node is not ready.
fn is_unready(candidate: &Candidate, judgement: Judgement) -> bool {
    let shows_nothing =
        matches!(candidate.evidence, Evidence::Unknown | Evidence::Unanswering | Evidence::Nothing);
    matches!(judgement, Judgement::OnTrial(_)) && !candidate.ready && shows_nothing
}

#[cfg(test)]
mod tests;
