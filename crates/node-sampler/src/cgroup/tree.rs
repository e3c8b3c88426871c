//! Which pods there are, by the names of the folders that the kubelet makes: `kubepods/burstable/pod<uid>` with driver `cgroupfs`,
//! `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice` with driver `systemd`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The most pods that are looked at: as many as fit a report.
const MOST: usize = node_report::report::MAX_PODS;

/// Pods beneath `root`/`parent`, by UID, with their path beneath `root`, in the order of their UIDs.
pub fn pods(root: &Path, parent: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for top in tops(parent) {
        look(root, &top, &mut found);
        for class in ["burstable", "besteffort"] {
            look(root, &of_class(&top, class), &mut found);
        }
    }
    found.sort_unstable();
    found.dedup_by(|a, b| a.0 == b.0);
    found.truncate(MOST);
    found
}

/// The folder of pods of a class (empty: of all) beneath `root`: the first that is there, else that of driver `cgroupfs`.
pub(super) fn kubepods(root: &Path, parent: &Path, class: &str) -> PathBuf {
    let tops = tops(parent);
    let top = tops.iter().find(|top| root.join(top).exists()).or(tops.first());
    let top = top.cloned().unwrap_or_default();
    if class.is_empty() { top } else { of_class(&top, class) }
}

/// Where the kubelet's tree may begin, by driver.
fn tops(parent: &Path) -> Vec<PathBuf> {
    // With driver systemd `--cgroup-root=/a` means `a.slice/a-kubepods.slice`.
    let slice = parent.to_str().filter(|parent| !parent.is_empty()).map(|parent| parent.replace('/', "-"));
    match &slice {
        None => vec![PathBuf::from("kubepods"), PathBuf::from("kubepods.slice")],
        Some(slice) => {
            vec![
                parent.join("kubepods"),
                Path::new(&format!("{slice}.slice")).join(format!("{slice}-kubepods.slice")),
            ]
        }
    }
}

fn of_class(top: &Path, class: &str) -> PathBuf {
    let name = top.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    top.join(match name.strip_suffix(".slice") {
        Some(stem) => format!("{stem}-{class}.slice"),
        None => class.to_owned(),
    })
}

fn look(root: &Path, folder: &Path, found: &mut Vec<(String, PathBuf)>) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return };
    for entry in entries.flatten() {
        if let Some(uid) = entry.file_name().to_str().and_then(uid) {
            found.push((uid, folder.join(entry.file_name())));
        }
    }
}

/// The UID in the name of a pod's folder; systemd's names have no dashes within a part, so the kubelet writes underscores.
pub fn uid(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        Some(stem) => stem.rsplit_once("-pod")?.1.replace('_', "-"),
        None => name.strip_prefix("pod")?.to_owned(),
    };
    let is_uid =
        (8..=64).contains(&uid.len()) && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::uid;

    #[test]
    fn names_of_both_drivers_are_known() {
        let id = "0f5d3c1e-1111-2222-3333-444455556666";
        for (name, expected) in [
            ("pod0f5d3c1e-1111-2222-3333-444455556666", Some(id)),
            ("kubepods-pod0f5d3c1e_1111_2222_3333_444455556666.slice", Some(id)),
            ("kubepods-besteffort-pod0f5d3c1e_1111_2222_3333_444455556666.slice", Some(id)),
            ("podd41d8cd98f00b204e9800998ecf8427e", Some("d41d8cd98f00b204e9800998ecf8427e")),
            ("kubepods-burstable.slice", None),
            ("burstable", None),
            ("pod", None),
            ("pod../../etc", None),
            ("podman-12345678", None),
            ("cgroup.procs", None),
        ] {
            assert_eq!(uid(name).as_deref(), expected, "{name}");
        }
    }
}
