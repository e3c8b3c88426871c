//! The process dies at any operation: `enable` completes what was begun and `disable` takes it back.

use std::{io, path::Path};

use edge_hub::hostnet::{Disk, RealDisk};

use crate::node::{LOOPBACK, Node};

/// A disk whose process dies at an operation: nothing is done from then on. A write is cut short.
struct Dying {
    left: usize,
}

impl Dying {
    fn survive(&mut self) -> io::Result<()> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(io::Error::other("died")),
        }
    }
}

impl Disk for Dying {
    fn create_dir(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        self.survive()?;
        RealDisk.create_dir(path, mode)
    }

    fn write(&mut self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        if self.left == 1 {
            self.left = 0;
            std::fs::write(path, &content[..content.len() / 2])?;
            return Err(io::Error::other("died while writing"));
        }
        self.survive()?;
        RealDisk.write(path, content, mode)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.survive()?;
        RealDisk.rename(from, to)
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.survive()?;
        RealDisk.remove_file(path)
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        self.survive()?;
        RealDisk.remove_dir(path)
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.survive()?;
        // The kernel survives: waiting for the disk would only make the test slow.
        assert!(path.is_dir());
        Ok(())
    }
}

/// The nodes to try on: with a network, without anything, with another loopback configuration, without the folder.
fn nodes() -> [fn() -> Node; 4] {
    [
        Node::with_flannel,
        || Node::new(&[]),
        || {
            Node::new(&[
                ("0-loopback.conf", "other"),
                ("10-a.conf", "a"),
                ("10-a.conf.isthmus-disabled", "x"),
            ])
        },
        || {
            let node = Node::new(&[]);
            std::fs::remove_dir_all(node.path("etc")).unwrap();
            node
        },
    ]
}

/// Runs a command that dies after `operations`; whether it died.
fn dies(node: &Node, command: &str, operations: usize) -> bool {
    match node.run_on(&mut Dying { left: operations }, &[command]) {
        Ok(_) => false,
        Err(error) => {
            assert!(error.contains("died"), "{error}");
            true
        }
    }
}

/// How many operations a command takes.
fn length(prepare: impl Fn() -> Node, command: &str) -> usize {
    (0..1_000).find(|n| !dies(&prepare(), command, *n)).unwrap()
}

fn check_ends(node: &dyn Fn() -> Node, when: &str) {
    let fresh = |commands: &[&str]| {
        let node = node();
        for command in commands {
            node.ok(&[command]);
        }
        node
    };
    let enabled = fresh(&["enable"]);
    assert_eq!(enabled.active(), ["0-loopback.conf"], "{when}");
    assert_eq!(enabled.read("etc/cni/net.d/0-loopback.conf"), LOOPBACK, "{when}");
    assert_eq!(enabled.ok(&["enable"]), "nothing to do\n", "{when}");
    assert_eq!(fresh(&["disable"]).ok(&["disable"]), "nothing to do\n", "{when}");
}

#[test]
fn enable_may_die_anywhere() {
    for make in nodes() {
        let (before, enabled) = (make().tree(), {
            let node = make();
            node.ok(&["enable"]);
            node.active()
        });
        let operations = length(make, "enable");
        assert!(operations >= 6, "{operations}");
        for n in 0..operations {
            let crashed = || {
                let node = make();
                assert!(dies(&node, "enable", n));
                node
            };
            check_ends(&crashed, &format!("enable died after {n}"));
            let node = crashed();
            node.ok(&["enable"]);
            assert_eq!(node.active(), enabled);
            node.ok(&["disable"]);
            assert_eq!(node.tree(), before, "enable died after {n}, then enable, disable");
            let node = crashed();
            node.ok(&["disable"]);
            assert_eq!(node.tree(), before, "enable died after {n}, then disable");
        }
    }
}

#[test]
fn disable_may_die_anywhere() {
    for make in nodes() {
        let (before, had_none) = (make().tree(), make().active().is_empty());
        let ready = || {
            let node = make();
            node.ok(&["enable"]);
            node
        };
        let operations = length(ready, "disable");
        assert!(operations >= 3, "{operations}");
        for n in 0..operations {
            let crashed = || {
                let node = ready();
                assert!(dies(&node, "disable", n));
                node
            };
            check_ends(&crashed, &format!("disable died after {n}"));
            let node = crashed();
            let printed = node.ok(&["disable"]);
            // Of a node that had no configuration before, that is said, and nothing else of any.
            let expected = |note: &str| had_none && note.contains("no network configuration is left");
            let mut notes = printed.lines().filter(|line| line.starts_with("note:"));
            assert!(notes.all(expected), "{printed}");
            assert_eq!(node.tree(), before, "disable died after {n}, then disable");
            let node = crashed();
            node.ok(&["enable"]);
            node.ok(&["disable"]);
            assert_eq!(node.tree(), before, "disable died after {n}, then enable, disable");
        }
    }
}

#[test]
fn both_may_die_one_after_the_other() {
    for make in nodes() {
        let before = make().tree();
        for first in 0..length(make, "enable") {
            for second in ["enable", "disable"] {
                for n in 0.. {
                    let node = make();
                    assert!(dies(&node, "enable", first));
                    let died = dies(&node, second, n);
                    node.ok(&["disable"]);
                    assert_eq!(node.tree(), before, "enable died after {first}, {second} after {n}");
                    if !died {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn the_container_runtime_always_finds_a_network() {
    for command in ["enable", "disable"] {
        for n in 0.. {
            let node = Node::with_flannel();
            if command == "disable" {
                node.ok(&["enable"]);
            }
            let died = dies(&node, command, n);
            assert!(!node.active().is_empty(), "{command} died after {n}");
            if !died {
                break;
            }
        }
    }
}
