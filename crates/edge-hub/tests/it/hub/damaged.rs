//! A disk that gives back other bytes than it was given: what is damaged is said and not answered, and the rest is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::site::{SERVICES, Site, WIDGETS, get, names, service, widget};

const SECRETS: &str = "/api/v1/namespaces/a/secrets";

/// What stands in each object, and not in a file that is sealed.
const PLAIN: &str = "can be read";

/// The newest file of the subscription whose name ends so: each begins with that name.
fn log_of(site: &Site, path: &str) -> PathBuf {
    let files = fs::read_dir(site.file("root/store/logs")).unwrap().map(|entry| entry.unwrap().path());
    let is_of = |file: &PathBuf| {
        let bytes = fs::read(file).unwrap();
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(512)]).into_owned();
        head.contains(path)
    };
    let mut found: Vec<PathBuf> = files.filter(is_of).collect();
    found.sort();
    found.pop().expect("a file of it")
}

/// Flips a bit in the middle of what is stored.
fn flip(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

/// What `edge-hub status` prints.
pub(super) fn status_of(site: &Site) -> String {
    let port = site.serve_port().to_string();
    let said = Command::new(env!("CARGO_BIN_EXE_edge-hub"))
        .args(["status", "--serve-port", &port])
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

async fn unreadable(site: &Site) -> Vec<String> {
    let (_, status) = get(&site.admin(), "/v1/status").await.unwrap();
    let unreadable = status["store"]["unreadable"].as_array().cloned().unwrap_or_default();
    unreadable.iter().map(|problem| problem.as_str().unwrap().to_owned()).collect()
}

async fn metric(site: &Site) -> String {
    let mut answer = site.admin().get("/metrics", "*/*").await.unwrap();
    let text = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
    let line = text.lines().find(|line| line.starts_with("isthmus_hub_store_unreadable "));
    line.expect("it is counted").rsplit(' ').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_flipped_bit_is_told_and_takes_nothing_else_with_it() {
    for damaged in [SECRETS, WIDGETS] {
        let mut site = Site::started().await;
        let cluster = site.server.cluster().clone();
        cluster.create("services", service("a", "s", 1)).unwrap();
        for n in 0..20 {
            let name = format!("x{n:02}");
            let metadata = json!({ "namespace": "a", "name": name, "annotations": { "note": PLAIN } });
            cluster
                .create("secrets", json!({ "metadata": metadata, "data": { "k": "aHVudGVyMg==" } }))
                .unwrap();
            let mut object = widget(&name, n);
            object["metadata"]["annotations"] = json!({ "note": PLAIN });
            cluster.create("widgets.example.com", object).unwrap();
        }
        let all: Vec<String> = (0..20).map(|n| format!("x{n:02}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        site.caught_up(SERVICES, &["s"]).await;
        for path in [SECRETS, WIDGETS] {
            site.caught_up(path, &all).await;
        }
        // Rights are stored every two seconds.
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        site.kill();
        let file = log_of(&site, damaged);
        let is_sealed = !String::from_utf8_lossy(&fs::read(&file).unwrap()).contains(PLAIN);
        assert_eq!(is_sealed, damaged == SECRETS, "{damaged}");
        flip(&file);
        site.server.cut();
        site.start();
        site.answers().await;
        for path in [SECRETS, WIDGETS] {
            let (status, list) = get(&site.plain(), &format!("{path}?resourceVersion=0")).await.unwrap();
            if path == damaged {
                assert_eq!(
                    (status, &list["reason"]),
                    (503, &Value::from("ServiceUnavailable")),
                    "{path}: {list}"
                );
            } else {
                assert_eq!((status, names(&list)), (200, all.clone()), "{path}");
            }
        }
        let (status, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
        assert_eq!((status, names(&list)), (200, vec!["s"]));
        let log = fs::read_to_string(site.log_file()).unwrap();
        assert!(log.contains("a part of what was stored cannot be used") && log.contains(damaged), "{log}");
        let said = unreadable(&site).await;
        assert!(said.len() == 1 && said[0].contains(damaged) && said[0].contains("damaged"), "{said:?}");
        let table = status_of(&site);
        let line = table.lines().find(|line| line.contains("UNREADABLE")).expect("a line of it");
        assert!(line.contains(damaged), "{table}");
        assert_eq!(metric(&site).await, "1");

        // The next start finds no file of it any more.
        site.restart().await;
        let said = unreadable(&site).await;
        assert!(said.len() == 1 && said[0].contains(damaged) && said[0].contains("damaged"), "{said:?}");

        site.server.log().clear();
        site.server.heal();
        site.linked().await;
        site.caught_up(damaged, &all).await;
        let listed =
            site.server.log().totals(|record| record.path == damaged && record.query.contains("limit=2000"));
        assert_eq!(listed.requests, 1, "listed anew");
        site.until("nothing is said any more", async || unreadable(&site).await.is_empty()).await;
        assert!(!status_of(&site).contains("UNREADABLE"));
        assert_eq!(metric(&site).await, "0");
        // That is stored every two seconds, too.
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        site.restart().await;
        assert!(unreadable(&site).await.is_empty(), "nor after a restart");
    }
}
