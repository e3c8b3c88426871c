//! Rotation in a world of late readers, crashes, steps of the clock, two leaders at once and a lost store: whatever
//! certificate any replica may serve verifies against whatever bundle any client may hold.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::{Action, Authority, Leaf, Moment, Rest, Sightings, Stored, Strangers, plan};
use crate::{digest::Sha256Digest, window::Validity};

const SETTLE: u64 = 60;
const START: i64 = 1_800_000_000;
const BACKDATE: i64 = 300;
const DAY: i64 = 24 * 3600;

/// An object of the API server: a value and the version that writes are conditional on.
#[derive(Debug, Clone)]
struct Object<T> {
    value: T,
    version: u64,
    /// Every value it had, with the time from which on.
    history: Vec<(u64, T)>,
}

impl<T: Clone> Object<T> {
    fn new(value: T) -> Self {
        Self { history: vec![(0, value.clone())], value, version: 0 }
    }

    fn write(&mut self, version: u64, now: u64, value: T) -> bool {
        if version != self.version {
            return false;
        }
        self.version += 1;
        self.history.push((now, value.clone()));
        self.value = value;
        true
    }

    /// What a reader that is late by at most the settle time may hold.
    fn visible(&self, now: u64) -> impl Iterator<Item = &T> {
        let oldest = now.saturating_sub(SETTLE);
        let ended = self.history.iter().skip(1).rposition(|(start, _)| *start < oldest);
        self.history[ended.map_or(0, |last| last + 1)..].iter().map(|(_, value)| value)
    }
}

#[derive(Debug, Clone, Default)]
struct Store {
    current: Option<Authority>,
    next: Option<Authority>,
    retired: Vec<Sha256Digest>,
    rotated: u32,
}

#[derive(Debug)]
struct World {
    now: u64,
    offset: i64,
    serving: Object<Option<Leaf>>,
    bundles: [Object<Vec<Sha256Digest>>; 2],
    store: Object<Store>,
    requested: u32,
    made: u64,
    leaders: [Leader; 2],
    bootstrapped: Option<u64>,
}

/// A process that believes to lead, between two of its calls to the API server.
#[derive(Debug, Default)]
struct Leader {
    seen: Sightings,
    at: Stage,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    ReadServing,
    ReadBundle(usize, Snapshot),
    ReadStore(Snapshot),
    Write(Action, Box<Stored>, Snapshot),
    PublishSecond((u64, Vec<Sha256Digest>)),
    Resting(Duration, Rest),
}

#[derive(Debug, Clone, Default)]
struct Snapshot {
    serving: (u64, Option<Leaf>),
    bundles: [(u64, Vec<Sha256Digest>); 2],
    store: (u64, Store),
}

impl World {
    fn new() -> Self {
        Self {
            now: 0,
            offset: 0,
            serving: Object::new(None),
            bundles: [Object::new(Vec::new()), Object::new(Vec::new())],
            store: Object::new(Store::default()),
            requested: 0,
            made: 0,
            leaders: [Leader::default(), Leader::default()],
            bootstrapped: None,
        }
    }

    fn wall(&self) -> Timestamp {
        let elapsed = i64::try_from(self.now).unwrap();
        Timestamp::from_second(START + self.offset + elapsed).unwrap()
    }

    fn moment(&self) -> Moment {
        Moment { wall: self.wall(), monotonic: Duration::from_secs(self.now) }
    }

    fn identity(&mut self) -> Sha256Digest {
        self.made += 1;
        Sha256Digest::of(&self.made.to_be_bytes())
    }

    fn validity(&self, days: i64) -> Validity {
        let not_before = self.wall() - SignedDuration::from_secs(BACKDATE);
        Validity { not_before, not_after: self.wall() + SignedDuration::from_secs(days * DAY) }
    }

    fn authority(&mut self) -> Authority {
        Authority { id: self.identity(), validity: self.validity(365) }
    }

