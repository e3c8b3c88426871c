//! Things that nobody expects in a folder of configurations: an error or indifference, never a panic or a hang.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener},
    process::Command,
};

use crate::node::Node;

const JOURNAL: &str = "var/lib/edge-hub/hostnet/journal.json";

fn make_pipe(node: &Node, path: &str) {
    assert!(Command::new("mkfifo").arg(node.path(path)).status().unwrap().success());
}

#[test]
fn entries_of_every_kind_are_set_aside_unopened_and_come_back() {
    let node = Node::new(&[("empty.conf", ""), ("10-a.conflist", "a"), (".conf", "hidden")]);
    node.write("etc/cni/net.d/binary.json", [0_u8, 0xff, 0xfe]);
    symlink("/nowhere/at/all", node.path("etc/cni/net.d/dangling.conf")).unwrap();
    symlink("10-a.conflist", node.path("etc/cni/net.d/relative.conflist")).unwrap();
    symlink("loop.conf", node.path("etc/cni/net.d/loop.conf")).unwrap();
    make_pipe(&node, "etc/cni/net.d/pipe.conf");
    drop(UnixListener::bind(node.path("etc/cni/net.d/socket.conf")).unwrap());
    fs::create_dir(node.path("etc/cni/net.d/folder.conf")).unwrap();
    node.write("etc/cni/net.d/unreadable.conf", "secret");
    node.mode("etc/cni/net.d/unreadable.conf", 0);
    let before = node.tree();
    node.ok(&["enable"]);
    assert_eq!(node.active(), ["0-loopback.conf", "folder.conf"], "runtimes pass over folders");
    assert_eq!(node.ok(&["enable"]), "nothing to do\n");
    node.ok(&["disable"]);
    assert_eq!(node.tree(), before);
}

#[test]
fn things_with_the_loopbacks_name() {
    let node = Node::new(&[]);
    fs::create_dir(node.path("etc/cni/net.d/0-loopback.conf")).unwrap();
    let error = node.run(&["enable"]).unwrap_err();
    assert!(
        error.contains("/etc/cni/net.d/0-loopback.conf is a folder") && error.contains("; remove it"),
        "{error}"
    );
    assert!(!node.exists(JOURNAL));

    let node = Node::new(&[]);
    make_pipe(&node, "etc/cni/net.d/0-loopback.conf");
    let before = node.tree();
    node.ok(&["enable"]);
    assert_eq!(node.active(), ["0-loopback.conf"]);
    node.ok(&["disable"]);
    assert_eq!(node.tree(), before);
}

#[test]
fn a_name_that_is_not_text_is_refused_only_if_it_matters() {
    let node = Node::new(&[]);
    let path = |name: &[u8]| node.path("etc/cni/net.d").join(OsStr::from_bytes(name));
    fs::write(path(b"\xff.txt"), "").unwrap();
    fs::create_dir(path(b"\xfd.conf")).unwrap();
    node.ok(&["enable"]);
    node.ok(&["disable"]);
    fs::write(path(b"\xff.conf"), "").unwrap();
    let error = node.run(&["enable"]).unwrap_err();
    assert!(error.contains("is not UTF-8; rename or remove it"), "{error}");
}

#[test]
fn a_folder_that_is_none() {
    let node = Node::new(&[]);
    fs::remove_dir(node.path("etc/cni/net.d")).unwrap();
    node.write("etc/cni/net.d", "a file");
    let error = node.run(&["enable"]).unwrap_err();
    assert!(error.contains("/etc/cni/net.d is not a folder; remove it"), "{error}");

    let node = Node::new(&[]);
    node.write("var/lib/edge-hub/hostnet", "a file");
    let error = node.run(&["enable"]).unwrap_err();
    assert!(error.contains("/var/lib/edge-hub/hostnet") && error.contains("--state-dir"), "{error}");

    let node = Node::new(&[]);
    fs::create_dir_all(node.path("elsewhere")).unwrap();
    fs::remove_dir(node.path("etc/cni/net.d")).unwrap();
    symlink(node.path("elsewhere"), node.path("etc/cni/net.d")).unwrap();
    let before = node.tree();
    node.ok(&["enable"]);
    assert!(node.exists("elsewhere/0-loopback.conf"), "a link to a folder is as good as one");
    node.ok(&["disable"]);
    assert_eq!(node.tree(), before);
}

#[test]
fn a_journal_that_cannot_be_understood_stops_everything() {
    let damaged: [(&[u8], &str); 8] = [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"null", "is damaged"),
        (b"\xff\xfe", "not UTF-8"),
        (br#"{"format":1,"steps":[{"explode":{}}]}"#, "explode"),
        (br#"{"format":1,"steps":[{"write":{"path":"/x"}}]}"#, "content"),
        (br#"{"format":-1,"steps":[]}"#, "is damaged"),
        (br#"{"format":2,"somethingNew":[]}"#, "format 2, this edge-hub knows 1; use the newer edge-hub"),
    ];
    for (content, expected) in damaged {
        let node = Node::with_flannel();
        node.write(JOURNAL, content);
        let before = node.tree();
        for command in ["enable", "disable"] {
            let error = node.run(&[command]).unwrap_err();
            assert!(error.contains(JOURNAL) && error.contains(expected) && error.contains("; "), "{error}");
        }
        assert_eq!(node.tree(), before);
        let (printed, _) = node.run(&["check"]).unwrap();
        let message = expected.split("; ").next().unwrap();
        assert!(printed.contains("problem") && printed.contains(message), "{printed}");
    }
    let node = Node::with_flannel();
    fs::create_dir_all(node.path(JOURNAL)).unwrap();
    assert!(node.run(&["disable"]).unwrap_err().contains("not a regular file"));
}

#[test]
fn left_overs_of_an_interrupted_write_are_not_followed() {
    let node = Node::with_flannel();
    node.write("precious", "keep me");
    symlink(node.path("precious"), node.path("etc/cni/net.d/.0-loopback.conf.isthmus-new")).unwrap();
    node.ok(&["enable"]);
    assert_eq!(node.read("precious"), "keep me");
    assert!(!node.exists("etc/cni/net.d/.0-loopback.conf.isthmus-new"));
}
