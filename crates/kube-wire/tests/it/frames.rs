//! Lists and watches of a real API server, read and written again byte for byte.

use std::convert::Infallible;

use bytes::Bytes;
use kube_wire::{
    field_selector::FieldSelector,
    frame::{
        self, Body, EventType, Form, INITIAL_EVENTS_END, List, ListHead, Projection, TypeMeta,
        read::WatchEvent,
    },
    label_selector::LabelSelector,
    object::{Encoding, Object},
    resource::GroupVersionResource,
    selectable_field::SelectableFields,
};

use crate::golden::{encoding, golden, read_list, read_watch};

fn type_meta(name: &str) -> TypeMeta<'static> {
    match name.split('-').next().unwrap() {
        "services" => TypeMeta { api_version: "v1", kind: "Service" },
        "pods" => TypeMeta { api_version: "v1", kind: "Pod" },
        _ => TypeMeta { api_version: "golden.example.com/v1", kind: "Widget" },
    }
}

/// The JSON of an object as it stands in a list of its kind.
fn in_list(object: &Object) -> Bytes {
    let body = object.body();
    let typed = ["Service", "Pod"].map(|kind| format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"v1\","));
    let found = typed.iter().find(|prefix| body.starts_with(prefix.as_bytes()));
    found.map_or_else(|| body.clone(), |prefix| [b"{", &body[prefix.len()..]].concat().into())
}

fn written(name: &str, projection: Projection, items: &[Bytes], objects: &[Object]) -> Vec<u8> {
    let (_, end) = read_list(name);
    let head = ListHead {
        items: type_meta(name),
        resource_version: end.resource_version,
        continue_token: &end.continue_token,
        remaining: end.remaining,
        custom: name.starts_with("widgets"),
    };
    let form = Form { encoding: encoding(name), projection };
    match form.encoding {
        Encoding::Json => {
            let bytes = both_ways(name, || frame::list(form, &head, items.to_vec()));
            let made = || frame::json_list(form, &head, items.iter().map(Ok::<_, Infallible>));
            assert_eq!(both_ways(name, made), bytes, "{name}");
            bytes
        }
        Encoding::Protobuf => both_ways(name, || frame::list(form, &head, objects.iter().collect())),
    }
}

/// What a list is in pieces, and copied.
fn both_ways<B: Body, I>(name: &str, list: impl Fn() -> List<I>) -> Vec<u8>
where
    I: Iterator<Item = Result<B, Infallible>>,
{
    let pieces: Vec<_> = list().map(Result::unwrap).collect();
    assert!(pieces.iter().all(|piece| !piece.is_empty()), "{name}: an empty piece would end a body");
    let bytes = pieces.concat();
    let (mut list, mut copied) = (list(), Vec::new());
    while list.write_next(&mut copied).unwrap() {}
    assert_eq!(copied, bytes, "{name}");
    bytes
}

#[test]
fn nothing_follows_an_item_that_cannot_be_made() {
    let (objects, _) = read_list("widgets-list-json");
    let version = objects[0].resource_version();
    let items = type_meta("widgets");
    let head =
        ListHead { items, resource_version: version, continue_token: "", remaining: None, custom: true };
    let form = Form { encoding: Encoding::Json, projection: Projection::Whole };
    let items = [Ok(objects[0].clone()), Err("gone"), Ok(objects[0].clone())];
    let pieces: Vec<_> = frame::json_list(form, &head, items.into_iter()).collect();
    assert!(matches!(&pieces[..], [Ok(_), Ok(_), Err("gone")]), "{pieces:?}");
}

#[test]
fn lists_are_written_as_they_were_read() {
    for name in [
        "services-list-json",
        "services-list-protobuf",
        "services-page-json",
        "services-page-protobuf",
        "services-empty-json",
        "services-empty-protobuf",
        "pods-list-json",
        "pods-list-protobuf",
        "widgets-list-json",
        "widgets-empty-json",
        "widgets-page-json",
    ] {
        let (objects, end) = read_list(name);
        assert_eq!(end.kind, format!("{}List", type_meta(name).kind), "{name}");
        assert_eq!(end.remaining.is_some(), name.contains("page"), "{name}");
        let items: Vec<_> = objects.iter().map(in_list).collect();
        let bytes = written(name, Projection::Whole, &items, &objects);
        assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&golden(name).body), "{name}");
    }
}

#[test]
fn lists_of_metadata_are_those_of_the_api_server() {
    let projection = Projection::Metadata("meta.k8s.io/v1");
    for kind in ["services", "pods", "widgets"] {
        for encoding in ["json", "protobuf"] {
            // Custom resources are held as JSON, from which no protobuf is made.
            if (kind, encoding) == ("widgets", "protobuf") {
                continue;
            }
            let (objects, _) = read_list(&format!("{kind}-list-{encoding}"));
            let name = format!("{kind}-partial-list-{encoding}");
            let items: Vec<_> = objects.iter().map(|object| object.body().clone()).collect();
            let bytes = written(&name, projection, &items, &objects);
            if kind == "widgets" {
                // Metadata of custom resources is in the order of a map there, in that of a struct here.
                let value = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
                assert_eq!(value(&bytes), value(&golden(&name).body), "{name}");
            } else {
                assert_eq!(
                    String::from_utf8_lossy(&bytes),
                    String::from_utf8_lossy(&golden(&name).body),
                    "{name}"
                );
            }
            let (read, _) = read_list(&name);
            let keys = |objects: &[Object]| objects.iter().map(|o| o.key().to_string()).collect::<Vec<_>>();
            assert_eq!(keys(&read), keys(&objects), "{name}");
        }
    }
}

