//! `check`: what it says, in both formats, and its exit code.

use std::{fs, io, process::Command};

use serde_json::Value;

use crate::node::Node;

/// Runs the binary itself: the exit code is its own.
fn check(node: &Node, words: &[&str]) -> (Option<i32>, String) {
    let arguments = node.arguments(&[&["check"], words].concat());
    let output = Command::new(env!("CARGO_BIN_EXE_edge-hub")).args(&arguments[1..]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code(), node.anonymous(&String::from_utf8(output.stdout).unwrap()))
}

#[test]
fn a_node_that_was_set_up_passes() {
    let node = Node::with_flannel();
    node.ok(&["enable"]);
    let (code, printed) = check(&node, &[]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(printed, @"
    ok       cni-configuration: 0-loopback.conf is the only CNI configuration in /etc/cni/net.d
    ok       loopback-plugin: /opt/cni/bin/loopback is there
    ok       kubelet-configuration: /var/lib/kubelet/config.yaml is a KubeletConfiguration
    note     cluster-dns: clusterDNS 10.96.0.10 in /var/lib/kubelet/config.yaml is not needed: pods on the node's network resolve names as the node does; it is used, and not reachable, only by pods with dnsPolicy ClusterFirstWithHostNet
    ok       kubelet-flags: no flag that the kubelet refuses (/var/lib/kubelet/kubeadm-flags.env)
    ok       node-labels: the kubelet registers the node as one of the host-network pool shop
    ");
}

#[test]
fn a_reader_that_closes_its_end_is_no_failure() {
    let node = Node::with_flannel();
    for (command, code) in [("check", 1), ("enable", 0), ("check", 0)] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut edge_hub = Command::new(env!("CARGO_BIN_EXE_edge-hub"));
        let output = edge_hub.args(&node.arguments(&[command])[1..]).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(code), ""), "{command}: it ends as it would have");
    }
}

#[test]
fn labels_that_the_kubelet_does_not_set_are_advised() {
    let node = Node::with_flannel();
    node.write("var/lib/kubelet/kubeadm-flags.env", "A=\"--node-labels=apps.openyurt.io/nodepool=van\"");
    let printed = node.ok(&["enable"]);
    let advice = printed.split_once("note: ").unwrap().1;
    let wanted = "--node-labels=apps.openyurt.io/nodepool=van,nodepool.openyurt.io/host-network=true,\
                  nodepool.openyurt.io/network-mode=node-network-mode,nodepool.openyurt.io/hostnetwork=true ";
    assert!(advice.contains(wanted), "{advice}");
    let (code, printed) = check(&node, &[]);
    assert_eq!(code, Some(0), "it is no problem: the manager labels the node, later");
    assert!(printed.contains("note     node-labels: ") && printed.contains(wanted), "{printed}");
    fs::remove_file(node.path("var/lib/kubelet/kubeadm-flags.env")).unwrap();
    assert!(check(&node, &[]).1.contains("--node-labels=apps.openyurt.io/nodepool=POOL,"));
}

/// What the binary answers: exit code and standard error.
fn fails(arguments: &[String]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edge-hub"));
    let output = command.args(&arguments[1..]).env("RUST_BACKTRACE", "1").output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_failure_is_one_line_and_its_code_tells_a_mistake_from_an_accident() {
    let node = Node::with_flannel();
    node.write("var/lib/edge-hub/hostnet/journal.json", "{");
    let (code, message) = fails(&node.arguments(&["enable"]));
    assert_eq!((code, message.lines().count()), (Some(70), 1), "{message}");
    assert!(message.starts_with("edge-hub: ") && message.contains("journal.json"), "{message}");
    for words in [&["enable", "--frobnicate"][..], &["wreck"], &[]] {
        assert_eq!(fails(&node.arguments(words)).0, Some(64), "{words:?}");
    }
}

#[test]
fn every_problem_has_a_remedy_and_fails_the_check() {
    type Break = fn(&Node);
    let table: [(&str, &str, Break); 13] = [
        ("cni-configuration", "is not set up", |node| drop(node.ok(&["disable"]))),
        ("cni-configuration", "finds 10-new.conf there", |node| node.write("etc/cni/net.d/10-new.conf", "")),
        ("cni-configuration", "not as it should be", |node| node.write("etc/cni/net.d/0-loopback.conf", "")),
        ("cni-configuration", "no usable 0-loopback.conf", |node| {
            fs::remove_file(node.path("etc/cni/net.d/0-loopback.conf")).unwrap();
        }),
        ("cni-configuration", "no usable 0-loopback.conf", |node| {
            fs::remove_dir_all(node.path("etc")).unwrap();
        }),
        ("loopback-plugin", "no loopback plugin in /opt/cni/bin", |node| {
            fs::remove_file(node.path("opt/cni/bin/loopback")).unwrap();
        }),
        ("loopback-plugin", "not an executable file", |node| node.mode("opt/cni/bin/loopback", 0o644)),
        ("kubelet-configuration", "does not exist", |node| {
            fs::remove_file(node.path("var/lib/kubelet/config.yaml")).unwrap();
        }),
        ("kubelet-configuration", "not a regular file", |node| {
            fs::remove_file(node.path("var/lib/kubelet/config.yaml")).unwrap();
            fs::create_dir(node.path("var/lib/kubelet/config.yaml")).unwrap();
        }),
        ("kubelet-configuration", "not UTF-8", |node| node.write("var/lib/kubelet/config.yaml", b"\xff\xfe")),
        ("kubelet-configuration", "no kind", |node| node.write("var/lib/kubelet/config.yaml", "")),
        ("kubelet-flags", "--cni-conf-dir, which kubelets since 1.24 refuse", |node| {
            node.write("var/lib/kubelet/kubeadm-flags.env", "A=\"--cni-conf-dir=/etc/cni/net.d\"");
        }),
        ("kubelet-flags", "not UTF-8", |node| node.write("var/lib/kubelet/kubeadm-flags.env", b"\xff")),
    ];
    for (name, message, damage) in table {
        let node = Node::with_flannel();
        node.ok(&["enable"]);
        damage(&node);
        let (code, printed) = check(&node, &["-o", "json"]);
        assert_eq!(code, Some(1), "{message}");
        let report: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(report["ok"], false);
        let problems: Vec<_> = report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|check| check["status"] == "problem")
            .collect();
        assert_eq!(problems.len(), 1, "{printed}");
        assert_eq!(problems[0]["name"], name);
        assert!(problems[0]["message"].as_str().unwrap().contains(message), "{printed}");
        assert!(!problems[0]["remedy"].as_str().unwrap().is_empty());
        let (code, text) = check(&node, &[]);
        assert_eq!(code, Some(1));
        assert!(text.contains("remedy: "), "{text}");
    }
}

#[test]
fn a_hand_made_set_up_passes_with_a_note() {
    let node = Node::new(&[("0-loopback.conf", crate::node::LOOPBACK)]);
    let (code, printed) = check(&node, &[]);
    assert_eq!(code, Some(0));
    assert!(printed.contains("`disable` will not undo it"), "{printed}");
}

#[test]
fn a_missing_file_of_flags_is_no_problem() {
    let node = Node::with_flannel();
    node.ok(&["enable"]);
    fs::remove_file(node.path("var/lib/kubelet/kubeadm-flags.env")).unwrap();
    assert_eq!(check(&node, &[]).0, Some(0));
}

#[test]
fn the_check_changes_nothing() {
    let node = Node::with_flannel();
    let before = node.tree();
    check(&node, &[]);
    assert_eq!(node.tree(), before);
    assert!(!node.exists("var/lib/edge-hub"));
}
