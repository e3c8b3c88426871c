//! The examples that Kubernetes publishes: an object of each kind with every field set, as protobuf and as JSON. They are in
//! the modules that the table is generated from; where those are not, there is nothing to compare.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::resource::GroupVersionResource;
use crate::transcode::wire::{Records, Span};
use crate::transcode::{embedded, resource_of, to_json};

/// The folders with examples, if the modules are there.
fn folders() -> Result<Vec<PathBuf>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pins = fs::read_to_string(root.join("hack/tools/kubernetes/go.mod")).unwrap();
    let version = pins.lines().find_map(|line| line.trim().strip_prefix("k8s.io/api ")).unwrap();
    let version = version.split(' ').next().unwrap();
    let go = Command::new("go").args(["env", "GOMODCACHE"]).output().map_err(|error| error.to_string())?;
    let cache = PathBuf::from(String::from_utf8_lossy(&go.stdout).trim());
    let folders = [
        cache.join(format!("k8s.io/api@{version}/testdata/HEAD")),
        cache.join(format!("k8s.io/apiextensions-apiserver@{version}/pkg/apis/testdata/HEAD")),
    ];
    match folders.iter().find(|folder| !folder.is_dir()) {
        Some(missing) => Err(format!("no {}", missing.display())),
        None => Ok(folders.to_vec()),
    }
}

/// What lies in the envelope.
fn raw(enveloped: &[u8]) -> &[u8] {
    let unknown = enveloped.strip_prefix(b"k8s\0").unwrap();
    let mut records = Records::new(unknown, Span { start: 0, end: u32::try_from(unknown.len()).unwrap() });
    while let Some(record) = records.next().unwrap() {
        if record.number == 2 {
            return record.value.of(unknown);
        }
    }
    panic!("an envelope without content")
}

/// The API server's conversions add what the examples, which only passed through Go's encoders, have not.
fn with_claim_type(stateful_set: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(stateful_set).unwrap();
    let (before, claims) = text.split_once("\"volumeClaimTemplates\":[{").unwrap();
    let typed = "\"kind\":\"PersistentVolumeClaim\",\"apiVersion\":\"v1\"";
    format!("{before}\"volumeClaimTemplates\":[{{{typed},{claims}").into_bytes()
}

/// Where two texts begin to differ.
fn difference(became: &[u8], expected: &[u8]) -> String {
    let same = became.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let around = |text: &[u8]| {
        let part = &text[same.saturating_sub(40).min(text.len())..(same + 40).min(text.len())];
        String::from_utf8_lossy(part).into_owned()
    };
    format!("became …{}…, not …{}…", around(became), around(expected))
}

#[test]
// A skipped test would look like one that passed.
#[allow(clippy::print_stdout)]
fn every_published_example_becomes_the_same_bytes() {
    let folders = match folders() {
        Ok(folders) => folders,
        Err(reason) => return println!("did not compare with published examples: {reason}"),
    };
    let (mut compared, mut wrong) = (0, Vec::new());
    for file in
        folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path())
    {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let mut parts = name.rsplitn(3, '.');
        let (kind, version, group) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let group = if group == "core" { "" } else { group };
        let Some(found) =
            resource_of(group, version, kind).filter(|_| file.extension().is_some_and(|e| e == "pb"))
        else {
            continue;
        };
        let resource = GroupVersionResource::new(group, version, found.resource);
        let mut expected = Vec::new();
        embedded::write(&mut expected, &fs::read(file.with_extension("json")).unwrap()).unwrap();
        if kind == "StatefulSet" {
            expected = with_claim_type(&expected);
        }
        let enveloped = fs::read(&file).unwrap();
        let became = to_json(&resource, raw(&enveloped), true);
        compared += 1;
        if became.as_ref() != Ok(&expected) {
            wrong.push(format!("{name}: {}", difference(&became.unwrap_or_default(), &expected)));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 100, "only {compared} examples were found");
}
