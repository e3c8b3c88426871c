use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::FieldSelector;
use crate::{object::Object, resource::GroupVersionResource, selectable_field::SelectableFields};

fn fields(group: &str, resource: &str) -> SelectableFields {
    SelectableFields::of(&GroupVersionResource::new(group, "v1", resource))
}

#[test]
fn selectors_are_written_canonically() {
    for (text, canonical) in [
        ("", ""),
        (",", ""),
        ("=", ""),
        ("spec.nodeName==a", "spec.nodeName=a"),
        ("spec.host=a", "spec.nodeName=a"),
        ("status.phase!=Failed,spec.nodeName=", "spec.nodeName=,status.phase!=Failed"),
        (r"metadata.name=a\,b\=c\\d", r"metadata.name=a\,b\=c\\d"),
        ("metadata.name=a,metadata.name=a", "metadata.name=a"),
    ] {
        let selector = FieldSelector::parse(text, &fields("", "pods")).unwrap();
        assert_eq!(selector.to_string(), canonical, "{text:?}");
    }
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_the_api_server() {
    for (group, resource, text, words) in [
        ("", "pods", "a", "invalid selector: 'a'; can't understand 'a'"),
        ("", "pods", r"metadata.name=\a", r"invalid field selector: invalid escape sequence: \a"),
        ("", "pods", r"metadata.name=\", r"invalid field selector: invalid escape sequence: \"),
        ("", "pods", "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("", "pods", "x=y", "field label not supported: x"),
        ("", "nodes", "metadata.namespace=y", "field label not supported: metadata.namespace"),
        ("", "services", "spec.host=y", "field label not supported: spec.host"),
        ("batch", "jobs", "x=y", "field label \"x\" not supported for Job"),
        (
            "",
            "configmaps",
            "x=y",
            "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("example.com", "widgets", "x=y", "field label not supported: x"),
        ("snapshot.storage.k8s.io", "volumesnapshots", "x=y", "field label not supported: x"),
    ] {
        let error = FieldSelector::parse(text, &fields(group, resource)).unwrap_err();
        assert_eq!(error.to_string(), words, "{resource} {text:?}");
    }
}

#[test]
fn requirements_match_fields() {
    let pod = json!({
        "metadata": {"name": "a", "namespace": "n", "resourceVersion": "1"},
        "spec": {"nodeName": "edge-1"},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}]},
    });
    let pod = Object::from_json(Bytes::from(pod.to_string())).unwrap();
    for (text, expected) in [
        ("", true),
        ("metadata.name=a,metadata.namespace=n", true),
        ("spec.nodeName=edge-1", true),
        ("spec.nodeName!=edge-1", false),
        ("spec.hostNetwork=false", true),
        ("spec.hostNetwork!=true", true),
        ("spec.restartPolicy=", true),
        ("status.podIP=10.0.0.1", true),
        ("status.podIPs=10.0.0.1", false),
        ("status.phase=Running,spec.nodeName=edge-2", false),
    ] {
        let selector = FieldSelector::parse(text, &fields("", "pods")).unwrap();
        assert_eq!(selector.matches(&pod), expected, "{text:?}");
    }
}

#[test]
fn one_object_is_named_by_an_exact_requirement() {
    for (text, name) in [("metadata.name=a", Some("a")), ("metadata.name!=a", None), ("status.phase=a", None)]
    {
        let selector = FieldSelector::parse(text, &fields("", "pods")).unwrap();
        assert_eq!(selector.requires_exactly("metadata.name"), name, "{text:?}");
    }
}

proptest! {
    #[test]
    fn the_canonical_text_parses_to_the_same_selector(text in "(metadata.name(=|!=|==)[a,=\\\\]{0,4},?){0,3}") {
        let fields = fields("", "pods");
        if let Ok(selector) = FieldSelector::parse(&text, &fields) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string(), &fields).unwrap(), selector);
        }
    }

    #[test]
    fn arbitrary_text_is_parsed_or_refused(text: String) {
        let _ = FieldSelector::parse(&text, &fields("", "pods"));
    }
}
