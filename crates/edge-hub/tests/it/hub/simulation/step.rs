//! What happens in a history.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    torn::{PARTS, Torn},
    unseen::Unseen,
};

/// What happens next.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// An object is written: by its number, with this content.
    Write(u8, u64),
    /// One is written through the hub, whose writer then reads the most recent state.
    WriteThrough(u8, u64),
    /// It is written so many times.
    Burst(u8, u8),
    /// It is deleted.
    Delete(u8),
    /// Time passes.
    Wait(Duration),
    /// Something breaks.
    Break(Fault),
    /// Something that broke is mended.
    Mend(Repair),
}

/// What breaks. Each is in every history, but for a restore that nobody sees.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// A server, or all of them, resets connections and refuses new ones.
    Cut(Option<usize>),
    /// A server takes what is sent, and says nothing more.
    BlackHole(usize),
    /// All but the last so many versions can no longer be read.
    Compact(u64),
    /// A server's watch cache stays where it is.
    Lag(usize),
    /// The cluster goes back by so many versions.
    Restore(u64),
    /// The same while there is no link, and more.
    RestoreUnseen(Unseen),
    /// The definition of the custom resource is deleted, with its objects.
    Undefine,
    /// The hub is killed; a write was on its way to each file, and it is started after a while.
    Kill(Torn, Duration),
    /// A client comes that reads an event in a while.
    SlowReader,
    /// A client comes that does not read until the end.
    StalledReader,
    /// Connections are reset; new ones are welcome.
    Reset(usize),
    /// The next answer breaks off.
    BreakOff(usize, u64),
    /// The next answer is an error.
    Fail(usize, u16),
    /// The second identity loses its right to one of the resources, and a while passes.
    Deny(usize, Duration),
}

/// What is mended.
#[derive(Debug, Clone)]
pub(super) enum Repair {
    /// A server's network.
    Heal(usize),
    /// A server's watch cache catches up.
    CatchUp(usize),
    /// The custom resource is defined.
    Define,
    /// Servers send bookmarks.
    Bookmarks,
    /// The second identity has its right to one of the resources again.
    Allow(usize),
}

/// Between a moment and some minutes, mostly moments.
fn pause() -> impl Strategy<Value = Duration> {
    prop_oneof![
        12 => (0..60_u64).prop_map(Duration::from_millis),
        4 => (60..6000_u64).prop_map(Duration::from_millis),
        1 => (6..100_u64).prop_map(Duration::from_secs),
    ]
}

fn server() -> impl Strategy<Value = usize> {
    0..2_usize
}

fn write() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..8_u8, 0..1000_u64).prop_map(|(name, n)| Step::Write(name, n)),
        4 => (0..4_u8, 0..1000_u64).prop_map(|(name, n)| Step::WriteThrough(name, n)),
        1 => (0..8_u8, 10..60_u8).prop_map(|(name, times)| Step::Burst(name, times)),
        7 => (0..8_u8).prop_map(Step::Delete),
    ]
}

/// Half of those that leave anything leave a part of a record. One number says which and how much, as it said how much before: seeds of
/// histories that failed stay those of the same histories.
fn torn() -> impl Strategy<Value = Torn> {
    let much = prop_oneof![Just(0_usize), 1..PARTS];
    much.prop_map(|much| if much.is_multiple_of(2) { Torn::Noise(much) } else { Torn::Record(much) })
}

fn kill() -> impl Strategy<Value = Fault> {
    (torn(), pause()).prop_map(|(torn, down)| Fault::Kill(torn, down))
}

fn unseen() -> impl Strategy<Value = Fault> {
    let write = (0..8_u8, proptest::option::weighted(0.7, 0..1000_u64));
    // Most take the cluster to versions that the hub has come to before, and beyond.
    let writes = proptest::collection::vec(write, 0..16);
    let kill = proptest::option::weighted(0.4, (torn(), pause()));
    let lag = (prop_oneof![Just(0), 1..8_u64], pause());
    // Who is cut off while he finds his way after another fault holds nothing whole.
    let rest = prop_oneof![1 => pause(), 4 => (10..60_u64).prop_map(Duration::from_secs)];
    let parts = (rest, 1..10_u64, writes, kill, lag);
    parts.prop_map(|(rest, back, writes, kill, lag)| {
        Fault::RestoreUnseen(Unseen { rest, back, writes, kill, lag })
    })
}

