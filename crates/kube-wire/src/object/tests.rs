use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::{Encoding, MalformedObject, Object};
use crate::{protobuf::put_bytes, resource_version::ResourceVersion};

fn message(fields: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, content) in fields {
        put_bytes(&mut out, *number, content);
    }
    out
}

/// A service as the API server writes one: every field of the metadata, spec after it.
fn protobuf(version: &str, labels: &[(&str, &str)]) -> Bytes {
    let mut metadata = message(&[(1, b"dns"), (2, b""), (3, b"kube-system"), (4, b""), (5, b"u-1")]);
    put_bytes(&mut metadata, 6, version.as_bytes());
    metadata.extend_from_slice(&[0x38, 0x00]);
    for (tag, entries) in [(11, labels), (12, &[("note", "x")][..])] {
        for (key, value) in entries {
            put_bytes(&mut metadata, tag, &message(&[(1, key.as_bytes()), (2, value.as_bytes())]));
        }
    }
    put_bytes(&mut metadata, 17, b"");
    message(&[(1, &metadata), (2, &message(&[(3, b"10.0.0.10")]))]).into()
}

fn json(version: &str, labels: &[(&str, &str)]) -> Bytes {
    let labels: serde_json::Map<_, _> = labels.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "annotations": {"note": "x"}, "labels": labels, "name": "dns", "namespace": "kube-system",
            "resourceVersion": version, "uid": "u-1",
        },
        "spec": {"clusterIP": "10.0.0.10"},
    });
    object.to_string().into()
}

fn both(version: &str, labels: &[(&str, &str)]) -> [Object; 2] {
    [
        Object::from_json(json(version, labels)).unwrap(),
        Object::from_protobuf(protobuf(version, labels)).unwrap(),
    ]
}

#[test]
fn an_object_is_read_in_either_encoding() {
    for object in both("42", &[("a", "1"), ("b", "two"), ("empty", "")]) {
        assert_eq!(object.key().as_str(), "kube-system/dns");
        assert_eq!(object.uid(), "u-1");
        assert_eq!(object.resource_version().get(), 42);
        assert_eq!(object.label("b").as_deref(), Some("two"));
        assert_eq!(object.label("empty").as_deref(), Some(""));
        assert_eq!(object.label("note"), None);
        assert_eq!(object.annotation("note").as_deref(), Some("x"));
        assert_eq!(object.annotation("a"), None);
        let labels: Vec<_> = object.labels().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(labels, ["a=1", "b=two", "empty="]);
        assert_eq!(object.annotations().count(), 1);
    }
    for object in both("42", &[]) {
        assert_eq!(object.labels().count(), 0);
        assert_eq!(object.label("note"), None);
    }
}

#[test]
fn what_is_no_object_is_refused() {
    for (body, missing) in [
        (&br#"{"metadata":{"resourceVersion":"1"}}"#[..], Some("metadata.name")),
        (br#"{"kind":"x"}"#, Some("metadata")),
        (br#"{"metadata":{"name":"a","resourceVersion":"0"}}"#, None),
        (br#"{"metadata":{"name":"a"}}"#, None),
        (br#"{"metadata":{"name":1,"resourceVersion":"1"}}"#, None),
        (br#"{"metadata":{"name":"a","resourceVersion":"1","uid":"\u0061"}}"#, None),
        (br#"{"metadata":{"name":"a","resourceVersion":"1"}"#, None),
        (b"", None),
    ] {
        let error = Object::from_json(Bytes::from_static(body)).unwrap_err();
        if let Some(field) = missing {
            assert_eq!(error, MalformedObject::Missing(field));
        }
    }
    let whole = protobuf("1", &[]);
    for end in 0..whole.len() {
        // A cut at the end of a field leaves a smaller message, not a broken one.
        if let Ok(object) = Object::from_protobuf(whole.slice(..end)) {
            assert_eq!(object.key().as_str(), "kube-system/dns");
        }
    }
    assert_eq!(Object::from_protobuf(Bytes::new()), Err(MalformedObject::Missing("metadata")));
    assert!(Object::from_protobuf([&whole[..], &whole[..]].concat().into()).is_err());
}

#[test]
fn an_object_is_small() {
    assert_eq!(size_of::<Object>(), 72);
    let [object, _] = both("1", &[]);
    assert_eq!(object.size(), 72 + "kube-system/dns".len() + object.body().len());
}

proptest! {
    #[test]
    fn splicing_a_version_leaves_all_else(
        from in 1..=u64::MAX, to in 1..=u64::MAX, labels in prop::collection::btree_map("[a-z]{1,9}", "[a-z]{0,90}", 0..4)
    ) {
        let labels: Vec<_> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let to = ResourceVersion::new(to).unwrap();
        for (old, new) in both(&from.to_string(), &labels).into_iter().zip(both(&to.to_string(), &labels)) {
            let spliced = old.with_resource_version(to);
            prop_assert_eq!(spliced.uid(), "u-1");
            prop_assert_eq!(spliced, new);
        }
    }

    #[test]
    fn arbitrary_bytes_are_taken_or_refused(bytes: Vec<u8>, at in 0..120_usize, with: u8) {
        for (whole, encoding) in [(json("12", &[("a", "b")]), Encoding::Json), (protobuf("12", &[("a", "b")]), Encoding::Protobuf)] {
            let mut changed = whole.to_vec();
            let at = at % changed.len();
            changed[at] = with;
            for body in [changed, bytes.clone()] {
                let object = match encoding {
                    Encoding::Json => Object::from_json(body.into()),
                    Encoding::Protobuf => Object::from_protobuf(body.into()),
                };
                if let Ok(object) = object {
                    let _ = (object.uid(), object.labels().count(), object.label("a"), object.metadata());
                    let version = ResourceVersion::new(7).unwrap();
                    prop_assert_eq!(object.with_resource_version(version).resource_version(), version);
                }
            }
        }
    }
}
