use crate::{
    cache::{Cache, Limits},
    event::Change::{Added, Deleted, Modified},
    fixture::{pod, rv},
};

#[test]
fn bodies_count_once_and_only_when_superseded() {
    let mut cache = Cache::new(Limits::default());
    cache.replace(vec![], rv(1)).unwrap();
    cache.apply(Added, pod("a/x", "1", 2)).unwrap();
    let (overhead, _) = cache.history_size();
    let versions = [3, 4, 5].map(|version| pod("a/x", "a long enough label", version));
    let lengths = [pod("a/x", "1", 2).body().len(), versions[0].body().len(), versions[1].body().len()];
    let mut superseded = 0;
    for (count, (object, length)) in (2..).zip(versions.into_iter().zip(lengths)) {
        cache.apply(Modified, object).unwrap();
        superseded += length;
        assert_eq!(cache.history_size(), (superseded + count * overhead, count));
    }
    let gone = pod("a/x", "a long enough label", 6);
    superseded += 2 * gone.body().len();
    cache.apply(Deleted, gone).unwrap();
    assert_eq!(cache.history_size(), (superseded + 5 * overhead, 5));
}

#[test]
fn the_oldest_events_go_first_and_the_newest_never() {
    for limits in [
        Limits { history_bytes: usize::MAX, history_events: 3 },
        Limits { history_bytes: 3 * 400, history_events: usize::MAX },
        Limits { history_bytes: 0, history_events: 0 },
    ] {
        let mut cache = Cache::new(limits);
        cache.replace(vec![pod("a/x", "1", 9)], rv(10)).unwrap();
        for version in 11..30 {
            cache.apply(Modified, pod("a/x", "1", version)).unwrap();
            let (bytes, events) = cache.history_size();
            assert!(events == 1 || (bytes <= limits.history_bytes && events <= limits.history_events));
            // Every event above `oldest` is there, and there are no gaps in these versions.
            assert_eq!(cache.oldest().unwrap().get(), version - events as u64);
        }
        let (_, events) = cache.history_size();
        assert!(events < 10, "{events} events stayed");
    }
}
