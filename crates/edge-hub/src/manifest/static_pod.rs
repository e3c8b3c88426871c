//! The static pod: the kubelet starts it without asking anybody, and it needs nothing of the cluster to begin with.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};

use crate::run::RunArgs;

/// What lies directly in `/`, if anything does, so that `/` would be mounted.
pub(super) fn in_root(run: &RunArgs) -> Option<&Path> {
    let root = Path::new("/");
    let read = super::read_only(run).into_iter().find(|path| path.parent() == Some(root));
    read.or_else(|| Some(run.cache.root_dir.as_path()).filter(|folder| *folder == root))
}

/// The pod's manifest, JSON as the kubelet takes it as well as YAML.
pub(super) fn pod(
    binary: &Path,
    image: &str,
    cluster_dns: bool,
    run: &RunArgs,
    options: &[String],
) -> String {
    let root = run.cache.root_dir.as_path();
    // Folders, not files: a certificate that is renewed is another file.
    let folders: BTreeSet<&Path> = super::read_only(run).into_iter().filter_map(Path::parent).collect();
    let folders: Vec<(&Path, bool)> = folders
        .into_iter()
        .filter(|folder| *folder != root)
        .map(|folder| (folder, true))
        .chain([(root, false)])
        .collect();
    let name = |at: usize| format!("host-{at}");
    let volumes: Vec<Value> = folders
        .iter()
        .enumerate()
        .map(|(at, (folder, _))| json!({ "name": name(at), "hostPath": { "path": folder, "type": "DirectoryOrCreate" } }))
        .collect();
    let mounts: Vec<Value> = folders
        .iter()
        .enumerate()
        .map(|(at, (folder, read_only))| json!({ "name": name(at), "mountPath": folder, "readOnly": read_only }))
        .collect();
    let probe = |path: &str, failures: u32| {
        let port = run.listeners.serve_port;
        let get = json!({ "host": run.listeners.bind_address, "port": port, "path": path });
        json!({ "httpGet": get, "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": failures })
    };
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "edge-hub",
            "namespace": api::names::NAMESPACE,
            "labels": { "app.kubernetes.io/name": "edge-hub", "app.kubernetes.io/part-of": "isthmus" },
        },
        "spec": {
            "hostNetwork": true,
            // Without cluster DNS in the kubelet's configuration that is the node's resolver as well.
            "dnsPolicy": if cluster_dns { "ClusterFirstWithHostNet" } else { "Default" },
            "priorityClassName": "system-node-critical",
            "automountServiceAccountToken": false,
            "tolerations": [{ "operator": "Exists" }],
            "terminationGracePeriodSeconds": super::stop_seconds(run),
            "securityContext": { "runAsUser": 0, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "edge-hub",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": [binary, "run"],
                "args": options,
                "livenessProbe": probe("/livez", 6),
                "readinessProbe": probe("/readyz", 1),
                "resources": { "requests": { "cpu": "20m", "memory": "48Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
        },
    });
    format!("{pod:#}\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use crate::manifest::{
        ManifestError,
        tests::{printed, printed_with},
    };

    #[test]
    fn cluster_dns_is_for_who_asks_and_never_on_the_way_to_the_api_server() {
        let by = |server: &str, form: &[&str]| {
            let pod = printed_with(form, &["--node-name", "c1", "--tunnel", "--server-addr", server])?;
            let pod: Value = serde_json::from_str(&pod).unwrap();
            Ok::<_, ManifestError>(pod["spec"]["dnsPolicy"].as_str().unwrap().to_owned())
        };
        let gateway = ["static-pod", "--cluster-dns"];
        assert_eq!(by("https://api.example:6443", &["static-pod"]).unwrap(), "Default");
        for server in ["https://10.0.0.1:6443", "https://[fd00::1]:6443"] {
            assert_eq!(by(server, &gateway).unwrap(), "ClusterFirstWithHostNet", "{server}");
        }
        let named = by("https://10.0.0.1:6443,https://api.example:6443", &gateway);
        assert!(matches!(named, Err(ManifestError::ServerName(name)) if name == "api.example"));
        let unit = by("https://10.0.0.1:6443", &["systemd", "--cluster-dns"]);
        assert!(matches!(unit, Err(ManifestError::ClusterDnsOfUnit)));
    }

    #[test]
    fn the_container_keeps_its_own_root() {
        for (option, path, is_refused) in [
            ("--config", "/config.yaml", true),
            ("--config", "//config.yaml", true),
            ("--ca-file", "/ca.crt", true),
            ("--root-dir", "/", true),
            ("--root-dir", "/hub", false),
            ("--config", "/hub/config.yaml", false),
        ] {
            let words = ["--node-name", "a", "--server-addr", "https://a:1", option, path];
            let printed = printed("static-pod", &words);
            let refused = matches!(&printed, Err(ManifestError::InRoot(named)) if named == Path::new(path));
            assert_eq!((refused, printed.is_err()), (is_refused, is_refused), "{option} {path}");
        }
        let unit = ["--node-name", "a", "--server-addr", "https://a:1", "--config", "/config.yaml"];
        assert!(printed("systemd", &unit).is_ok(), "a unit mounts nothing");
    }

    #[test]
    fn the_pod_has_what_the_options_name_and_no_more() {
        let options = [
            "--node-name",
            "shop-1",
            "--server-addr",
            "https://10.0.0.1:6443",
            "--identity",
            "own",
            "--ca-cert-hash",
            &format!("sha256:{}", "0".repeat(64)),
            "--bootstrap-token-file",
            "/etc/edge-hub/token",
            "--serve-port",
            "11",
            "--node-metric",
        ];
        let pod: Value = serde_json::from_str(&printed("static-pod", &options).unwrap()).unwrap();
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["command"], serde_json::json!(["/edge-hub", "run"]), "where the image has it");
        assert_eq!(container["args"].as_array().unwrap().len(), options.len());
        let mounts: Vec<(&str, bool)> = container["volumeMounts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mount| (mount["mountPath"].as_str().unwrap(), mount["readOnly"].as_bool().unwrap()))
            .collect();
        assert_eq!(
            mounts,
            [
                ("/etc/edge-hub", true),
                ("/sys/fs/cgroup", true),
                ("/var/lib/kubelet/pki", true),
                ("/var/lib/edge-hub", false)
            ]
        );
        assert_eq!(container["readinessProbe"]["httpGet"]["port"], 11);
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
    }
}
