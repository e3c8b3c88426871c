//! What `enable` and `disable` do when nothing goes wrong.

use std::{fs, os::unix::fs::symlink};

use crate::node::{LOOPBACK, Node};

const CONF: &str = "etc/cni/net.d";
const JOURNAL: &str = "var/lib/edge-hub/hostnet/journal.json";

#[test]
fn the_loopback_becomes_the_only_configuration_and_everything_comes_back() {
    let node = Node::with_flannel();
    let before = node.tree();
    insta::assert_snapshot!(node.ok(&["enable"]), @r#"
    --- /dev/null
    +++ /etc/cni/net.d/0-loopback.conf
    @@ -0,0 +1,5 @@
    +{
    +  "cniVersion": "0.3.0",
    +  "name": "lo",
    +  "type": "loopback"
    +}
    rename from /etc/cni/net.d/10-flannel.conflist
    rename to   /etc/cni/net.d/10-flannel.conflist.isthmus-disabled
    rename from /etc/cni/net.d/87-podman.conflist
    rename to   /etc/cni/net.d/87-podman.conflist.isthmus-disabled
    done
    "#);
    assert_eq!(node.active(), ["0-loopback.conf"]);
    assert_eq!(node.read("etc/cni/net.d/0-loopback.conf"), LOOPBACK);
    assert_eq!(node.tree()[&std::path::PathBuf::from(CONF).join("0-loopback.conf")].0, 0o644);
    assert_eq!(node.tree()[std::path::Path::new(JOURNAL)].0, 0o600);
    assert_eq!(fs::metadata(node.path("var/lib/edge-hub/hostnet")).unwrap().permissions(), {
        use std::os::unix::fs::PermissionsExt;
        fs::Permissions::from_mode(0o40_700)
    });

    insta::assert_snapshot!(node.ok(&["disable"]), @r#"
    rename from /etc/cni/net.d/87-podman.conflist.isthmus-disabled
    rename to   /etc/cni/net.d/87-podman.conflist
    rename from /etc/cni/net.d/10-flannel.conflist.isthmus-disabled
    rename to   /etc/cni/net.d/10-flannel.conflist
    --- /etc/cni/net.d/0-loopback.conf
    +++ /dev/null
    @@ -1,5 +0,0 @@
    -{
    -  "cniVersion": "0.3.0",
    -  "name": "lo",
    -  "type": "loopback"
    -}
    done
    "#);
    assert_eq!(node.tree(), before);
}

#[test]
fn a_second_run_finds_nothing_to_do() {
    let node = Node::with_flannel();
    node.ok(&["enable"]);
    let enabled = node.tree();
    assert_eq!(node.ok(&["enable"]), "nothing to do\n");
    assert_eq!(node.tree(), enabled);
    node.ok(&["disable"]);
    let disabled = node.tree();
    assert_eq!(node.ok(&["disable"]), "nothing to do\n");
    assert_eq!(node.tree(), disabled);
}

#[test]
fn disabling_what_was_never_enabled_makes_not_even_a_folder() {
    let node = Node::with_flannel();
    assert_eq!(node.ok(&["disable"]), "nothing to do\n");
    assert!(!node.exists("var/lib/edge-hub"));
}

#[test]
fn a_dry_run_says_the_same_and_changes_nothing() {
    let node = Node::with_flannel();
    let before = node.tree();
    let announced = node.ok(&["enable", "--dry-run"]);
    assert_eq!(node.tree(), before);
    assert!(!node.exists("var/lib/edge-hub"));
    let said = node.ok(&["enable"]);
    assert_eq!(announced.replace("dry run: nothing was changed\n", "done\n"), said);

    let enabled = node.tree();
    let announced = node.ok(&["disable", "--dry-run"]);
    assert_eq!(node.tree(), enabled);
    let said = node.ok(&["disable"]);
    assert_eq!(announced.replace("dry run: nothing was changed\n", "done\n"), said);
}

#[test]
fn folders_that_do_not_exist_are_made_and_taken_away_again() {
    let node = Node::new(&[]);
    fs::remove_dir_all(node.path("etc")).unwrap();
    let before = node.tree();
    node.ok(&["enable"]);
    assert_eq!(node.active(), ["0-loopback.conf"]);
    let nothing_left = "no network configuration is left in /etc/cni/net.d";
    assert!(node.ok(&["disable"]).contains(nothing_left));
    assert_eq!(node.tree(), before);

    node.ok(&["enable"]);
    node.write("etc/cni/net.d/10-new.conflist", "{}");
    assert!(!node.ok(&["disable"]).contains(nothing_left));
    assert_eq!(node.active(), ["10-new.conflist"], "a folder that others use now stays");
}

#[test]
fn what_was_set_up_by_hand_is_left_as_it_is() {
    let node = Node::new(&[("0-loopback.conf", LOOPBACK)]);
    let before = node.tree();
    assert_eq!(node.ok(&["enable"]), "nothing to do\n");
    assert_eq!(node.tree(), before);
    assert_eq!(node.ok(&["disable"]), "nothing to do\n");
    assert_eq!(node.tree(), before);
}

#[test]
fn another_loopback_configuration_comes_back_too() {
    for kind in ["file", "link"] {
        let node = Node::new(&[("10-flannel.conflist", "{}")]);
        if kind == "file" {
            node.write("etc/cni/net.d/0-loopback.conf", "{\"type\":\"loopback\"}");
        } else {
            node.write("etc/somewhere.conf", LOOPBACK);
            symlink("../../somewhere.conf", node.path("etc/cni/net.d/0-loopback.conf")).unwrap();
        }
        let before = node.tree();
        node.ok(&["enable"]);
        assert_eq!(node.active(), ["0-loopback.conf"]);
        assert!(!node.path("etc/cni/net.d/0-loopback.conf").is_symlink());
        assert_eq!(node.read("etc/cni/net.d/0-loopback.conf"), LOOPBACK);
        assert_eq!(node.ok(&["enable"]), "nothing to do\n");
        let printed = node.ok(&["disable"]);
        assert!(!printed.contains("note:"), "{printed}");
        assert_eq!(node.tree(), before, "{kind}");
    }
}

#[test]
fn files_that_a_daemon_set_writes_again_are_set_aside_again() {
    let node = Node::with_flannel();
    node.ok(&["enable"]);
    node.write("etc/cni/net.d/10-flannel.conflist", "newer");
    node.ok(&["enable"]);
    assert_eq!(node.active(), ["0-loopback.conf"]);
    assert_eq!(node.read("etc/cni/net.d/10-flannel.conflist.isthmus-disabled-2"), "newer");

    let printed = node.ok(&["disable"]);
    assert_eq!(node.read("etc/cni/net.d/10-flannel.conflist"), "newer");
    assert!(
        printed.contains("note: /etc/cni/net.d/10-flannel.conflist was written again since"),
        "{printed}"
    );
    assert!(node.exists("etc/cni/net.d/10-flannel.conflist.isthmus-disabled"), "nothing is thrown away");
    assert_eq!(node.ok(&["disable"]), "nothing to do\n");
}

#[test]
fn what_others_changed_since_is_left_alone_and_told() {
    let node = Node::with_flannel();
    node.ok(&["enable"]);
    node.write("etc/cni/net.d/0-loopback.conf", "mine now");
    fs::remove_file(node.path("etc/cni/net.d/87-podman.conflist.isthmus-disabled")).unwrap();
    let printed = node.ok(&["disable"]);
    assert!(
        printed.contains("note: /etc/cni/net.d/0-loopback.conf was changed since and stays"),
        "{printed}"
    );
    assert!(printed.contains("note: /etc/cni/net.d/87-podman.conflist is gone"), "{printed}");
    assert_eq!(node.active(), ["0-loopback.conf", "10-flannel.conflist"]);
    assert_eq!(node.read("etc/cni/net.d/0-loopback.conf"), "mine now");
}

#[test]
fn a_changed_loopback_configuration_is_set_right() {
    let node = Node::new(&[]);
    let before = node.tree();
    node.ok(&["enable"]);
    node.write("etc/cni/net.d/0-loopback.conf", "broken");
    node.ok(&["enable"]);
    assert_eq!(node.read("etc/cni/net.d/0-loopback.conf"), LOOPBACK);
    node.ok(&["disable"]);
    assert_eq!(
        node.read("etc/cni/net.d/0-loopback.conf"),
        "broken",
        "what somebody wrote is not thrown away"
    );
    fs::remove_file(node.path("etc/cni/net.d/0-loopback.conf")).unwrap();
    assert_eq!(node.tree(), before);
}

#[test]
fn a_name_that_is_taken_is_not_overwritten() {
    let node = Node::new(&[("a.conf", "active"), ("a.conf.isthmus-disabled", "somebody's")]);
    let before = node.tree();
    node.ok(&["enable"]);
    assert_eq!(node.read("etc/cni/net.d/a.conf.isthmus-disabled"), "somebody's");
    assert_eq!(node.read("etc/cni/net.d/a.conf.isthmus-disabled-2"), "active");
    node.ok(&["disable"]);
    assert_eq!(node.tree(), before);
}

#[test]
fn another_folder_than_the_enabled_one_is_refused() {
    let node = Node::with_flannel();
    node.ok(&["enable"]);
    fs::rename(node.path(CONF), node.path("etc/cni/elsewhere")).unwrap();
    fs::create_dir(node.path(CONF)).unwrap();
    let mut words = node.arguments(&["enable"]);
    words[3] = format!("--cni-conf-dir={}", node.path("etc/cni/elsewhere").display());
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_edge-hub")).args(&words[1..]).output().unwrap();
    assert_eq!(output.status.code(), Some(70));
    let error = node.anonymous(&String::from_utf8(output.stderr).unwrap());
    assert!(error.contains("enabled for /etc/cni/net.d, not for /etc/cni/elsewhere; run"), "{error}");
}

#[test]
fn a_second_process_is_kept_off() {
    let node = Node::with_flannel();
    node.ok(&["enable"]);
    let folder = fs::File::open(node.path("var/lib/edge-hub/hostnet")).unwrap();
    folder.lock().unwrap();
    let error = node.run(&["disable"]).unwrap_err();
    assert!(error.contains("another edge-hub works on /var/lib/edge-hub/hostnet; wait"), "{error}");
    folder.unlock().unwrap();
    node.ok(&["disable"]);
}

#[test]
fn what_enable_cannot_set_right_is_told() {
    let node = Node::new(&[]);
    node.write("var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--network-plugin=cni\"");
    let printed = node.ok(&["enable"]);
    assert!(printed.contains("warning: "), "{printed}");
    assert!(printed.contains("--network-plugin"), "{printed}");
    assert!(printed.contains("remedy: "), "{printed}");
}
