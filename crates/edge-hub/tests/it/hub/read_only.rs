//! A disk that can only be read, as a failing one becomes: the hub starts, serves what it holds, and says what it goes without.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use object_store::{OpenError, Store};

use super::{
    damaged::status_of,
    site::{SERVICES, Site, get, names, service},
};

/// A file system of its own, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// Nothing, if this process may mount none.
    fn at(path: &Path) -> Option<Self> {
        fs::create_dir(path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "mode=0700", "tmpfs"])
            .arg(path)
            .output()
            .unwrap();
        mounted.status.success().then(|| Self(path.to_owned()))
    }

    fn make(&self, how: &str) {
        let options = format!("remount,{how}");
        let done = Command::new("mount").args(["-o", &options]).arg(&self.0).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A hub may have files of it open still.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[tokio::test]
async fn what_is_held_is_served_from_a_disk_that_can_only_be_read() {
    let mut site = Site::new().await;
    let root = site.file("root");
    let Some(disk) = Mounted::at(&root) else {
        println!("SKIPPED: to mount a file system takes root; nothing was tested");
        return;
    };
    let cluster = site.server.cluster().clone();
    cluster.create("services", service("a", "s", 1)).unwrap();
    site.start();
    site.linked().await;
    site.caught_up(SERVICES, &["s"]).await;
    // Rights are stored every two seconds.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    site.kill();
    assert!(root.join("hub.sock").exists(), "one that was left stands in the way of another");
    disk.make("ro");
    site.server.cut();
    site.start();
    site.answers().await;
    let (status, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["s"]), "{}", site.last_log());
    let table = status_of(&site);
    let line = table.lines().find(|line| line.contains("UNSTORED") && line.contains("hub.sock"));
    assert!(line.is_some_and(|line| line.contains("Read-only file system")), "{table}");
    let log = fs::read_to_string(site.log_file()).unwrap();
    assert!(log.contains("make the file system writable"), "{log}");
    tls::private_file::remove(&root.join("none.key")).expect("what is not there is as good as removed");
    let other = Store::open(&root.join("store"), None).unwrap_err();
    assert!(matches!(other, OpenError::InUse { .. }), "the store is locked all the same: {other}");
    let verified = Command::new(env!("CARGO_BIN_EXE_edge-hub"))
        .args(["cache", "verify", "--root-dir"])
        .arg(&root)
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");

    // With a link it goes on in memory, and says of what.
    site.server.heal();
    site.linked().await;
    cluster.create("services", service("a", "t", 2)).unwrap();
    site.caught_up(SERVICES, &["s", "t"]).await;
    let table = status_of(&site);
    assert!(table.lines().any(|line| line.contains("UNSTORED") && line.contains(SERVICES)), "{table}");

    // And stores that once it can.
    disk.make("rw");
    site.until("only the socket is missed", async || {
        let missed: Vec<String> =
            status_of(&site).lines().filter(|line| line.contains("UNSTORED")).map(str::to_owned).collect();
        missed.len() == 1 && missed[0].contains("hub.sock")
    })
    .await;
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    let (status, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["s", "t"]), "{}", site.last_log());
    assert!(!status_of(&site).contains("UNSTORED"));
}
