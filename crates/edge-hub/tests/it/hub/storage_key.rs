//! A key for the store that is kept elsewhere: the hub's folder alone gives away nothing that is encrypted.

use std::{fs, process::Command};

use serde_json::json;

use super::{
    security::on_disk,
    site::{Site, get, names},
};

const SECRETS: &str = "/api/v1/namespaces/a/secrets";

/// What stands in the Secret.
const PLAIN: &str = "as plain as can be";

/// Starts the hub with the same key, or another, without a link, and says how it answers then.
async fn without_a_link(site: &mut Site) -> u16 {
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    let (status, list) = get(&site.plain(), &format!("{SECRETS}?resourceVersion=0")).await.unwrap();
    assert_eq!(names(&list).is_empty(), status != 200, "{list}");
    status
}

fn log(site: &Site) -> String {
    fs::read_to_string(site.log_file()).unwrap_or_default()
}

#[tokio::test]
async fn what_is_encrypted_is_opened_by_the_key_that_is_elsewhere_and_by_no_other() {
    let mut site = Site::new().await;
    let (root, key) = (site.file("root"), site.file("elsewhere.key"));
    let (beside, given) = (root.join("storage.key"), key.display().to_string());
    site.set("--storage-key-file", &given);
    site.start();
    let missing = format!("--storage-key-file: cannot read {given}: ");
    site.until("it does not start, and says why", async || log(&site).contains(&missing)).await;
    assert!(log(&site).contains("head -c 32 /dev/urandom"), "{}", log(&site));
    site.kill();
    assert!(!key.exists() && !beside.exists(), "none is made");

    tls::private_file::write(&key, &[7; 32]).unwrap();
    let metadata = json!({ "namespace": "a", "name": "s", "annotations": { "note": PLAIN } });
    let secret = json!({ "metadata": metadata, "type": "Opaque", "data": { "k": "aHVudGVyMg==" } });
    site.server.cluster().create("secrets", secret).unwrap();
    site.start();
    site.linked().await;
    site.caught_up(SECRETS, &["s"]).await;
    // Rights are stored every two seconds.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(without_a_link(&mut site).await, 200);
    assert!(!beside.exists() && !on_disk(&root, PLAIN), "the folder has neither the key nor what it opens");
    let verified = |options: &[&str]| {
        let command = ["cache", "verify", "--root-dir"];
        let mut verify = Command::new(env!("CARGO_BIN_EXE_edge-hub"));
        verify.args(command).arg(&root).args(options).output().unwrap()
    };
    let with = verified(&["--storage-key-file", &given]);
    assert!(with.status.success(), "{with:?}");
    let without = verified(&[]);
    let said = String::from_utf8_lossy(&without.stderr);
    assert!(!without.status.success() && said.contains("--storage-key-file"), "{without:?}");

    // As it was made before the option was given.
    tls::private_file::write(&beside, &[7; 32]).unwrap();
    assert_eq!(without_a_link(&mut site).await, 200);
    assert!(log(&site).contains("the same key lies beside the store still"), "{}", log(&site));
    tls::private_file::write(&beside, &[8; 32]).unwrap();
    assert_eq!(without_a_link(&mut site).await, 200);
    assert!(log(&site).contains("another key lies beside the store"), "{}", log(&site));
    site.unset("--storage-key-file");
    assert_eq!(without_a_link(&mut site).await, 503, "whoever has the folder alone");
}