    /// One call of one leader.
    fn advance(&mut self, index: usize) {
        let stage = std::mem::take(&mut self.leaders[index].at);
        self.leaders[index].at = match stage {
            Stage::ReadServing | Stage::Resting(..) => {
                let serving = (self.serving.version, self.serving.value);
                Stage::ReadBundle(0, Snapshot { serving, ..Snapshot::default() })
            }
            Stage::ReadBundle(which, mut snapshot) => {
                let bundle = &self.bundles[which];
                snapshot.bundles[which] = (bundle.version, bundle.value.clone());
                if which == 0 { Stage::ReadBundle(1, snapshot) } else { Stage::ReadStore(snapshot) }
            }
            Stage::ReadStore(mut snapshot) => {
                snapshot.store = (self.store.version, self.store.value.clone());
                self.decide(index, snapshot)
            }
            Stage::Write(action, stored, snapshot) => self.write(&action, &stored, &snapshot),
            Stage::PublishSecond((version, bundle)) => {
                self.bundles[1].write(version, self.now, bundle);
                Stage::ReadServing
            }
        };
        let served = self.serving.value.map(|leaf| leaf.issuer);
        if let (None, Some(issuer)) = (self.bootstrapped, served)
            && self.bundles.iter().all(|bundle| bundle.value.contains(&issuer))
        {
            self.bootstrapped = Some(self.now);
        }
    }

    fn decide(&mut self, index: usize, snapshot: Snapshot) -> Stage {
        let (_, store) = &snapshot.store;
        let published: Vec<_> = snapshot.bundles.iter().map(|(_, bundle)| bundle.clone()).collect();
        let mut stored = Stored {
            current: store.current,
            next: store.next,
            retired: store.retired.clone(),
            leaf: None,
            published,
            forced: store.rotated != self.requested,
        };
        // An issuer that is nowhere to be found cannot be told.
        stored.leaf = snapshot.serving.1.filter(|leaf| {
            stored.bundle().contains(&leaf.issuer)
                || stored.published.iter().any(|bundle| bundle.contains(&leaf.issuer))
        });
        let moment = self.moment();
        let leader = &mut self.leaders[index];
        leader.seen.record(&stored, moment.monotonic);
        match plan(&stored, &leader.seen, Duration::from_secs(SETTLE), moment) {
            Action::Wait { at_most, rest } => Stage::Resting(at_most, rest),
            action => Stage::Write(action, Box::new(stored), snapshot),
        }
    }

    fn write(&mut self, action: &Action, stored: &Stored, snapshot: &Snapshot) -> Stage {
        let (version, mut store) = snapshot.store.clone();
        match action {
            Action::CreateCurrent => {
                store.current = Some(self.authority());
                store.rotated = self.requested;
                self.store.write(version, self.now, store);
            }
            Action::CreateNext(_) => {
                store.next = Some(self.authority());
                store.rotated = self.requested;
                self.store.write(version, self.now, store);
            }
            Action::Promote => {
                store.retired.extend(store.current.map(|current| current.id));
                store.current = store.next.take();
                self.store.write(version, self.now, store);
            }
            Action::Retire => {
                store.retired.clear();
                self.store.write(version, self.now, store);
            }
            Action::IssueLeaf => {
                let issuer = store.current.expect("planned with a current authority");
                let mut validity = self.validity(30);
                validity.not_after = validity.not_after.min(issuer.validity.not_after);
                let leaf = Leaf { id: self.identity(), issuer: issuer.id, validity, names_match: true };
                self.serving.write(snapshot.serving.0, self.now, Some(leaf));
            }
            Action::PublishBundle { strangers } => {
                let [first, second] = &snapshot.bundles;
                let publish = |(version, published): &(u64, Vec<Sha256Digest>)| {
                    let mut bundle = stored.bundle();
                    if *strangers == Strangers::Keep {
                        bundle.extend(published.iter().filter(|id| !stored.bundle().contains(id)));
                    }
                    (*version, bundle)
                };
                let (first, second) = (publish(first), publish(second));
                self.bundles[0].write(first.0, self.now, first.1);
                return Stage::PublishSecond(second);
            }
            Action::Wait { .. } => unreachable!("a rest is not written"),
        }
        Stage::ReadServing
    }

    /// A handshake of every client that may be late with every replica that may be late.
    fn check(&self) -> Result<(), TestCaseError> {
        if self.bootstrapped.is_none_or(|since| self.now <= since + SETTLE) {
            return Ok(());
        }
        for leaf in self.serving.visible(self.now) {
            let leaf = leaf.expect("bootstrapped longer ago than readers are late");
            for bundle in self.bundles.iter().flat_map(|bundle| bundle.visible(self.now)) {
                prop_assert!(
                    bundle.contains(&leaf.issuer),
                    "at {}: a certificate by {:?} meets the bundle {bundle:?}",
                    self.now,
                    leaf.issuer
                );
            }
        }
        Ok(())
    }

