//! Configuration that is wrong while the hub runs: the log names the key, and what was in force stays so.

use std::{fs, time::Duration};

use serde_json::json;
use tokio::time::sleep;

use super::site::{SERVICES, Site, edit};

/// Of all namespaces, which is what is shared.
const WIDGETS: &str = "/apis/example.com/v1/widgets";

/// Longer than the hub takes to look at the file again.
const LOOKED: Duration = Duration::from_millis(1500);

/// Waits until the log says all of this in one line.
async fn complains(site: &Site, words: &[&str]) {
    site.until(&format!("the log says {words:?}"), async || {
        let log = fs::read_to_string(site.log_file()).unwrap();
        log.lines().any(|line| words.iter().all(|word| line.contains(word)))
    })
    .await;
}

async fn watches(site: &Site, path: &str, count: usize) {
    site.until(&format!("{count} watches of {path}"), async || site.upstream_watches(path) == count).await;
}

fn write(site: &Site, text: &str) {
    edit(&site.file("config.yaml"), text);
}

#[tokio::test]
async fn a_file_that_breaks_under_a_running_hub_changes_nothing_and_is_named_with_its_key() {
    let mut site = Site::new().await;
    let file = site.file("config.yaml");
    write(&site, "poolScopeResources: [/v1/services, example.com/v1/widgets]\n");
    site.set("--config", &file.display().to_string());
    site.start();
    site.linked().await;
    watches(&site, WIDGETS, 1).await;
    for (text, words) in [
        ("poolScopeResources: [widgets]", "poolScopeResources[0]: \"widgets\" is not group/version/resource"),
        ("poolScope: []", "keys are poolScopeResources"),
        ("freshness: { /v1/pods: soon }", "freshness./v1/pods: "),
        ("poolScopeResources: [", "config.yaml: "),
    ] {
        write(&site, text);
        complains(&site, &["the configuration stays as it was", "--config ", words]).await;
        sleep(LOOKED).await;
        let open = [WIDGETS, SERVICES].map(|path| site.upstream_watches(path));
        assert_eq!(open, [1, 1], "{text}");
    }
    write(&site, "poolScopeResources: [/v1/services]\n");
    watches(&site, WIDGETS, 0).await;
    watches(&site, SERVICES, 1).await;
}

#[tokio::test]
async fn a_bad_entry_of_the_pools_config_map_is_named_and_undoes_no_other() {
    let mut site = Site::new().await;
    site.set("--nodepool-name", "shop");
    site.start();
    site.linked().await;
    let cluster = site.server.cluster();
    let says = |resources: &str| {
        json!({
            "metadata": { "namespace": "kube-system", "name": "leader-hub-shop" },
            "data": { "leaders": "n/10.0.0.1", "pool-scoped-metadata": resources },
        })
    };
    cluster.create("configmaps", says("/v1/services,example.com/v1/widgets")).unwrap();
    watches(&site, WIDGETS, 1).await;
    cluster.update("configmaps", &says("widgets")).unwrap();
    complains(&site, &["pool-scoped-metadata", "entry", "widgets", "not group/version/resource"]).await;
    complains(&site, &["pool-scoped-metadata", "the configuration stays as it was"]).await;
    sleep(LOOKED).await;
    assert_eq!([WIDGETS, SERVICES].map(|path| site.upstream_watches(path)), [1, 1], "as it was");
    cluster.update("configmaps", &says("/v1/services,services")).unwrap();
    complains(&site, &["pool-scoped-metadata", "entry", "services", "not group/version/resource"]).await;
    watches(&site, WIDGETS, 0).await;
    watches(&site, SERVICES, 1).await;
}
