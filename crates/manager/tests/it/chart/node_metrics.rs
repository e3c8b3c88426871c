//! What NodeMetric needs: memory, and a version of its group that nobody else serves.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{chart, one, render, run};

fn resources(values: &[&str]) -> Value {
    let objects = render(values);
    let deployment = one(&objects, "Deployment", "isthmus-manager");
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"].clone()
}

#[test]
fn memory_is_as_much_as_the_declared_size_needs() {
    let limit = |values: &[&str]| resources(values)["limits"]["memory"].clone();
    assert_eq!(limit(&[]), "256Mi");
    assert_eq!(limit(&["nodeMetrics.enabled=true"]), "1536Mi");
    assert_eq!(limit(&["nodeMetrics.enabled=true", "nodeMetrics.memoryLimit=\"3Gi\""]), "3Gi");
    let own = "resources.limits={\"memory\": \"2Gi\", \"cpu\": \"1\"}";
    assert_eq!(resources(&["nodeMetrics.enabled=true", own])["limits"], json!({"cpu": "1", "memory": "2Gi"}));
    assert_eq!(resources(&["nodeMetrics.enabled=true", "resources.limits=null"])["limits"], Value::Null);
}

/// Copies a chart, for a test that adds to it.
pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Helm looks into no cluster here, so what it would find stands in a template of a copy of the chart.
#[test]
fn what_another_serves_is_not_hidden() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chart-beside-crds");
    copy(&chart(), &folder);
    let found = |name: &str, version: &str, served: bool, ours: &str| {
        let crd = format!(
            r#"(dict "metadata" (dict "name" "{name}") "spec" (dict "versions" (list (dict "name" "{version}" "served" {served}))))"#
        );
        let probe = format!(
            r#"{{{{ include "isthmus.refuseHidden" (dict "version" "{ours}" "crds" (list dict {crd})) }}}}"#
        );
        fs::write(folder.join("templates/probe.yaml"), probe).unwrap();
        let output = run(&["template", "isthmus", folder.to_str().unwrap()]);
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let slo = "nodeslos.slo.koordinator.sh";
    for (version, served, ours, taken) in [
        ("v1alpha1", true, "v1alpha1", false),
        ("v1alpha1", false, "v1alpha1", true),
        ("v1alpha1", true, "v1beta1", true),
        ("v1beta1", true, "v1beta1", false),
    ] {
        let (success, words) = found(slo, version, served, ours);
        assert_eq!(success, taken, "{version} {served} {ours}: {words}");
        if !taken {
            let other = if ours == "v1alpha1" { "v1beta1" } else { "v1alpha1" };
            assert!(words.contains(&format!("CRD {slo} serves slo.koordinator.sh/{version}")), "{words}");
            assert!(words.contains(&format!("set nodeMetrics.apiVersion={other}")), "{words}");
        }
    }
}