#[test]
fn lists_of_no_metadata_are_null() {
    // As API server 1.36 answers `?labelSelector=parity%3Dnone`, of built-in kinds and custom resources alike.
    for name in ["services-empty-json", "widgets-empty-json"] {
        let bytes = written(name, Projection::Metadata("meta.k8s.io/v1"), &[], &[]);
        let list: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(list["kind"], "PartialObjectMetadataList", "{name}");
        assert_eq!(list.get("items"), Some(&serde_json::Value::Null), "{name}");
        assert!(bytes.ends_with(b"\"items\":null}\n"), "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn events_are_written_as_they_were_read() {
    for (name, projection) in [
        ("services-watch-json", Projection::Whole),
        ("services-watch-protobuf", Projection::Whole),
        ("pods-watch-json", Projection::Whole),
        ("pods-watch-protobuf", Projection::Whole),
        ("widgets-watch-json", Projection::Whole),
        ("services-partial-watch-json", Projection::Metadata("meta.k8s.io/v1")),
        ("services-partial-watch-protobuf", Projection::Metadata("meta.k8s.io/v1")),
        ("widgets-partial-watch-protobuf", Projection::Metadata("meta.k8s.io/v1")),
    ] {
        let form = Form { encoding: encoding(name), projection };
        let events = read_watch(name);
        let mut bytes = Vec::new();
        for event in &events {
            match event {
                WatchEvent::Added(object) => {
                    bytes
                        .extend(frame::watch_event(form, type_meta(name), EventType::Added, object).concat());
                }
                WatchEvent::Bookmark { resource_version, initial_end: true } => {
                    let ours = frame::bookmark(form, type_meta(name), *resource_version, true);
                    // The API server's has empty fields of the kind as well.
                    if name == "services-partial-watch-json" {
                        bytes.extend(ours);
                    }
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        let golden = golden(name).body;
        assert!(bytes.len() > golden.len() / 2, "{name}");
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            String::from_utf8_lossy(&golden[..bytes.len()]),
            "{name}"
        );
        assert!(matches!(events.last(), Some(WatchEvent::Bookmark { .. })), "{name}");
    }
}

#[test]
fn one_object_has_the_envelope_of_the_api_server() {
    let (objects, _) = read_list("services-list-protobuf");
    let events = golden("services-watch-protobuf").body;
    let form = Form { encoding: Encoding::Protobuf, projection: Projection::Whole };
    let whole = frame::object(form, type_meta("services"), &objects[0]).concat();
    assert!(events.windows(whole.len()).any(|window| window == whole), "the event holds the same envelope");
}

#[test]
fn both_encodings_say_the_same() {
    for kind in ["services", "pods"] {
        let (json, _) = read_list(&format!("{kind}-list-json"));
        let (protobuf, _) = read_list(&format!("{kind}-list-protobuf"));
        assert_eq!(json.len(), protobuf.len());
        assert!(!json.is_empty());
        for (json, protobuf) in json.iter().zip(&protobuf) {
            assert_eq!(json.key(), protobuf.key());
            assert_eq!(json.uid(), protobuf.uid());
            assert_eq!(json.resource_version(), protobuf.resource_version());
            assert!(json.labels().eq(protobuf.labels()));
            assert!(json.annotations().eq(protobuf.annotations()));
            let fields = SelectableFields::of(&GroupVersionResource::new("", "v1", kind));
            let labels = if kind == "pods" {
                &[
                    "spec.nodeName",
                    "spec.restartPolicy",
                    "spec.schedulerName",
                    "spec.hostNetwork",
                    "status.phase",
                ][..]
            } else {
                &["spec.clusterIP", "spec.type"]
            };
            for label in labels {
                let (field, _) = fields.get(label).unwrap();
                assert_eq!(json.field(&field), protobuf.field(&field), "{label}");
                assert_ne!(protobuf.field(&field), "", "{label}");
            }
        }
    }
    let (pods, _) = read_list("pods-list-protobuf");
    let fields = SelectableFields::of(&GroupVersionResource::new("", "v1", "pods"));
    for (selector, count) in
        [("spec.nodeName=edge-1", 1), ("spec.nodeName=edge-2", 0), ("status.phase=Pending", 1)]
    {
        let selector = FieldSelector::parse(selector, &fields).unwrap();
        assert_eq!(pods.iter().filter(|pod| selector.matches(pod)).count(), count, "{selector}");
    }
    let (services, _) = read_list("services-list-protobuf");
    for (selector, count) in [("app in (a,b)", 2), ("tier", 1), ("!tier", 1), ("app=c", 0)] {
        let selector = LabelSelector::parse(selector).unwrap();
        assert_eq!(services.iter().filter(|service| selector.matches(service)).count(), count, "{selector}");
    }
    assert_eq!(services[0].annotation("note").as_deref(), Some("<a> & \"b\""));
    let (widgets, _) = read_list("widgets-list-json");
    let selector =
        FieldSelector::parse("spec.color=blue", &SelectableFields::custom([".spec.color"])).unwrap();
    assert_eq!(widgets.iter().filter(|widget| selector.matches(widget)).count(), 1);
}

#[test]
fn our_bookmarks_are_read_again() {
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        for projection in [Projection::Whole, Projection::Metadata("meta.k8s.io/v1")] {
            for initial_end in [true, false] {
                let resource_version = "77".parse().unwrap();
                let form = Form { encoding, projection };
                let bytes = frame::bookmark(form, type_meta("services"), resource_version, initial_end);
                assert_eq!(String::from_utf8_lossy(&bytes).contains(INITIAL_EVENTS_END), initial_end);
                let mut events = Vec::new();
                let mut reader = frame::read::WatchReader::new(encoding, 1 << 20);
                reader.push(&bytes, &mut events).unwrap();
                assert_eq!(events, [WatchEvent::Bookmark { resource_version, initial_end }]);
            }
        }
    }
}
