//! Candidates on machines whose clocks disagree, behind a network that delays, loses and answers too late, with
//! processes that freeze, crash and hand over: never do two lead at once, and somebody leads when nothing is wrong. Where it is said of one
//! that lives that it is gone, two lead for a moment at most, and only if its renewals are late as well.
//!
//! The simulation runs [`Candidate`] as the driver does. It alone knows true time; a claim to lead is recorded as the
//! span of true time in which its value would pass the check, and the spans are compared afterwards, without asking
//! the code under test.

mod machine;
mod scenario;
mod world;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use proptest::{
    prelude::*,
    test_runner::{Config, TestError, TestRunner},
};

use self::{
    machine::{Machine, RESTART, SECOND, Time},
    scenario::{Claim, Fate, Fault, Scenario},
    world::World,
};
use super::timing::{MAX_CLOCK_DRIFT, Timing};

/// Two claims of different processes that are current at the same instant.
fn overlap(claims: &[Claim]) -> Option<(&Claim, &Claim)> {
    let mut sorted: Vec<_> = claims.iter().filter(|claim| claim.from < claim.to).collect();
    sorted.sort_by_key(|claim| claim.from);
    let mut latest: Option<&Claim> = None;
    for claim in sorted {
        match latest {
            Some(other) if other.process != claim.process && claim.from < other.to => {
                return Some((other, claim));
            }
            Some(other) if other.to >= claim.to => {}
            _ => latest = Some(claim),
        }
    }
    None
}

/// For how long the two processes were leading at once that were so for longest.
fn longest_overlap(claims: &[Claim]) -> Time {
    let mut led: BTreeMap<usize, (Time, Time)> = BTreeMap::new();
    for claim in claims.iter().filter(|claim| claim.from < claim.to) {
        let (from, to) = led.entry(claim.process).or_insert((claim.from, claim.to));
        (*from, *to) = (claim.from.min(*from), claim.to.max(*to));
    }
    let spans: Vec<_> = led.values().collect();
    let pairs = spans.iter().enumerate().flat_map(|(n, a)| spans[..n].iter().map(move |b| (a, b)));
    pairs.map(|(a, b)| a.1.min(b.1).saturating_sub(a.0.max(b.0))).max().unwrap_or(0)
}

fn machine() -> impl Strategy<Value = Machine> {
    #[expect(clippy::cast_possible_truncation, reason = "a constant that fits")]
    let most = (MAX_CLOCK_DRIFT * 1e6) as i64;
    let drift = prop_oneof![Just(-most), Just(0), Just(most), -most..=most];
    let day = 86_400_000_000_i64;
    (drift, 0..1_000 * SECOND, -day..day, any::<bool>()).prop_map(
        |(drift, uptime, wall_offset, wall_frozen)| Machine { drift, uptime, wall_offset, wall_frozen },
    )
}

fn quick() -> impl Strategy<Value = Fate> {
    (0..100_000_u64, 0..100_000_u64).prop_map(|(there, back)| Fate {
        there,
        back,
        request_lost: false,
        answer_lost: false,
    })
}

fn troubled() -> impl Strategy<Value = Fate> {
    let delay = || prop_oneof![6 => 0..100_000_u64, 2 => 0..4 * SECOND, 1 => 0..40 * SECOND];
    (delay(), delay(), prop::bool::weighted(0.1), prop::bool::weighted(0.1))
        .prop_map(|(there, back, request_lost, answer_lost)| Fate { there, back, request_lost, answer_lost })
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => (0..40 * SECOND).prop_map(Fault::Freeze),
        3 => (0..40 * SECOND).prop_map(Fault::Partition),
        2 => Just(Fault::Crash),
        2 => Just(Fault::Release),
        1 => (-100_000_000_000..100_000_000_000_i64).prop_map(Fault::JumpTimeOfDay),
        1 => Just(Fault::Touch),
        2 => Just(Fault::Doubt),
    ]
}

const TROUBLE: Time = 120 * SECOND;

fn troubled_scenario(timing: Timing) -> impl Strategy<Value = Scenario> {
    let machines = prop::collection::vec((machine(), 0..20 * SECOND), 2..5);
    let faults = prop::collection::vec((0..TROUBLE, 0..4_usize, fault()), 0..12);
    let stored = prop_oneof![Just(None), Just(Some("")), Just(Some("gone"))];
    (machines, faults, prop::collection::vec(troubled(), 1..60), stored).prop_map(
        move |(machines, faults, fates, stored)| {
            let (machines, starts) = machines.into_iter().unzip();
            let end = TROUBLE + 40 * SECOND;
            Scenario { timing, machines, starts, faults, fates, stored, refused: false, end }
        },
    )
}

