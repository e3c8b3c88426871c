use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::LabelSelector;
use crate::object::Object;

fn object(labels: &serde_json::Value) -> Object {
    let object = json!({"metadata": {"name": "a", "resourceVersion": "1", "labels": labels}});
    Object::from_json(Bytes::from(object.to_string())).unwrap()
}

#[test]
fn selectors_are_written_canonically() {
    for (text, canonical) in [
        ("", ""),
        (" ", ""),
        ("b=1,a==2", "a=2,b=1"),
        ("x in (foo,,baz),y,z notin ()", "x in (,baz,foo),y,z notin ()"),
        ("!a, b != c", "!a,b!=c"),
        ("a in (b), a in (b)", "a in (b)"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("a>1,a<5", "a>1,a<5"),
        ("a=", "a="),
        ("a=,b", "a=,b"),
        ("x in (,)", "x in ()"),
        ("x in (a,)", "x in (,a)"),
        ("example.com/x=1", "example.com/x=1"),
        ("a\0b", "a"),
    ] {
        assert_eq!(LabelSelector::parse(text).unwrap().to_string(), canonical, "{text:?}");
    }
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_the_api_server() {
    for (text, words) in [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a==(", "unable to parse requirement: found '(', expected: identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "-a",
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
             regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ] {
        assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), words, "{text:?}");
    }
    for text in ["a/b/c", "/a", "a/", "A.com/x", "a=-", &"a".repeat(64), &format!("a={}", "b".repeat(64))] {
        assert!(LabelSelector::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn requirements_match_labels() {
    let labelled = object(&json!({"a": "1", "b": "x", "empty": ""}));
    for (text, expected) in [
        ("", true),
        ("a", true),
        ("!a", false),
        ("!c", true),
        ("a=1", true),
        ("a=1,b=y", false),
        ("a!=1", false),
        ("c!=1", true),
        ("c=", false),
        ("empty=", true),
        ("a in (1,2)", true),
        ("a notin (1,2)", false),
        ("c notin (1,2)", true),
        ("a>0,a<2", true),
        ("a>1", false),
        ("b>0", false),
        ("c<5", false),
    ] {
        assert_eq!(LabelSelector::parse(text).unwrap().matches(&labelled), expected, "{text:?}");
    }
    assert!(!LabelSelector::parse("a").unwrap().matches(&object(&json!(null))));
}

proptest! {
    #[test]
    fn the_canonical_text_parses_to_the_same_selector(text in "[ab!=<>(), in1]{0,24}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }
    }

    #[test]
    fn arbitrary_text_is_parsed_or_refused(text: String) {
        let _ = LabelSelector::parse(&text);
    }
}
