//! Random histories through a whole hub, from its link to its callers, in tens of thousands.
//!
//! ```text
//!  clients, readers ─► HTTP ─► proxy, serve ─► cache, store ◄─ reflector ◄─ HTTP/2, TLS ◄─ two API servers of one cluster
//! ```
//! All of it is the hub's own code, put together as `edge-hub run` does it; instead of sockets there are pipes within the process, and
//! the clock stands still while anybody has something to do: pauses of minutes cost nothing. A history takes some hundredths of a
//! second, where [`super::properties`] takes seconds over real sockets and with real processes.
//!
//! Each history has every fault of [`step::Fault`], in an order of its own, among writes and whatever else may happen. What clients
//! saw is judged by `testkit::history`, which folds the writes and knows nothing of caches; and whoever is told 410 must have been given
//! a reason, of those in [`reasons`]; and whoever asks for the most recent state is shown what was written ten seconds before, or told that it may
//! be old ([`recent`]). Beside the node's clients there are those of a second identity, whose [`rights`] come and go: of
//! what it may not read it must see nothing, as soon as the hub had to know.

mod bookmarks;
mod doubt;
mod noticeable;
mod noticed;
mod parts;
mod readers;
mod reasons;
mod recent;
mod rights;
mod step;
mod torn;
mod unseen;
mod world;
mod writer;

use std::{sync::atomic::Ordering, thread, time::Duration};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, TestCaseError, TestRunner},
};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;

use self::{step::Step, world::World};

/// No history takes a processor for so long: what does goes round in circles. How long it takes by the clock on the wall is the machine's.
const CIRCLES: Duration = Duration::from_mins(1);

/// One history, on a clock of its own.
fn run(steps: &[Step]) -> Result<(), String> {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut world = World::new().await;
        for step in steps {
            world.step(step).await;
        }
        world.judge().await
    })
}

/// What this thread, in which a history runs, has had of a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// With the 10,240 cases of `hack/test --long` ten times as many.
fn histories(asked: u32) -> u32 {
    if asked >= 10_000 { asked.saturating_mul(10) } else { asked }
}

/// So many of these, by as many threads as there are processors; those that failed before are kept beside `file`.
fn every<S: Strategy<Value = Vec<Step>> + 'static>(history: fn() -> S, cases: u32, file: &'static str) {
    let workers = thread::available_parallelism().map_or(1, usize::from).min(8);
    let cases = cases.div_ceil(u32::try_from(workers).unwrap());
    let working: Vec<_> = (0..workers)
        .map(|_| {
            thread::spawn(move || {
                let config = Config {
                    cases,
                    // Milliseconds: a history that fails takes its time.
                    max_shrink_time: 60_000,
                    source_file: Some(file),
                    ..Config::default()
                };
                let tried = TestRunner::new(config).run(&history(), |steps| {
                    let began = processor_time();
                    let judged = run(&steps).map_err(TestCaseError::fail);
                    let took = processor_time().saturating_sub(began);
                    assert!(took < CIRCLES, "a history took {took:?} of a processor");
                    judged
                });
                tried.map_err(|failure| failure.to_string())
            })
        })
        .collect();
    for worker in working {
        if let Err(failure) = worker.join().unwrap() {
            panic!("{failure}");
        }
    }
}

/// Some hundreds in a common run.
#[test]
fn every_guarantee_holds_in_every_history() {
    every(step::history, histories(Config::default().cases), file!());
    let resumed = reasons::RESUMED.each_ref().map(|count| count.load(Ordering::Relaxed));
    let [always, of_users] = resumed;
    println!("watches that went on where nothing would have explained a 410: {always}, {of_users} of users");
    let cases = usize::try_from(Config::default().cases).unwrap();
    assert!(always >= cases, "too few come back for that to show anything");
    let bound = recent::BOUND_TO_SHOW.load(Ordering::Relaxed);
    println!("reads of the most recent state that had something to show: {bound}");
    assert!(bound >= cases, "too few ask for the most recent state");
    assert!(cases < 50 || of_users > 0, "of one kind none come back");
}

/// One in four of as many.
#[test]
fn every_guarantee_holds_after_a_restore_that_nobody_sees() {
    let cases = histories(Config::default().cases).div_ceil(4);
    every(step::history_with_unseen, cases, unseen::FILE);
    let [noticed, unnoticeable, unshown] =
        unseen::NOTICED.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!(
        "restores while there was no link: {noticed} noticed, {unnoticeable} that nobody could notice, {unshown} of hubs that did not show all"
    );
    let few = usize::try_from(cases).unwrap() / 100;
    assert!(cases < 50 || noticed > few * 10 && unnoticeable > few, "the histories have too few of a kind");
}
