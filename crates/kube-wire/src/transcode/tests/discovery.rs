//! Discovery of all groups, as the API server writes it.

use super::{integer, length};
use crate::protobuf::envelope_header;
use crate::transcode::{TranscodeError, discovery_to_json};

fn answer(api_version: &str, raw: &[u8]) -> Vec<u8> {
    [envelope_header(api_version, "APIGroupDiscoveryList", raw.len()), raw.to_vec()].concat()
}

/// As an API server 1.36 has it, with what is not there left out.
#[test]
fn all_groups_are_written_as_the_api_server_does() {
    let kind = length(2, &[length(1, b""), length(2, b""), length(3, b"Scale")].concat());
    let subresource = [length(1, b"scale"), kind, length(4, b"get")].concat();
    let kind = length(2, &[length(1, b"apps"), length(2, b"v1"), length(3, b"Deployment")].concat());
    let deployments = [
        [length(1, b"deployments"), kind, length(3, b"Namespaced"), length(4, b"deployment")].concat(),
        [length(5, b"get"), length(5, b"list"), length(6, b"deploy"), length(7, b"all")].concat(),
        length(8, &subresource),
    ];
    let version = [length(1, b"v1"), length(2, &deployments.concat()), length(3, b"Current")].concat();
    let group = [length(1, &length(1, b"apps")), length(2, &version)].concat();
    let raw = [length(1, b""), length(2, &group)].concat();
    let expected = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"deployments","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["get","list"],"shortNames":["deploy"],"categories":["all"],"subresources":[{"subresource":"scale","responseKind":{"group":"","version":"","kind":"Scale"},"verbs":["get"]}]}],"freshness":"Current"}]}]}"#;
    let json = discovery_to_json(&answer("apidiscovery.k8s.io/v2", &raw)).unwrap();
    assert_eq!(String::from_utf8(json).unwrap(), format!("{expected}\n"));
}

#[test]
fn what_is_something_else_or_newer_is_refused() {
    assert!(discovery_to_json(b"{}").is_err());
    assert!(discovery_to_json(&answer("apidiscovery.k8s.io/v3", b"")).is_err());
    let newer = answer("apidiscovery.k8s.io/v2", &length(2, &integer(9, 1)));
    assert_eq!(discovery_to_json(&newer), Err(TranscodeError::UnknownField { number: 9 }));
}