/// Runs `factor` times as many cases as a property test does by default, so that `PROPTEST_CASES` raises them all.
fn runner(factor: u32) -> TestRunner {
    let default = Config::default();
    TestRunner::new(Config { cases: default.cases * factor, source_file: Some(file!()), ..default })
}

#[test]
fn no_two_lead_at_once() {
    // Kubernetes' own durations, and short ones that are no whole seconds.
    let short =
        Timing::new(Duration::from_millis(1_500), Duration::from_millis(1_275), Duration::from_millis(375));
    for (timing, factor) in [(Timing::default(), 8), (short.unwrap(), 8), (enduring(), 8)] {
        runner(factor)
            .run(&troubled_scenario(timing), |scenario| {
                let claims = World::run(&scenario);
                prop_assert!(overlap(&claims).is_none(), "{:?}", overlap(&claims));
                Ok(())
            })
            .unwrap();
    }
}

/// The faults reach the cases that matter: a leader that believes in itself for longer than others wait is found out.
#[test]
fn the_simulation_finds_two_leaders_when_the_durations_are_wrong() {
    let wrong = Timing::unchecked(Duration::from_secs(15), Duration::from_secs(17), Duration::from_secs(2));
    let mut runner = TestRunner::new(Config { max_shrink_iters: 0, ..runner(16).config().clone() });
    let result = runner.run(&troubled_scenario(wrong), |scenario| {
        prop_assert!(overlap(&World::run(&scenario)).is_none());
        Ok(())
    });
    assert!(matches!(result, Err(TestError::Fail(..))), "{result:?}");
}

#[test]
fn without_faults_one_leads_soon_and_stays() {
    let machines = prop::collection::vec((machine(), 0..SECOND), 1..5);
    let stored = prop_oneof![Just(None), Just(Some("")), Just(Some("gone"))];
    let scenarios = (machines, prop::collection::vec(quick(), 1..60), stored);
    runner(4)
        .run(&scenarios, |(machines, fates, stored)| {
            let timing = Timing::default();
            let (machines, starts): (Vec<_>, Vec<_>) = machines.into_iter().unzip();
            let first = *starts.iter().min().expect("there is one");
            let end = 100 * SECOND;
            let (faults, refused) = (Vec::new(), false);
            let claims =
                World::run(&Scenario { timing, machines, starts, faults, fates, stored, refused, end });
            let within = (timing.lease_duration() + 2 * timing.retry_period()).as_micros();
            let mut led_until = None;
            for claim in &claims {
                prop_assert_eq!(claim.process, claims[0].process, "one process leads throughout");
                match led_until {
                    None => prop_assert!(u128::from(claim.from - first) <= within, "{:?}", claim),
                    Some(until) => prop_assert!(claim.from < until, "a gap before {:?}", claim),
                }
                led_until = Some(claim.to);
            }
            prop_assert_eq!(led_until, Some(end));
            Ok(())
        })
        .unwrap();
}

/// Whatever happened: when it is over, somebody leads again.
#[test]
fn after_the_faults_somebody_leads() {
    let timing = Timing::default();
    let scenarios = (troubled_scenario(timing), prop::collection::vec(quick(), 1..60));
    runner(4)
        .run(&scenarios, |(mut scenario, fates)| {
            scenario.fates = fates;
            let over = scenario.faults.iter().map(|(time, _, fault)| match fault {
                Fault::Freeze(length) | Fault::Partition(length) => time + length,
                Fault::Crash | Fault::Release => time + RESTART,
                Fault::JumpTimeOfDay(_) | Fault::Touch | Fault::Doubt => *time,
            });
            let over = over.chain(scenario.starts.clone()).max().expect("there are starts");
            // The longest way: a leader's last renewal just before it vanished, seen by a slow clock, a look late.
            let recovery = timing.lease_duration().mul_f64(1.0 / (1.0 - MAX_CLOCK_DRIFT))
                + timing.request_timeout()
                + 2 * timing.retry_period();
            let recovered = over + RESTART + Time::try_from(recovery.as_micros()).unwrap();
            scenario.end = recovered + SECOND;
            let claims = World::run(&scenario);
            prop_assert!(
                claims.iter().any(|claim| claim.from <= recovered && claim.to > recovered),
                "nobody leads at {recovered}: {claims:?}"
            );
            Ok(())
        })
        .unwrap();
}

