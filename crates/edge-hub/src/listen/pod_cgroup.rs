//! Which cgroups are those of pods: the kubelet makes them all below one that is named `kubepods`.
//!
//! | driver | path |
//! |---|---|
//! | cgroupfs | `/kubepods/besteffort/pod<UID>/<ID>` |
//! | systemd | `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID>.slice/cri-containerd-<ID>.scope` |
//! | with `--cgroup-root` | `/<ROOT>/kubepods/…`, `/<ROOT>.slice/<ROOT>-kubepods.slice/…` (kind: `kubelet`) |

use std::path::Path;

use super::caller_process::Origin;

/// Whether no cgroup of version 1 is mounted, by the text of `/proc/self/cgroup`. Beside version 1 the cgroup of version 2 says nothing:
/// who makes a container may leave it in its own.
pub(super) fn only_version_2(text: &str) -> bool {
    !text.is_empty() && text.lines().all(|line| line.starts_with("0::"))
}

/// Where a process belongs, by the text of its `/proc/PID/cgroup` (cgroups(7)): `ID:CONTROLLERS:PATH` of each hierarchy.
pub(super) fn origin(text: &str) -> Option<Origin> {
    let paths: Option<Vec<&str>> = text.lines().map(|line| line.splitn(3, ':').nth(2)).collect();
    let paths = paths.filter(|paths| !paths.is_empty())?;
    if paths.iter().any(|path| is_of_pods(path)) {
        return Some(Origin::Pod);
    }
    if paths.iter().any(|path| is_service_of_runtime(path)) {
        return Some(Origin::Runtime);
    }
    // Seen from a cgroup namespace of our own: what is outside is not shown by its name.
    let is_outside = |path: &&str| path.split('/').any(|part| part == "..");
    (!paths.iter().any(is_outside)).then_some(Origin::Node)
}

/// The same by the path of its only cgroup.
pub(super) fn origin_of_path(path: &Path) -> Origin {
    let path = path.to_string_lossy();
    if is_of_pods(&path) {
        Origin::Pod
    } else if is_service_of_runtime(&path) {
        Origin::Runtime
    } else {
        Origin::Node
    }
}

/// Names of container runtimes' daemons, of their processes and, with `.service`, of their units. Asked to forward a port of a pod that has the
/// node's network they connect to the node's loopback themselves (containerd, `internal/cri/server/sandbox_portforward_linux.go`).
const RUNTIMES: [&str; 6] = ["containerd", "crio", "cri-o", "dockerd", "docker", "cri-dockerd"];

/// Whether a process of this name is a container runtime.
pub(super) fn is_of_runtime(name: &str) -> bool {
    RUNTIMES.contains(&name)
}

fn is_service_of_runtime(path: &str) -> bool {
    path.split('/').filter_map(|part| part.strip_suffix(".service")).any(is_of_runtime)
}

fn is_of_pods(path: &str) -> bool {
    path.split('/').any(|part| part.trim_end_matches(".slice").split('-').any(|word| word == "kubepods"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_of_pods_are_known_by_the_kubelets_name_for_them() {
        let pods = [
            "0::/kubepods/besteffort/pod7d0c/4711\n",
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7d0c.slice/cri-containerd-4711.scope\n",
            "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/x.scope\n",
            "0::/kubelet/kubepods/pod7d0c/4711\n",
            "9:name=systemd:/system.slice/containerd.service\n4:memory:/isthmus/bench/n/kubepods/pod7d0c/4711\n0::/system.slice/containerd.service\n",
            "0::/../../kubepods.slice/x\n",
        ];
        for text in pods {
            assert_eq!(origin(text), Some(Origin::Pod), "{text}");
        }
        let nodes = [
            "0::/system.slice/kubelet.service\n",
            "12:cpu,cpuacct:/\n1:name=systemd:/user.slice/user-0.slice/session-1.scope\n0::/\n",
            "0::/system.slice/not-my-kubepodsy.service\n",
        ];
        for text in nodes {
            assert_eq!(origin(text), Some(Origin::Node), "{text}");
        }
        for unit in ["containerd", "crio", "docker"] {
            assert_eq!(origin(&format!("0::/system.slice/{unit}.service\n")), Some(Origin::Runtime));
            let path = format!("/sys/fs/cgroup/system.slice/{unit}.service");
            assert_eq!(origin_of_path(Path::new(&path)), Origin::Runtime);
        }
        for text in ["", "nonsense", "0::/../besteffort/pod7d0c\n"] {
            assert_eq!(origin(text), None, "{text:?}");
        }
        assert_eq!(origin_of_path(Path::new("/sys/fs/cgroup/kubepods.slice/x")), Origin::Pod);
        assert_eq!(origin_of_path(Path::new("/sys/fs/cgroup/system.slice")), Origin::Node);
    }

    #[test]
    fn version_2_is_alone_only_if_nothing_is_mounted_beside_it() {
        assert!(only_version_2("0::/x\n"));
        assert!(
            !only_version_2("9:name=systemd:/\n0::/\n")
                && !only_version_2("1:cpu:/\n")
                && !only_version_2("")
        );
    }
}
