use std::{collections::BTreeMap, sync::Arc};

use kube_wire::resource::ObjectKey;
use proptest::prelude::*;

use super::{CHUNK, Snapshot};
use crate::fixture::{pod, rv};

fn key(number: usize) -> ObjectKey {
    ObjectKey::new(["a", "a-b", "a0", "b"][number % 4], &format!("n{}", number / 4))
}

/// Everything that a reader can ask, against a map.
fn check(snapshot: &Snapshot, model: &BTreeMap<String, u64>) {
    let held: Vec<_> = snapshot.iter().map(|o| (o.key().to_string(), o.resource_version().get())).collect();
    assert_eq!(held, model.iter().map(|(key, version)| (key.clone(), *version)).collect::<Vec<_>>());
    assert_eq!((snapshot.len(), snapshot.is_empty()), (model.len(), model.is_empty()));
    let bytes: usize = snapshot.iter().map(|object| super::bytes_of(object)).sum();
    assert_eq!(snapshot.bytes(), bytes, "counted as they come and go");
    assert!(snapshot.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK));
    for number in [0, 3, 17, 250] {
        let key = key(number);
        assert_eq!(snapshot.get(&key).map(|o| o.resource_version().get()), model.get(key.as_str()).copied());
        let mut rest = snapshot.seek(key.as_str())..snapshot.end();
        assert_eq!(snapshot.count(&rest), model.range(key.to_string()..).count());
        let next = snapshot.next_in(&mut rest).map(|object| object.key().to_string());
        assert_eq!(next.as_ref(), model.range(key.to_string()..).next().map(|(key, _)| key));
    }
}

proptest! {
    #[test]
    fn changes_are_those_of_a_map_and_never_of_what_was_handed_out(
        start in proptest::collection::vec(0usize..400, 0..600),
        runs in proptest::collection::vec((any::<bool>(), 0usize..400, 1usize..200), 1..4),
    ) {
        let mut version = 1;
        let mut model = BTreeMap::new();
        let objects = start.iter().map(|number| {
            version += 1;
            model.insert(key(*number).to_string(), version);
            pod(key(*number).as_str(), "1", version)
        });
        let mut snapshot = Snapshot::collect(rv(1), objects.collect());
        check(&snapshot, &model);
        for (put, from, count) in runs {
            let (before, model_before) = (snapshot.clone(), model.clone());
            for number in (from..from + count).map(|number| key(number % 400)) {
                version += 1;
                let old = if put {
                    let old = snapshot.put(pod(number.as_str(), "1", version));
                    (old, model.insert(number.to_string(), version))
                } else {
                    (snapshot.take(&number), model.remove(number.as_str()))
                };
                prop_assert_eq!(old.0.map(|object| object.resource_version().get()), old.1);
            }
            check(&snapshot, &model);
            check(&before, &model_before);
        }
    }
}

#[test]
fn chunks_do_not_outlive_their_objects() {
    let objects = (0..4000).map(|number| pod(key(number).as_str(), "1", 1));
    let mut snapshot = Snapshot::collect(rv(1), objects.collect());
    for number in (0..4000).filter(|number| number % 50 != 0) {
        snapshot.take(&key(number));
    }
    assert_eq!(snapshot.len(), 80);
    assert!(snapshot.chunks.len() <= 4, "{} chunks", snapshot.chunks.len());
}

#[test]
fn a_change_copies_one_chunk() {
    let objects = (0..4000).map(|number| pod(key(number).as_str(), "1", 1));
    let mut snapshot = Snapshot::collect(rv(1), objects.collect());
    let before = snapshot.clone();
    snapshot.put(pod(key(0).as_str(), "1", 2));
    let copied = snapshot.chunks.iter().zip(before.chunks.iter()).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
    assert_eq!(copied, 1);
}