/// How long the Lease lasts of what must be followed soon and costs much to lose.
const TERM: Time = 3_500_000;

fn enduring() -> Timing {
    Timing::enduring(Duration::from_micros(TERM)).unwrap()
}

const PEACE: Time = 60 * SECOND;

/// Machines that begin within a second, doubts about whoever leads, and a network that loses nothing.
fn doubts(refused: bool, fates: impl Strategy<Value = Fate>) -> impl Strategy<Value = Scenario> {
    let machines = prop::collection::vec((machine(), 0..SECOND), 2..5);
    let faults = prop::collection::vec((0..PEACE, 0..4_usize, Just(Fault::Doubt)), 0..12);
    (machines, faults, prop::collection::vec(fates, 1..60)).prop_map(move |(machines, faults, fates)| {
        let (machines, starts) = machines.into_iter().unzip();
        let (timing, stored) = (enduring(), Some(""));
        Scenario { timing, machines, starts, faults, fates, stored, refused, end: PEACE }
    })
}

/// A crash is known at once where a dial is refused, and the Lease need not expire.
#[test]
fn who_crashes_is_followed_before_its_lease_expires() {
    let scenarios = (doubts(false, quick()), 10 * SECOND..40 * SECOND);
    runner(4)
        .run(&scenarios, |(mut scenario, at)| {
            let crash = |machine| (at, machine, Fault::Crash);
            let before = World::run(&scenario);
            let leads = before.iter().find(|claim| claim.from <= at && claim.to > at).expect("one leads");
            // Each machine has had one process so far, in the order of their starts.
            let mut order: Vec<_> = (0..scenario.starts.len()).collect();
            order.sort_by_key(|machine| scenario.starts[*machine]);
            scenario.faults.push(crash(order[leads.process]));
            let claims = World::run(&scenario);
            // A renewal that was under way, a quarter of the term on a slow clock, the dials, a look that was under way, and a write.
            let renewed = at + 200_000;
            let soon = renewed + TERM / 4 * 106 / 100 + 200_000 + 2 * 200_000;
            let next = claims.iter().find(|claim| claim.process != leads.process && claim.from > at);
            prop_assert!(next.is_some_and(|next| next.from <= soon), "by {soon}: {next:?}");
            prop_assert!(overlap(&claims).is_none());
            Ok(())
        })
        .unwrap();
}

#[test]
fn who_renews_in_time_keeps_the_lease_whatever_is_said_of_it() {
    runner(4)
        .run(&doubts(true, quick()), |scenario| {
            let claims = World::run(&scenario);
            prop_assert!(
                claims.iter().all(|claim| claim.process == claims[0].process),
                "one leads throughout"
            );
            prop_assert_eq!(claims.iter().map(|claim| claim.to).max(), Some(PEACE));
            Ok(())
        })
        .unwrap();
}

/// Some requests are carried out late, and none is lost.
fn late() -> impl Strategy<Value = Fate> {
    let there = prop_oneof![3 => 0..WAY_BACK, 1 => 0..WAY_THERE];
    (there, 0..WAY_BACK).prop_map(|(there, back)| Fate {
        there,
        back,
        request_lost: false,
        answer_lost: false,
    })
}

const WAY_THERE: Time = 900_000;
const WAY_BACK: Time = 50_000;

/// Of whom it is wrongly said that it is gone while its renewal is late, learns of its end by that renewal, and not by its deadline.
#[test]
fn after_a_wrong_word_two_lead_until_the_renewal_that_was_late_at_most() {
    // From a renewal: the next one is sent, its conflict, and the read that says why; two lead from a quarter of the term on.
    let sent = TERM * 4 / 25 * 106 / 100;
    let (ends, begins) = (sent + 2 * (WAY_THERE + WAY_BACK), TERM / 4 * 95 / 100);
    let longest = Cell::new(0);
    runner(8)
        .run(&doubts(true, late()), |scenario| {
            let overlap = longest_overlap(&World::run(&scenario));
            longest.set(overlap.max(longest.get()));
            prop_assert!(overlap <= ends - begins, "{overlap}");
            Ok(())
        })
        .unwrap();
    assert!(longest.get() > 0, "the word was never taken");
    assert!(u128::from(ends) < enduring().renew_deadline().as_micros(), "it would have ended by itself");
}
