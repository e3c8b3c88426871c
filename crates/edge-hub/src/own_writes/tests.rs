use serde_json::json;
use tokio::time::advance;
use watch_cache::{Cache, Limits};

use super::*;

const ALL: Held = Held::All;
const NOT_YET: Held = Held::NotYet;

fn resource() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "services")
}

fn at(version: u64) -> ResourceVersion {
    ResourceVersion::new(version).unwrap()
}

fn object(version: u64, label: &str) -> Object {
    let object = json!({ "metadata": {
        "namespace": "a", "name": "x", "resourceVersion": version.to_string(), "labels": { "l": label },
    } });
    Object::from_json(object.to_string().into()).unwrap()
}

fn held(objects: &[Object], version: u64) -> Snapshot {
    let mut cache = Cache::new(Limits::default());
    cache.replace(objects.iter().cloned().map(Arc::new).collect(), at(version)).unwrap();
    cache.snapshot().unwrap()
}

fn key(namespace: &str, labels: &str) -> Key {
    Key { namespace: namespace.into(), labels: labels.into(), ..Key::pooled(&resource()) }
}

fn is(version: u64) -> After {
    After::Is { version: at(version), object: Some(object(version, "m").into()) }
}

fn gone(version: u64) -> After {
    After::Gone(Some(at(version)))
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_a_write_once_it_was_told_of_it() {
    let large = After::Is { version: at(5), object: None };
    for (after, key, there, version, expected) in [
        (is(5), key("", ""), vec![], 4, NOT_YET),
        (is(5), key("", ""), vec![object(4, "m")], 9, NOT_YET),
        (is(5), key("", ""), vec![object(5, "m")], 5, ALL),
        (is(5), key("", ""), vec![object(6, "m")], 6, ALL),
        // It was deleted since.
        (is(5), key("", ""), vec![], 7, ALL),
        (is(5), key("a", ""), vec![], 4, NOT_YET),
        (is(5), key("b", ""), vec![], 4, ALL),
        (is(5), key("", "l=m"), vec![], 4, NOT_YET),
        (is(5), key("", "l=n"), vec![], 4, ALL),
        (large, key("", "l=n"), vec![], 4, NOT_YET),
        // It has left what is selected, which the stream does not know yet.
        (is(5), key("", "l=n"), vec![object(4, "n")], 4, NOT_YET),
        (gone(5), key("", ""), vec![object(5, "m")], 8, NOT_YET),
        (gone(5), key("", ""), vec![object(6, "m")], 8, ALL),
        (After::Gone(None), key("", ""), vec![object(6, "m")], 8, NOT_YET),
        (After::Gone(None), key("", ""), vec![], 1, ALL),
        (After::Unknown, key("", ""), vec![], 9, Held::Unknown),
        (After::Unknown, key("b", ""), vec![], 9, ALL),
    ] {
        let (writes, held) = (OwnWrites::default(), held(&there, version));
        assert_eq!(writes.are_held(&key, &held, None), ALL);
        writes.note(&resource(), "a", "x", Instant::now(), after.clone());
        let text = format!("{after:?} {key} {version}");
        assert_eq!(writes.are_held(&key, &held, None), expected, "{text}");
        assert_eq!(writes.are_held(&key, &held, Some(&ObjectKey::new("a", "x"))), expected, "{text}");
        assert_eq!(writes.are_held(&key, &held, Some(&ObjectKey::new("a", "y"))), ALL, "{text}: another");
        assert!(writes.are_any(&resource()), "{text}");
        advance(LASTS).await;
        assert_eq!(writes.are_held(&key, &held, None), ALL, "{text}: it is long ago");
        assert!(!writes.are_any(&resource()), "{text}");
        writes.forget_old();
        assert!(writes.of.lock().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_object_the_newest_write_counts() {
    // Whether a stream has it that has the object at 5, at 6, and not any more.
    let had = |order: &[After]| {
        let (writes, asked) = (OwnWrites::default(), Instant::now());
        for after in order {
            writes.note(&resource(), "a", "x", asked, after.clone());
        }
        [held(&[object(5, "m")], 5), held(&[object(6, "m")], 6), held(&[], 9)]
            .map(|held| writes.are_held(&key("", ""), &held, None))
    };
    for (order, expected) in [
        (vec![is(5), is(6)], [NOT_YET, ALL, ALL]),
        // Answers come in any order.
        (vec![is(6), is(5)], [NOT_YET, ALL, ALL]),
        (vec![is(6), gone(6)], [NOT_YET, NOT_YET, ALL]),
        (vec![gone(6), is(6)], [NOT_YET, NOT_YET, ALL]),
        (vec![gone(5), is(6)], [NOT_YET, ALL, ALL]),
        (vec![is(6), After::Gone(None)], [NOT_YET, NOT_YET, ALL]),
        (vec![is(6), After::Unknown], [Held::Unknown; 3]),
    ] {
        assert_eq!(had(&order), expected, "{order:?}");
    }
    let (writes, asked) = (OwnWrites::default(), Instant::now());
    writes.note(&resource(), "a", "x", asked, is(6));
    writes.note(&resource(), "a", "x", asked, After::Unknown);
    advance(UNKNOWN).await;
    let old = held(&[object(5, "m")], 5);
    assert_eq!(writes.are_held(&key("", ""), &old, None), NOT_YET, "what is known is not forgotten for it");
    for n in 0..1000 {
        writes.note(&resource(), "a", &format!("n{n}"), asked, is(9));
    }
    assert_eq!(writes.of.lock().values().map(VecDeque::len).sum::<usize>(), REMEMBERED);
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_after_an_answer_counts_at_a_lower_version_too() {
    let writes = OwnWrites::default();
    writes.note(&resource(), "a", "x", Instant::now(), is(6));
    advance(LASTS.checked_sub(UNKNOWN).unwrap()).await;
    // An etcd that was restored gives versions again.
    writes.note(&resource(), "a", "x", Instant::now(), is(5));
    let is_held = |held: &Snapshot| writes.are_held(&key("", ""), held, None);
    assert_eq!(is_held(&held(&[], 4)), NOT_YET);
    assert_eq!(is_held(&held(&[object(5, "m")], 5)), ALL);
    advance(UNKNOWN).await;
    assert_eq!(is_held(&held(&[], 4)), NOT_YET, "it is remembered as long as any");
}

#[test]
fn an_answer_says_what_is_there() {
    let answer = || Some(object(5, "m"));
    let (whole, other) = (Part::of(Some("status")).unwrap(), Part::of(Some("eviction")).unwrap());
    assert!(matches!(After::of(Verb::Patch, whole, answer()), After::Is { .. }));
    assert!(matches!(After::of(Verb::Delete, whole, answer()), After::Gone(Some(_))));
    assert!(matches!(After::of(Verb::Delete, whole, None), After::Gone(None)));
    let ending = json!({ "metadata": {
        "namespace": "a", "name": "x", "resourceVersion": "5", "deletionTimestamp": "2026-01-01T00:00:00Z",
    } });
    let ending = Object::from_json(ending.to_string().into()).unwrap();
    assert!(matches!(After::of(Verb::Delete, whole, Some(ending)), After::Is { .. }));
    for (verb, part, answer) in
        [(Verb::Create, other, answer()), (Verb::Create, whole, None), (Verb::DeleteCollection, whole, None)]
    {
        assert!(matches!(After::of(verb, part, answer), After::Unknown));
    }
    assert_eq!((Part::of(None), Part::of(Some("token"))), (Some(Part::Object), None));
}
