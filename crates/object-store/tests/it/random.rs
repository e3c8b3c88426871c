//! Random operations against the model, with kills, losses of power and failing operations between them.

use std::io;

use object_store::{Change, Record, SubscriptionId};
use proptest::{collection::vec, prelude::*};

use crate::{
    model::Model,
    script::{delete, open, put, try_open},
    sim_disk::{Fault, SimDisk},
};

#[derive(Clone, Debug)]
enum Op {
    Put(u64),
    Delete(u64),
    Bookmark,
    List { objects: u64, complete: bool },
    Drop,
}

#[derive(Clone, Debug)]
enum Step {
    Append(u8, Vec<Op>),
    HandOver(u8),
    /// Beside the store, which syncs meanwhile or does not.
    Drop(u8, bool),
    Settle,
    Sync,
    Compact,
    Kill,
    LosePower(u64),
    Fail(u64, Fault),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => (0..8u64).prop_map(Op::Put),
        12 => (0..8u64).prop_map(Op::Delete),
        3 => Just(Op::Bookmark),
        2 => (0..12u64, any::<bool>()).prop_map(|(objects, complete)| Op::List { objects, complete }),
        1 => Just(Op::Drop),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let fault = prop_oneof![
        (0..=2000usize).prop_map(|part| Fault::Error(io::ErrorKind::StorageFull, part)),
        (0..=2000usize).prop_map(Fault::Crash),
    ];
    prop_oneof![
        20 => (0..3u8, vec(op(), 1..8)).prop_map(|(of, ops)| Step::Append(of, ops)),
        12 => (0..3u8).prop_map(Step::HandOver),
        2 => (0..3u8, any::<bool>()).prop_map(|(of, syncs)| Step::Drop(of, syncs)),
        8 => Just(Step::Sync),
        8 => Just(Step::Settle),
        5 => Just(Step::Compact),
        2 => Just(Step::Kill),
        2 => any::<u64>().prop_map(Step::LosePower),
        3 => (0..12u64, fault).prop_map(|(after, fault)| Step::Fail(after, fault)),
    ]
}

/// Records that fit what the subscription is in.
fn records(model: &Model, subscription: &SubscriptionId, ops: &[Op], clock: &mut u64) -> Vec<Record> {
    let past = model.0.get(subscription).cloned().unwrap_or_default();
    let mut model = Model([(subscription.clone(), past)].into());
    let mut records = Vec::new();
    for op in ops {
        let past = &model.0[subscription];
        let (listing, known) = (past.is_listing(), past.version().is_some());
        *clock += 1;
        let new = match op {
            Op::List { objects, complete } => {
                let sealed = subscription.0.ends_with('1');
                let mut list = vec![if sealed { Record::BeginSealed } else { Record::Begin }];
                list.extend((0..*objects).map(|key| put(key, *clock - key.min(*clock), Change::Added)));
                list.extend(complete.then_some(Record::Complete { version: *clock }));
                list
            }
            Op::Put(key) if listing || known => vec![put(*key, *clock, Change::Modified)],
            Op::Delete(key) if listing || known => vec![delete(*key, *clock)],
            Op::Bookmark if listing => vec![Record::Complete { version: *clock }],
            Op::Bookmark if known => vec![Record::Bookmark { version: *clock }],
            Op::Drop => vec![Record::Drop],
            _ => vec![],
        };
        model.append(subscription, &new);
        records.extend(new);
    }
    records
}

proptest! {
    #[test]
    fn only_whole_states_come_back(steps in vec(step(), 1..60)) {
        let disk = SimDisk::default();
        let mut model = Model::default();
        let mut store = open(&disk).0;
        let mut clock = 100;
        for step in steps {
            match step {
                Step::Append(of, ops) => {
                    let subscription = SubscriptionId::from(&*format!("subscription{of}"));
                    let records = records(&model, &subscription, &ops, &mut clock);
                    if store.append(&subscription, &records).is_ok() {
                        model.append(&subscription, &records);
                    }
                }
                Step::HandOver(of) => {
                    let subscription = SubscriptionId::from(&*format!("subscription{of}"));
                    if store.hand_over(&subscription).is_ok() {
                        model.handed_over(&subscription);
                    }
                }
                Step::Drop(of, syncs) => {
                    let subscription = SubscriptionId::from(&*format!("subscription{of}"));
                    let Ok(mut dropping) = store.begin_drop(&subscription) else { continue };
                    model.append(&subscription, &[Record::Drop]);
                    if syncs && store.sync().is_ok() {
                        model.synced();
                    }
                    if dropping.hand_over().is_ok() {
                        model.handed_over(&subscription);
                    }
                    store.settle_drop(dropping);
                }
                Step::Settle => {
                    let waited = store.unsynced().wait();
                    let _ = store.settle(waited);
                }
                Step::Sync => {
                    if store.sync().is_ok() {
                        model.synced();
                    }
                }
                Step::Compact => drop(store.compact_step(2000)),
                Step::Fail(after, fault) => disk.fail(after, fault),
                Step::Kill | Step::LosePower(_) => {
                    drop(store);
                    if let Step::LosePower(kept) = step {
                        disk.lose_power(kept);
                    } else {
                        disk.kill();
                        model.killed();
                    }
                    let (opened, restored) = try_open(&disk).unwrap();
                    prop_assert!(opened.problems().is_empty(), "{:?}", opened.problems());
                    model.check_crash(&restored);
                    model.synced();
                    store = opened;
                }
            }
        }
        drop(store);
        disk.kill();
        model.killed();
        model.check_crash(&open(&disk).1);
    }
    /// A store that was written without any trouble, then cut, flipped or overwritten anywhere.
    #[test]
    fn damage_makes_no_mixture(
        batches in vec((0..20u8, vec(op(), 1..10)), 1..40),
        damages in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3u8, 1..=255u8), 30),
    ) {
        let disk = SimDisk::default();
        let mut model = Model::default();
        let mut store = open(&disk).0;
        let mut clock = 100;
        for (of, ops) in batches {
            // Most go to one, so that it has many files.
            let subscription = SubscriptionId::from(&*format!("subscription{}", of.saturating_sub(17)));
            let records = records(&model, &subscription, &ops, &mut clock);
            store.append(&subscription, &records).unwrap();
            model.append(&subscription, &records);
            store.sync().unwrap();
            if of % 2 == 0 {
                store.compact_step(2000).unwrap();
            }
        }
        drop(store);
        let files = disk.files();
        for (file, at, how, flip) in damages {
            if files.is_empty() {
                break;
            }
            let (path, content) = file.get(&files);
            let at = at.index(content.len());
            let mut spoiled = content.clone();
            match how {
                0 => spoiled.truncate(at),
                1 => spoiled[at] ^= flip,
                _ => spoiled[at..].fill(0),
            }
            let copy = disk.copy();
            copy.spoil(path, spoiled);
            model.check_damage(&open(&copy).1);
        }
    }
}
