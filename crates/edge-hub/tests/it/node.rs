//! A node's folders in a temporary place, and what is in them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use api::labels::{HOST_NETWORK_NODE, NODE_POOL};
use clap::Parser;
use edge_hub::{
    Args, Command,
    hostnet::{self, Disk, RealDisk},
};
use tempfile::TempDir;

pub(crate) const LOOPBACK: &str =
    "{\n  \"cniVersion\": \"0.3.0\",\n  \"name\": \"lo\",\n  \"type\": \"loopback\"\n}\n";

/// What is at each path under the node's root: its mode, and its content, link target or kind.
pub(crate) type Tree = BTreeMap<PathBuf, (u32, String)>;

pub(crate) struct Node {
    root: TempDir,
}

impl Node {
    /// A node that was joined with kubeadm, has the CNI plugins and these CNI configurations.
    pub(crate) fn new(configurations: &[(&str, &str)]) -> Self {
        let node = Self { root: TempDir::new().unwrap() };
        node.write("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nclusterDNS: [10.96.0.10]\n");
        let marks = HOST_NETWORK_NODE.map(|(key, value)| format!("{key}={value}")).join(",");
        let flags = format!("--node-ip=10.0.0.2 --node-labels={NODE_POOL}=shop,{marks}");
        node.write("var/lib/kubelet/kubeadm-flags.env", format!("KUBELET_KUBEADM_ARGS=\"{flags}\"\n"));
        node.write("opt/cni/bin/loopback", "#!/bin/sh\n");
        node.mode("opt/cni/bin/loopback", 0o755);
        fs::create_dir_all(node.path("etc/cni/net.d")).unwrap();
        for (name, content) in configurations {
            node.write(&format!("etc/cni/net.d/{name}"), content);
        }
        node
    }

    /// A node on which the agent of a network has run.
    pub(crate) fn with_flannel() -> Self {
        Self::new(&[
            ("10-flannel.conflist", "{\"name\":\"cbr0\"}"),
            ("87-podman.conflist", "{}"),
            ("README", "x"),
        ])
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.path(path)).is_ok()
    }

    pub(crate) fn arguments(&self, words: &[&str]) -> Vec<String> {
        let flag = |name: &str, path: &str| format!("--{name}={}", self.path(path).display());
        let mut arguments = vec!["edge-hub".to_owned(), "hostnet".to_owned()];
        arguments.extend(words.iter().map(|word| (*word).to_owned()));
        arguments.extend([
            flag("cni-conf-dir", "etc/cni/net.d"),
            flag("state-dir", "var/lib/edge-hub/hostnet"),
            flag("cni-bin-dir", "opt/cni/bin"),
            flag("kubelet-config", "var/lib/kubelet/config.yaml"),
            flag("kubelet-flags-file", "var/lib/kubelet/kubeadm-flags.env"),
        ]);
        arguments
    }

    /// Runs `edge-hub hostnet` with these words on a disk, and returns what it printed, the root's path taken out.
    pub(crate) fn run_on(&self, disk: &mut dyn Disk, words: &[&str]) -> Result<(String, ExitCode), String> {
        let Command::Hostnet(args) = Args::try_parse_from(self.arguments(words)).unwrap().command else {
            panic!("not a command about host-network pools");
        };
        let mut out = Vec::new();
        let result = hostnet::run(args, disk, &mut out);
        let out = self.anonymous(&String::from_utf8(out).unwrap());
        result.map(|code| (out, code)).map_err(|error| self.anonymous(&error.to_string()))
    }

    pub(crate) fn run(&self, words: &[&str]) -> Result<(String, ExitCode), String> {
        self.run_on(&mut RealDisk, words)
    }

    /// Runs something that has to succeed.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        self.run(words).unwrap().0
    }

    pub(crate) fn anonymous(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.root.path().display()), "/")
    }

    /// All files. The journal's own folder counts with its files only: it stays, empty, when nothing is recorded.
    pub(crate) fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        collect(self.root.path(), self.root.path(), &mut tree);
        tree.retain(|path, (_, content)| !(path.starts_with("var/lib/edge-hub") && content == "folder"));
        tree
    }

    /// What the container runtime would read.
    pub(crate) fn active(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path("etc/cni/net.d"))
            .map(|dir| dir.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        names.retain(|name| [".conf", ".conflist", ".json"].iter().any(|end| name.ends_with(end)));
        names.sort();
        names
    }
}

fn collect(root: &Path, dir: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let data = fs::symlink_metadata(&path).unwrap();
        let content = if data.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else if data.is_dir() {
            collect(root, &path, tree);
            "folder".to_owned()
        } else if data.is_file() {
            String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
        } else {
            "special".to_owned()
        };
        tree.insert(
            path.strip_prefix(root).unwrap().to_owned(),
            (data.permissions().mode() & 0o7777, content),
        );
    }
}
