//! Checks whether this node is fit for a host-network pool. Reads only.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path};

use api::labels::{HOST_NETWORK_NODE, NODE_POOL};
use serde::Serialize;

use super::{
    LOOPBACK_FILE, Paths,
    conf_dir::ConfDir,
    journal::Journal,
    kubelet::{self, BadFlag},
    plan, read,
};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    /// Nothing is wrong, but a person may want to know.
    Note,
    Problem,
}

/// What was checked, and what to do if it is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, message: message.into(), remedy: None }
    }

    fn note(name: &'static str, message: impl Into<String>) -> Self {
        Self { status: Status::Note, ..Self::ok(name, message) }
    }

    fn problem(name: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Problem, remedy: Some(remedy.into()), ..Self::ok(name, message) }
    }

    /// A problem from an error. Those of this program end with what to do, after the last semicolon.
    fn error(name: &'static str, error: &dyn std::error::Error) -> Self {
        let text = error.to_string();
        match text.rsplit_once("; ") {
            Some((message, remedy)) => Self::problem(name, message, remedy),
            None => Self::problem(name, text, "correct that and check again"),
        }
    }
}

/// Whether no check found a problem.
pub(super) fn passed(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.status != Status::Problem)
}

/// Every check.
pub(super) fn all(paths: &Paths) -> Vec<Check> {
    let mut checks = vec![network(paths)];
    checks.extend(kubelet(paths));
    checks
}

/// The checks of what `enable` does not set up itself.
pub(super) fn kubelet(paths: &Paths) -> Vec<Check> {
    let Paths { cni_conf_dir: _, state_dir: _, cni_bin_dirs, kubelet_config, kubelet_flags_files } = paths;
    let mut checks = vec![loopback_plugin(cni_bin_dirs)];
    checks.extend(configuration(kubelet_config));
    checks.push(flags(kubelet_flags_files));
    checks.push(labels(kubelet_flags_files));
    checks
}

/// Whether the loopback is the only network, and whether `enable` was interrupted.
fn network(paths: &Paths) -> Check {
    const NAME: &str = "cni-configuration";
    let journal = match Journal::load(&paths.state_dir) {
        Ok(journal) => journal,
        Err(error) => return Check::error(NAME, &error),
    };
    let folder = match ConfDir::observe(&paths.cni_conf_dir) {
        Ok(folder) => folder,
        Err(error) => return Check::error(NAME, &error),
    };
    let plan = match plan::enable(&folder, &journal) {
        Ok(plan) => plan,
        Err(error) => return Check::error(NAME, &error),
    };
    let dir = folder.path.display();
    if plan.operations.is_empty() {
        let only = format!("{LOOPBACK_FILE} is the only CNI configuration in {dir}");
        return if journal.is_empty() {
            Check::note(NAME, format!("{only}; it was not set up by edge-hub, `disable` will not undo it"))
        } else {
            Check::ok(NAME, only)
        };
    }
    let others: Vec<_> = folder.active().filter(|name| *name != LOOPBACK_FILE).map(String::as_str).collect();
    let mut what = match folder.loopback() {
        Some(super::LOOPBACK_CONTENT) => format!("{dir} has {LOOPBACK_FILE}"),
        Some(_) => format!("{LOOPBACK_FILE} in {dir} is not as it should be"),
        None => format!("{dir} has no usable {LOOPBACK_FILE}"),
    };
    if !others.is_empty() {
        what = format!("{what}, and the container runtime finds {} there", others.join(", "));
    }
    if journal.is_empty() {
        Check::problem(
            NAME,
            format!("host-network mode is not set up: {what}"),
            "run `edge-hub hostnet enable`",
        )
    } else {
        Check::problem(
            NAME,
            format!("host-network mode is set up in part, or was changed since: {what}"),
            "run `edge-hub hostnet enable` to complete it, or `edge-hub hostnet disable` to undo it; if files \
             come back, keep the network's DaemonSet off this node with `isthmus-manager hostnet apply`",
        )
    }
}

fn loopback_plugin(dirs: &[impl AsRef<Path>]) -> Check {
    const NAME: &str = "loopback-plugin";
    let mut unusable = None;
    for dir in dirs {
        let path = dir.as_ref().join("loopback");
        match fs::metadata(&path) {
            Ok(data) if data.is_file() && data.permissions().mode() & 0o111 != 0 => {
                return Check::ok(NAME, format!("{} is there", path.display()));
            }
            Ok(_) => unusable = Some(path),
            Err(_) => {}
        }
    }
    let remedy = "install the CNI plugins (package containernetworking-plugins, or \
                  https://github.com/containernetworking/plugins), or name their folder with --cni-bin-dir";
    let message = if let Some(path) = unusable {
        format!("{} is not an executable file", path.display())
    } else {
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.as_ref().display().to_string()).collect();
        format!("no loopback plugin in {}", dirs.join(" or "))
    };
    Check::problem(NAME, message, remedy)
}

