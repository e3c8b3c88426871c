//! What an installation says: of the cluster it is in, not of what its values ask for.

use std::fs;
use std::path::PathBuf;

use super::{chart, node_metrics::copy, one, run};

const POLICY: &str = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";

/// The notes, which `helm template` leaves out: a copy of the chart has them in an object.
fn notes(folder: &str, arguments: &[&str]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    copy(&chart(), &folder);
    let text = fs::read_to_string(folder.join("templates/NOTES.txt")).unwrap();
    let named = format!("{{{{- define \"notes\" -}}}}\n{text}\n{{{{- end -}}}}");
    fs::write(folder.join("templates/_notes.tpl"), named).unwrap();
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata: {text: {{ include \"notes\" . | toJson }}}\n";
    fs::write(folder.join("templates/notes.yaml"), object).unwrap();
    let output = run(&[&["template", "isthmus", folder.to_str().unwrap()], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let objects = serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    one(&objects, "ConfigMap", "notes")["data"]["text"].as_str().unwrap().to_owned()
}

#[test]
fn ordinary_pods_are_said_to_be_kept_off_where_they_are() {
    let said = |arguments: &[&str]| {
        let notes = notes("chart-with-notes", arguments);
        (
            notes.contains("by a policy of the API server"),
            notes.contains("WARNING: this cluster has no MutatingAdmissionPolicy"),
        )
    };
    assert_eq!(said(&["--api-versions", POLICY]), (true, false));
    assert_eq!(said(&[]), (false, true));
    assert_eq!(said(&["--api-versions", POLICY, "--set", "ordinaryPods.keepOff=false"]), (false, false));
    assert_eq!(said(&["--set", "ordinaryPods.keepOff=false"]), (false, false));
}
