//! Stores small enough for every byte of them to be tried, and records to fill them.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use object_store::{Change, Error, Key, Record, Restored, Sizes, Store, SubscriptionId};

use crate::{model::Model, sim_disk::SimDisk};

/// Files of some five records.
pub(crate) const SIZES: Sizes = Sizes { segment: (400, 400), history: (250, 250), burst: 1600 };

pub(crate) fn open(disk: &SimDisk) -> (Store, Vec<Restored>) {
    try_open(disk).unwrap()
}

pub(crate) fn try_open(disk: &SimDisk) -> Result<(Store, Vec<Restored>), object_store::OpenError> {
    let key = Key::new([1; 32]);
    Store::open_on(Arc::new(disk.clone()), Path::new("/store"), Some(&key), SIZES)
}

pub(crate) fn put(key: u64, version: u64, change: Change) -> Record {
    let (key, body) = (Bytes::from(format!("ns/k{key}")), body(key, version));
    Record::Put { key, version, body, change }
}

pub(crate) fn delete(key: u64, version: u64) -> Record {
    Record::Delete { key: Bytes::from(format!("ns/k{key}")), version, body: body(key, version) }
}

fn body(key: u64, version: u64) -> Bytes {
    let length = usize::try_from((key * 7 + version * 13) % 50).unwrap();
    Bytes::from(format!("{{{key}@{version}{}}}", "x".repeat(length)))
}

/// A store and what it must hold.
pub(crate) struct Run {
    pub(crate) store: Store,
    pub(crate) model: Model,
}

impl Run {
    fn append(&mut self, subscription: &str, records: &[Record]) -> Result<(), Error> {
        let subscription = SubscriptionId::from(subscription);
        self.store.append(&subscription, records)?;
        self.model.append(&subscription, records);
        Ok(())
    }

    fn hand_over(&mut self, subscription: &str) -> Result<(), Error> {
        let subscription = SubscriptionId::from(subscription);
        self.store.hand_over(&subscription)?;
        self.model.handed_over(&subscription);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.store.sync()?;
        self.model.synced();
        Ok(())
    }

    /// Does one step of the script. A step that failed can be done again.
    pub(crate) fn step(&mut self, step: u64) -> Result<(), Error> {
        let event = |at: u64| match at % 5 {
            0 => delete(at / 5 % 4, 100 + at),
            1 | 2 => put(at % 3, 100 + at, Change::Modified),
            3 => put(3 + at % 4, 100 + at, Change::Added),
            _ => Record::Bookmark { version: 100 + at },
        };
        let list = |count: u64, version: u64| {
            let objects = (0..count).map(|key| put(key, version - key, Change::Added));
            objects.chain([Record::Complete { version }]).collect::<Vec<_>>()
        };
        match step {
            0 => self.append("services", &[Record::Begin]),
            1 => self.append("services", &list(6, 90)),
            2 => self.append("secrets", &[Record::BeginSealed]),
            3 => self.append("secrets", &list(3, 50)),
            4 | 16 | 21 | 24 | 29 | 36 | 44 => self.sync(),
            5..=15 | 27 | 28 => {
                self.append("services", &[event(step * 3), event(step * 3 + 1), event(step * 3 + 2)])
            }
            17 | 22 | 30 | 37 | 45 => self.store.compact_step(1 << 20).map(drop),
            38 | 40 | 42 | 43 | 46 => self.hand_over("services"),
            18 => self.append("pods", &[vec![Record::Begin], list(2, 10)].concat()),
            19 => self.append("secrets", &[put(1, 60, Change::Modified), delete(2, 61)]),
            20 => self.append("services", &[event(60), event(61), event(62)]),
            // A list that takes the place of another, and one that never will.
            23 => self.append("pods", &[vec![Record::Begin], list(3, 8)].concat()),
            25 => self.append("secrets", &[Record::BeginSealed, put(0, 70, Change::Added)]),
            26 => self.append("pods", &[Record::Drop]),
            31..=35 => self.append("services", &[event(step * 4), event(step * 4 + 1), event(step * 4 + 2)]),
            _ => self.append("services", &[event(step * 5)]),
        }
    }
}

/// How many steps the script has.
pub(crate) const STEPS: u64 = 49;

/// Runs the whole script.
pub(crate) fn run(disk: &SimDisk) -> Run {
    let mut run = Run { store: open(disk).0, model: Model::default() };
    for step in 0..STEPS {
        run.step(step).unwrap();
    }
    run
}