/// Mostly for long enough that the hub has to know it.
fn deny() -> impl Strategy<Value = Fault> {
    let pause = prop_oneof![1 => pause(), 2 => (25..60_u64).prop_map(Duration::from_secs)];
    (0..2_usize, pause).prop_map(|(right, pause)| Fault::Deny(right, pause))
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        2 => proptest::option::of(server()).prop_map(Fault::Cut),
        1 => server().prop_map(Fault::BlackHole),
        1 => (0..6_u64).prop_map(Fault::Compact),
        1 => server().prop_map(Fault::Lag),
        1 => Just(Fault::Undefine),
        2 => kill(),
        3 => server().prop_map(Fault::Reset),
        2 => (server(), 0..800_u64).prop_map(|(server, bytes)| Fault::BreakOff(server, bytes)),
        2 => (server(), prop_oneof![Just(429), Just(500), Just(503)])
            .prop_map(|(server, code)| Fault::Fail(server, code)),
        2 => deny(),
    ]
}

fn repair() -> impl Strategy<Value = Repair> {
    prop_oneof![
        4 => server().prop_map(Repair::Heal),
        2 => server().prop_map(Repair::CatchUp),
        2 => Just(Repair::Define),
        2 => Just(Repair::Bookmarks),
        2 => (0..2_usize).prop_map(Repair::Allow),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => write(),
        8 => pause().prop_map(Step::Wait),
        4 => fault().prop_map(Step::Break),
        6 => repair().prop_map(Step::Mend),
    ]
}

/// Every fault once, and what mends the lasting ones.
fn each() -> impl Strategy<Value = Vec<Step>> {
    let first = (
        proptest::option::of(server()).prop_map(Fault::Cut),
        server().prop_map(Fault::BlackHole),
        (0..6_u64).prop_map(Fault::Compact),
        server().prop_map(Fault::Lag),
        (1..8_u64).prop_map(Fault::Restore),
        kill(),
    );
    let second = (
        server().prop_map(Fault::Reset),
        (server(), 0..800_u64).prop_map(|(server, bytes)| Fault::BreakOff(server, bytes)),
        (server(), Just(503)).prop_map(|(server, code)| Fault::Fail(server, code)),
        deny(),
    );
    (first, second).prop_map(|((cut, hole, compact, lag, restore, kill), (reset, broken, failed, deny))| {
        let faults = [cut, hole, compact, lag, restore, kill, reset, broken, failed, deny];
        let others = [Fault::Undefine, Fault::SlowReader, Fault::StalledReader];
        let repairs = [
            Repair::Heal(0),
            Repair::Heal(1),
            Repair::CatchUp(0),
            Repair::CatchUp(1),
            Repair::Define,
            Repair::Bookmarks,
            Repair::Allow(0),
            Repair::Allow(1),
        ];
        let broken = faults.into_iter().chain(others).map(Step::Break);
        broken.chain(repairs.into_iter().map(Step::Mend)).collect()
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = proptest::collection::vec(step(), 4..36);
    (any, each()).prop_map(|(mut steps, each)| {
        steps.extend(each);
        steps
    })
}

/// A history.
pub(super) fn history() -> impl Strategy<Value = Vec<Step>> {
    steps().prop_shuffle()
}

/// One with a restore that nobody sees.
pub(super) fn history_with_unseen() -> impl Strategy<Value = Vec<Step>> {
    let steps = (steps(), unseen()).prop_map(|(mut steps, unseen)| {
        steps.push(Step::Break(unseen));
        steps
    });
    steps.prop_shuffle()
}
