//! What may be linked into what.

use std::collections::BTreeSet;

use super::report;
use crate::workspace;

/// What every process is kept free of: a second crypto provider, C libraries, a second YAML.
const NOWHERE: [&str; 6] = ["aws-lc-rs", "aws-lc-sys", "openssl-sys", "native-tls", "serde_yaml", "chrono"];

#[test]
fn the_hub_is_small() {
    let crates = linked("edge-hub");
    let findings: Vec<_> = ["kube-runtime", "manager", "node-metrics"]
        .into_iter()
        .filter(|name| crates.contains(*name))
        .map(str::to_owned)
        .collect();
    report(
        &findings,
        "the hub runs on every node and must not link these; find the way in with `cargo tree -p edge-hub -e normal -i NAME`",
    );
}

#[test]
fn the_manager_knows_nothing_of_the_hub() {
    assert!(
        !linked("manager").contains("edge-hub"),
        "the manager must not depend on edge-hub: share code in a crate below both"
    );
}

#[test]
fn the_vocabulary_has_no_runtime() {
    let crates = linked("api");
    let findings: Vec<_> = ["tokio", "hyper", "kube-client"]
        .into_iter()
        .filter(|name| crates.contains(*name))
        .map(str::to_owned)
        .collect();
    report(&findings, "crate api is data; take the dependency, or its feature, in the crate that acts");
}

#[test]
fn there_is_one_crypto_provider_and_one_yaml() {
    for package in ["manager", "edge-hub"] {
        let crates = linked(package);
        let findings: Vec<_> = NOWHERE
            .into_iter()
            .filter(|name| crates.contains(*name))
            .map(|name| format!("{package}: {name}"))
            .collect();
        report(
            &findings,
            "turn off the feature that brings it in; find it with `cargo tree -p PACKAGE -e normal -i NAME`",
        );
    }
}

/// The names of the crates that a package links.
fn linked(package: &str) -> BTreeSet<String> {
    let mut cargo = workspace::cargo();
    cargo.args([
        "tree",
        "--offline",
        "--package",
        package,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    let tree = workspace::output(&mut cargo).unwrap();
    let crates: BTreeSet<String> =
        tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert!(crates.contains(package), "cargo tree did not list {package}");
    crates
}
