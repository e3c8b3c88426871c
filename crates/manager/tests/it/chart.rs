//! The Helm chart as Helm renders it: rights, security settings, and that it agrees with the program it installs.
//!
//! Needs Helm 3: `$HELM`, else the one that `hack/build-tools helm` built, else the one in `$PATH`.

mod access;
mod daemonsets;
mod network_mode;
mod node_labels;
mod node_metrics;
mod notes;
mod objects;
mod ordinary_pods;
mod webhooks;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn helm() -> PathBuf {
    let set = env::var_os("HELM").map(PathBuf::from);
    let built = || {
        let cache = env::var_os("ISTHMUS_CACHE").map(PathBuf::from).or_else(|| {
            let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            Some(cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?.join("isthmus"))
        })?;
        let folders = cache.join("bin").read_dir().ok()?;
        folders.filter_map(|folder| Some(folder.ok()?.path().join("helm"))).find(|file| file.is_file())
    };
    let installed = || {
        env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("helm")).find(|file| file.is_file())
    };
    set.or_else(built)
        .or_else(installed)
        .expect("Helm is missing: run `hack/build-tools helm`, or set HELM to its path")
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/isthmus")
}

fn run(arguments: &[&str]) -> Output {
    run_for("1.36.0", arguments)
}

fn run_for(kubernetes: &str, arguments: &[&str]) -> Output {
    // A Helm built from its module alone believes in a Kubernetes version of its own.
    Command::new(helm())
        .args(arguments)
        .args(["--kube-version", kubernetes])
        .output()
        .expect("helm could not be run")
}

/// The rendered text of release `isthmus` in namespace `isthmus-system`, or what Helm says against it.
fn try_render(values: &[&str]) -> Result<String, String> {
    let chart = chart();
    let mut arguments = vec!["template", "isthmus", chart.to_str().unwrap(), "--namespace", "isthmus-system"];
    for value in values {
        arguments.extend(["--set-json", value]);
    }
    let output = run(&arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The rendered objects, hooks among them.
fn render(values: &[&str]) -> Vec<Value> {
    serde_saphyr::from_multiple(&try_render(values).unwrap()).unwrap()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

#[track_caller]
fn one<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found: Vec<_> =
        of_kind(objects, kind).into_iter().filter(|object| object["metadata"]["name"] == name).collect();
    assert_eq!(found.len(), 1, "{kind} {name}");
    found[0]
}

#[test]
fn helm_finds_no_fault() {
    let output = run(&["lint", "--strict", chart().to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_cluster_that_cannot_take_the_crds_is_refused() {
    let chart = chart();
    let render = |kubernetes| run_for(kubernetes, &["template", "isthmus", chart.to_str().unwrap()]);
    assert!(render("1.32.0").status.success());
    let old = render("1.31.9");
    assert!(String::from_utf8_lossy(&old.stderr).contains("incompatible with Kubernetes"), "{old:?}");
}

#[test]
fn two_listeners_on_one_port_are_refused() {
    for (values, message) in [
        (vec!["ports.metrics=10272"], "ports.health and ports.metrics are both 10272"),
        (
            vec!["nodeMetrics.enabled=true", "nodeMetrics.ports.report=10273"],
            "nodeMetrics.ports.report and ports.webhook are both 10273",
        ),
    ] {
        let error = try_render(&values).unwrap_err();
        assert!(error.contains(message), "{values:?}: {error}");
    }
    // What is not served takes no port.
    try_render(&["nodeMetrics.ports.report=10273"]).unwrap();
}

#[test]
fn an_election_that_the_manager_would_refuse_is_refused() {
    for (value, message) in [
        (
            "leaderElection.renewDeadline=\"13500ms\"",
            "must be below nine tenths of leaderElection.leaseDuration=15s",
        ),
        (
            "leaderElection.retryPeriod=\"5001ms\"",
            "retryPeriod=5001ms must be at most half of leaderElection.renewDeadline",
        ),
    ] {
        let error = try_render(&[value]).unwrap_err();
        assert!(error.contains(message), "{value}: {error}");
    }
    try_render(&["leaderElection={\"renewDeadline\": \"13499ms\", \"retryPeriod\": \"6749ms\"}"]).unwrap();
    try_render(&["log={\"level\": \"info,manager::webhook=debug\"}"]).unwrap();
}

#[test]
fn a_value_that_does_not_exist_is_rejected() {
    for value in [
        "replica=2",
        "webhook.failurePolicy.labeledPods=\"Fail\"",
        "webhook.timeoutSeconds=2",
        "replicas=0",
        "ports.webhook=70000",
        "leaderElection.leaseDuration=\"0s\"",
        "log.level=\"verbose\"",
        "hubNamespace=\"Nope_\"",
    ] {
        let error = try_render(&[value]).unwrap_err();
        assert!(error.contains("don't meet the specifications of the schema"), "{value}: {error}");
    }
}