    /// Lets one leader work alone for so long, as fast as it wants to, and checks after each of its calls. The other one
    /// is stuck wherever it was.
    fn run_alone(&mut self, index: usize, seconds: u64) -> Result<(), TestCaseError> {
        let end = self.now + seconds;
        let mut calls_in_a_row = 0;
        loop {
            self.advance(index);
            self.check()?;
            calls_in_a_row += 1;
            prop_assert!(calls_in_a_row < 100, "it works without end: {self:?}");
            if let Stage::Resting(at_most, _) = self.leaders[index].at {
                if self.now >= end {
                    return Ok(());
                }
                self.now += at_most.as_secs().max(1);
                calls_in_a_row = 0;
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Advance(usize),
    RunAlone(usize, u64),
    Crash(usize),
    Pass(u64),
    StepClock(i64),
    Force,
    LoseStore,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        60 => (0_usize..2).prop_map(Event::Advance),
        8 => (0_usize..2, 0..4 * SETTLE).prop_map(|(index, seconds)| Event::RunAlone(index, seconds)),
        20 => (0_u64..SETTLE / 2).prop_map(Event::Pass),
        5 => (SETTLE..3 * SETTLE).prop_map(Event::Pass),
        2 => (0_u64..40 * 24 * 3600).prop_map(Event::Pass),
        3 => (0_usize..2).prop_map(Event::Crash),
        3 => (-400 * DAY..400 * DAY).prop_map(Event::StepClock),
        6 => Just(Event::Force),
        1 => Just(Event::LoseStore),
    ]
}

proptest! {
    // A multiple, so that `PROPTEST_CASES` counts here, too.
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]

    #[test]
    fn no_handshake_fails(events in proptest::collection::vec(event(), 1..300)) {
        let mut world = World::new();
        for event in events {
            match event {
                Event::Advance(index) => world.advance(index),
                Event::RunAlone(index, seconds) => world.run_alone(index, seconds)?,
                Event::Crash(index) => world.leaders[index] = Leader::default(),
                Event::Pass(seconds) => world.now += seconds,
                Event::StepClock(seconds) => world.offset = (world.offset + seconds).clamp(-2000 * DAY, 2000 * DAY),
                Event::Force => world.requested += 1,
                Event::LoseStore => {
                    let version = world.store.version;
                    world.store.write(version, world.now, Store::default());
                }
            }
            world.check()?;
        }
        // Left alone it comes to rest, with all that was asked for done and nothing left over.
        world.leaders[0] = Leader::default();
        world.run_alone(0, 20 * SETTLE)?;
        let store = &world.store.value;
        let current = store.current.expect("it made one");
        prop_assert!(matches!(world.leaders[0].at, Stage::Resting(_, Rest::Fresh)), "{:?}", world.leaders[0].at);
        prop_assert_eq!(store.rotated, world.requested);
        prop_assert!(store.next.is_none() && store.retired.is_empty(), "{:?}", store);
        let leaf = world.serving.value.expect("it issued one");
        prop_assert_eq!(leaf.issuer, current.id);
        prop_assert!(leaf.validity.contains(world.wall()) && current.validity.contains(world.wall()));
        prop_assert!(world.bundles.iter().all(|bundle| bundle.value == [current.id]));
    }
}

#[test]
fn years_pass_and_every_certificate_is_valid_while_served() {
    let mut world = World::new();
    world.run_alone(0, 1).unwrap();
    for _ in 0..5 * 365 * 4 {
        world.run_alone(0, 6 * 3600).unwrap();
        let leaf = world.serving.value.unwrap();
        let left = leaf.validity.not_after.duration_since(world.wall());
        assert!(left > SignedDuration::from_secs(9 * DAY), "{left:?} left at {}", world.now);
        assert!(world.store.value.current.unwrap().validity.contains(world.wall()));
    }
    // Five years: authorities of 365 days renewed at 207 to 243 days, certificates of 30 days at 17 to 20.
    let leaves = world.serving.history.len() - 1;
    assert!((90..=120).contains(&leaves), "{leaves} certificates");
    let authorities = usize::try_from(world.made).unwrap() - leaves;
    assert!((7..=9).contains(&authorities), "{authorities} authorities");
}

#[test]
fn the_first_certificate_needs_no_waiting() {
    let mut world = World::new();
    while world.serving.value.is_none() {
        assert!(!matches!(world.leaders[0].at, Stage::Resting(..)), "it rests before its first certificate");
        world.advance(0);
    }
    assert!(world.bootstrapped.is_some(), "it published before it issued");
    assert_eq!(world.now, 0);
}
