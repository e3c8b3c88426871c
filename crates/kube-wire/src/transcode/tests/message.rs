//! Cases made by hand: each rule of Go's encoder, and each refusal.

use super::{integer, length, tag, varint};
use crate::resource::GroupVersionResource;
use crate::transcode::{TranscodeError, to_json};

fn json(group: &str, version: &str, resource: &str, parts: &[Vec<u8>]) -> Result<String, TranscodeError> {
    let json = to_json(&GroupVersionResource::new(group, version, resource), &parts.concat(), false)?;
    Ok(String::from_utf8(json).unwrap())
}

/// JSON of a `ConfigMap`: metadata 1, data 2, binaryData 3, immutable 4.
fn config_map(parts: &[Vec<u8>]) -> Result<String, TranscodeError> {
    json("", "v1", "configmaps", parts)
}

fn entry(field: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
    length(field, &[length(1, key), length(2, value)].concat())
}

fn fixed64(number: u32, value: f64) -> Vec<u8> {
    [tag(number, 1), value.to_le_bytes().to_vec()].concat()
}

#[test]
fn zero_is_left_out_null_or_written_by_the_tags() {
    // A struct is written though it says omitempty; a zero creation time is not, for it says omitzero.
    assert_eq!(config_map(&[]).unwrap(), r#"{"metadata":{}}"#);
    assert_eq!(config_map(&[length(1, &length(8, b""))]).unwrap(), r#"{"metadata":{}}"#);
    // A pointer to zero is not zero.
    assert_eq!(config_map(&[integer(4, 0)]).unwrap(), r#"{"metadata":{},"immutable":false}"#);
    // Lists without omitempty are null.
    assert_eq!(
        json("rbac.authorization.k8s.io", "v1", "clusterroles", &[]).unwrap(),
        r#"{"metadata":{},"rules":null}"#
    );
    assert_eq!(
        json("apps", "v1", "deployments", &[]).unwrap(),
        concat!(
            r#"{"metadata":{},"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"#,
            r#""strategy":{}},"status":{}}"#
        )
    );
    // A time without omitempty is null; so is a raw extension.
    assert_eq!(
        json("apps", "v1", "controllerrevisions", &[]).unwrap(),
        r#"{"metadata":{},"data":null,"revision":0}"#
    );
}

#[test]
fn maps_are_sorted_and_the_last_of_equal_keys_counts() {
    let sorted = [entry(2, b"a", b"1"), entry(2, b"b", b"2")];
    assert_eq!(config_map(&sorted).unwrap(), r#"{"metadata":{},"data":{"a":"1","b":"2"}}"#);
    let mixed = [entry(2, b"b", b"0"), entry(3, b"k", b"\0"), entry(2, b"a", b"1"), entry(2, b"b", b"2")];
    assert_eq!(
        config_map(&mixed).unwrap(),
        r#"{"metadata":{},"data":{"a":"1","b":"2"},"binaryData":{"k":"AA=="}}"#
    );
    // Nil within a map is not written to the wire, and is null; empty is written.
    let binary = [length(3, &length(1, b"a")), entry(3, b"b", b"")];
    assert_eq!(config_map(&binary).unwrap(), r#"{"metadata":{},"binaryData":{"a":null,"b":""}}"#);
}

#[test]
fn a_list_within_a_map_is_never_null() {
    // TokenReview: status 3; user 2; extra 4.
    let review = |value: &[u8]| {
        let extra = length(4, &[length(1, b"k"), value.to_vec()].concat());
        json("authentication.k8s.io", "v1", "tokenreviews", &[length(3, &length(2, &extra))])
    };
    let expected = |list: &str| {
        format!(r#"{{"metadata":{{}},"spec":{{}},"status":{{"user":{{"extra":{{"k":{list}}}}}}}}}"#)
    };
    assert_eq!(
        review(&length(2, &[length(1, b"a"), length(1, b"")].concat())).unwrap(),
        expected(r#"["a",""]"#)
    );
    assert_eq!(review(&length(2, b"")).unwrap(), expected("[]"));
    assert_eq!(review(b"").unwrap(), expected("[]"));
}

#[test]
fn text_has_the_escapes_of_go() {
    for (text, expected) in [
        (&b"plain \xc3\xa9 \xe4\xb8\xad \x7f"[..], "plain é 中 \u{7f}"),
        (b"\"\\/<>&", r#"\"\\/\u003c\u003e\u0026"#),
        (b"\n\r\t\x08\x0c\x00\x1f", r"\n\r\t\b\f\u0000\u001f"),
        (b"\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xa7\xe2\x82\xac", "\\u2028\\u2029\u{2027}€"),
        (b"a\xff\xe2\x80b", r"a\ufffd\ufffd\ufffdb"),
    ] {
        let written = config_map(&[entry(2, b"k", text)]).unwrap();
        assert_eq!(written, format!(r#"{{"metadata":{{}},"data":{{"k":"{expected}"}}}}"#));
    }
}

#[test]
fn times_are_in_utc_and_as_precise_as_their_type() {
    for (seconds, expected) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_763_671_085, "2025-11-20T20:38:05Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
        (-62_167_219_200, "0000-01-01T00:00:00Z"),
    ] {
        // Nanoseconds of a Time are not looked at.
        let time = [integer(1, seconds), integer(2, 999_999_999)].concat();
        let meta = length(1, &length(8, &time));
        assert_eq!(
            config_map(&[meta]).unwrap(),
            format!(r#"{{"metadata":{{"creationTimestamp":"{expected}"}}}}"#)
        );
    }
    for seconds in [253_402_300_800, -62_167_219_201, i64::MIN, i64::MAX] {
        assert!(config_map(&[length(1, &length(8, &integer(1, seconds)))]).is_err(), "{seconds}");
    }
    let lease = |time: &[u8]| json("coordination.k8s.io", "v1", "leases", &[length(2, &length(4, time))]);
    let time = [integer(1, 1_763_671_085), integer(2, 1_234_567)].concat();
    let expected = r#"{"metadata":{},"spec":{"renewTime":"2025-11-20T20:38:05.001234Z"}}"#;
    // spec.renewTime is field 4: holderIdentity 1, leaseDurationSeconds 2, acquireTime 3.
    assert_eq!(lease(&time).unwrap(), expected);
    assert_eq!(lease(b"").unwrap(), r#"{"metadata":{},"spec":{"renewTime":null}}"#);
    assert!(lease(&integer(2, -1)).is_err());
}

#[test]
fn lengths_of_time_are_as_go_prints_them() {
    for (nanoseconds, expected) in [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (245_000_000_000, "4m5s"),
        (245_001_000_000, "4m5.001s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (3_600_000_000_000, "1h0m0s"),
        (-1_500_000_000, "-1.5s"),
        (i64::MIN, "-2562047h47m16.854775808s"),
    ] {
        let mut out = Vec::new();
        crate::transcode::time::write_duration(&mut out, nanoseconds);
        assert_eq!(String::from_utf8(out).unwrap(), format!("\"{expected}\""));
    }
}

#[test]
fn ports_are_numbers_or_names() {
    // Service: spec 2; ports 1; targetPort 4.
    let service = |target: &[u8]| json("", "v1", "services", &[length(2, &length(1, &length(4, target)))]);
    let expected = |target: &str| {
        format!(
            r#"{{"metadata":{{}},"spec":{{"ports":[{{"port":0,"targetPort":{target}}}]}},"status":{{"loadBalancer":{{}}}}}}"#
        )
    };
    assert_eq!(service(&[integer(1, 0), integer(2, 80), length(3, b"")].concat()).unwrap(), expected("80"));
    assert_eq!(service(&[integer(1, 0), integer(2, -1)].concat()).unwrap(), expected("-1"));
    assert_eq!(service(&[integer(1, 1), length(3, b"http")].concat()).unwrap(), expected("\"http\""));
    assert_eq!(service(b"").unwrap(), expected("0"));
    assert!(service(&integer(1, 2)).is_err());
}

#[test]
fn embedded_json_is_inlined_without_spaces_and_refused_if_it_is_none() {
    let revision = |data: &[u8]| json("apps", "v1", "controllerrevisions", &[length(2, &length(1, data))]);
    let expected = |data: &str| format!(r#"{{"metadata":{{}},"data":{data},"revision":0}}"#);
    let spaced = b" { \"a b\" : [ 1.50 , \"\\\" <\xe2\x80\xa8\" ] }\n";
    assert_eq!(revision(spaced).unwrap(), expected(r#"{"a b":[1.50,"\" \u003c\u2028"]}"#));
    for none in [&b""[..], b"{", b"{}{}", b"\xd9\xd9\xf7\xa0", b"{\"a\":\"\xff\"}", b"nul"] {
        assert_eq!(revision(none), Err(TranscodeError::EmbeddedNotJson), "{none:?}");
    }
}

#[test]
fn schemas_take_the_form_of_what_they_hold() {
    // CustomResourceDefinition: spec 2; versions 7; schema 4; openAPIV3Schema 1.
    let crd = |schema: &[u8]| {
        let versions = length(7, &length(4, &length(1, schema)));
        let json = json("apiextensions.k8s.io", "v1", "customresourcedefinitions", &[length(2, &versions)])?;
        let (_, after) = json.split_once(r#""schema":{"openAPIV3Schema":"#).unwrap();
        let (schema, _) = after.split_once("}}}]").unwrap();
        Ok::<_, TranscodeError>(schema.to_owned())
    };
    let text = length(5, b"string");
    for (schema, expected) in [
        (fixed64(9, 1.0), r#"{"maximum":1"#),
        (fixed64(9, 1e21), r#"{"maximum":1e+21"#),
        (fixed64(9, -1.5e-7), r#"{"maximum":-1.5e-7"#),
        (fixed64(9, 1e20), r#"{"maximum":100000000000000000000"#),
        // additionalProperties 30 is a schema or a boolean.
        (length(30, b""), r#"{"additionalProperties":false"#),
        (length(30, &integer(1, 1)), r#"{"additionalProperties":true"#),
        (
            length(30, &[integer(1, 1), length(2, &text)].concat()),
            r#"{"additionalProperties":{"type":"string"}"#,
        ),
        // items 24 is a schema or a list of them.
        (length(24, b""), r#"{"items":null"#),
        (length(24, &length(1, &text)), r#"{"items":{"type":"string"}"#),
        (length(24, &[length(2, &text), length(2, b"")].concat()), r#"{"items":[{"type":"string"},{}]"#),
        // default 8 is any JSON.
        (length(8, &length(1, b"[1, 2]")), r#"{"default":[1,2]"#),
        (length(8, b""), r#"{"default":null"#),
    ] {
        assert_eq!(crd(&schema).unwrap(), expected);
    }
    assert!(crd(&fixed64(9, f64::NAN)).is_err());
    // dependencies 32 is a map of schemas or lists of names.
    let dependencies =
        length(32, &[length(1, b"a"), length(2, &[length(2, b"b"), length(2, b"c")].concat())].concat());
    assert_eq!(crd(&dependencies).unwrap(), r#"{"dependencies":{"a":["b","c"]}"#);
    let deep = (0..300).fold(text, |schema, _| length(29, &[length(1, b"p"), length(2, &schema)].concat()));
    assert_eq!(crd(&deep), Err(TranscodeError::TooDeep));
}

#[test]
fn a_newer_server_is_noticed() {
    for (part, number) in [
        (length(9, b"new"), 9),
        (integer(200, 1), 200),
        (length(1, &length(1000, b"")), 1000),
        (integer(0, 1), 0),
    ] {
        assert_eq!(config_map(&[part]), Err(TranscodeError::UnknownField { number }));
    }
}

#[test]
fn what_is_not_as_the_table_says_is_refused() {
    for (why, part) in [
        ("a number for text", length(1, &integer(1, 7))),
        ("text for a number", length(4, b"1")),
        ("a field twice", [length(1, b""), length(1, b"")].concat()),
        ("cut in a tag", vec![0x80]),
        ("cut in a length", vec![0x0a]),
        ("cut in a field", vec![0x0a, 5, 1]),
        ("a length beyond memory", [vec![0x0a], varint(u64::MAX)].concat()),
        ("a varint of 11 bytes", [vec![0x20], vec![0xff; 11]].concat()),
        ("a group", vec![0x0b, 0x0c]),
        ("an entry with a third field", length(2, &length(3, b""))),
        ("an entry that is a number", integer(2, 1)),
    ] {
        assert!(config_map(&[part]).is_err(), "{why}");
    }
}