fn configuration(path: &Path) -> Vec<Check> {
    const NAME: &str = "kubelet-configuration";
    let at = path.display();
    let text = match read::text(path) {
        Ok(text) => text,
        Err(error @ read::Error::NotFound) => {
            let remedy = "if its kubelet runs, name the file of its --config with --kubelet-config; if not, join the node first";
            return vec![Check::problem(NAME, format!("cannot read {at}: {error}"), remedy)];
        }
        Err(error) => {
            let remedy = "make it a readable text file, or run edge-hub as root";
            return vec![Check::problem(NAME, format!("cannot read {at}: {error}"), remedy)];
        }
    };
    match kubelet::configuration(&text) {
        Err(reason) => vec![Check::problem(
            NAME,
            format!("{at} is not a KubeletConfiguration: {reason}"),
            "correct the file; the kubelet does not start with it",
        )],
        Ok(found) => {
            let dns = match found.cluster_dns {
                Some(servers) if !servers.is_empty() => Check::note(
                    "cluster-dns",
                    format!(
                        "clusterDNS {} in {at} is not needed: pods on the node's network resolve names as the node does; \
                         it is used, and not reachable, only by pods with dnsPolicy ClusterFirstWithHostNet",
                        servers.join(", ")
                    ),
                ),
                _ => Check::ok("cluster-dns", format!("{at} names no cluster DNS, none is needed")),
            };
            vec![Check::ok(NAME, format!("{at} is a KubeletConfiguration")), dns]
        }
    }
}

/// Whether the node is one of a host-network pool from its first moment: labels that the controller puts there come a few
/// seconds later, and kube-proxy may be faster. The API server lets a kubelet set these itself.
fn labels(paths: &[impl AsRef<Path>]) -> Check {
    const NAME: &str = "node-labels";
    // What cannot be read is said by the check of the flags.
    let texts: Vec<String> = paths.iter().filter_map(|path| read::text(path.as_ref()).ok()).collect();
    let given: BTreeMap<&str, &str> = texts.iter().flat_map(|text| kubelet::node_labels(text)).collect();
    let pool = given.get(NODE_POOL).filter(|pool| !pool.is_empty());
    let marked = HOST_NETWORK_NODE.iter().all(|(key, value)| given.get(key) == Some(value));
    if let (Some(pool), true) = (pool, marked) {
        return Check::ok(
            NAME,
            format!("the kubelet registers the node as one of the host-network pool {pool}"),
        );
    }
    let marks: Vec<String> = HOST_NETWORK_NODE.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let message = "no file of flags has the kubelet register the node as one of a host-network pool: when it joins, a \
                   kube-proxy pod may come for the seconds until the manager has put the labels there";
    let remedy = format!(
        "for a node that is yet to join, give its kubelet --node-labels={NODE_POOL}={},{} (KUBELET_EXTRA_ARGS in \
         /etc/default/kubelet, or nodeRegistration.kubeletExtraArgs of kubeadm); a node that has joined needs nothing",
        pool.unwrap_or(&"POOL"),
        marks.join(",")
    );
    Check { remedy: Some(remedy), ..Check::note(NAME, message) }
}

fn flags(paths: &[impl AsRef<Path>]) -> Check {
    const NAME: &str = "kubelet-flags";
    let mut problems = Vec::new();
    let mut read = Vec::new();
    for path in paths {
        let path = path.as_ref();
        match read::text(path) {
            Err(read::Error::NotFound) => {}
            Err(error) => problems.push(format!("cannot read {}: {error}", path.display())),
            Ok(text) => {
                read.push(path.display().to_string());
                problems.extend(kubelet::bad_flags(&text).into_iter().map(|bad| match bad {
                    BadFlag::Removed(flag) => {
                        format!("{} has {flag}, which kubelets since 1.24 refuse", path.display())
                    }
                    BadFlag::Dash(flag) => {
                        format!("{} has {flag}, which begins with a dash that is not `--`", path.display())
                    }
                }));
            }
        }
    }
    if problems.is_empty() {
        let read = if read.is_empty() { "no file of flags".to_owned() } else { read.join(", ") };
        return Check::ok(NAME, format!("no flag that the kubelet refuses ({read})"));
    }
    Check::problem(
        NAME,
        problems.join("; "),
        "take the flags out, then `systemctl restart kubelet`: the container runtime finds CNI configurations by \
         itself, in the folder that its own configuration names",
    )
}
