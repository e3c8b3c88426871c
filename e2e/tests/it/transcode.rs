//! What the hub makes of protobuf is, byte for byte, what the API server makes of the same object in JSON: for all objects
//! of the cluster, for rich ones made here, and for those with parts taken away at random.

mod objects;
mod server;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use kube_wire::transcode::{self, MetaMessage};
use serde_json::Value;

use self::server::{Resource, Server};

/// How many variants of each rich object are asked for.
const VARIANTS: usize = 30;

#[tokio::test]
async fn the_hub_and_the_api_server_write_the_same_json() -> Result<()> {
    let server = Server::connect().await?;
    let resources = server.resources().await?;
    let mut findings = Findings::default();
    for resource in &resources {
        findings.check(|| same_names(resource));
    }
    let made = objects::create(&server, &resources).await?;
    let result = compare(&server, &resources, &made, &mut findings).await;
    objects::delete(&server, &made).await;
    result?;
    findings.print();
    ensure!(findings.wrong.is_empty(), "{} differ:\n{}", findings.wrong.len(), findings.wrong.join("\n"));
    ensure!(findings.kinds.len() > 50, "objects of only {} kinds were there", findings.kinds.len());
    Ok(())
}

async fn compare(
    server: &Server,
    resources: &[Resource],
    made: &[objects::Made],
    findings: &mut Findings,
) -> Result<()> {
    for resource in resources.iter().filter(|resource| resource.can("list")) {
        list(server, resource, findings).await?;
    }
    for made in made {
        for seed in 0..VARIANTS {
            variant(server, made, seed, findings).await?;
        }
    }
    errors_and_metadata(server, findings).await?;
    discovery(server, findings).await
}

/// The table and discovery agree on kind, plural and scope.
fn same_names(resource: &Resource) -> Result<()> {
    let gvr = &resource.gvr;
    ensure!(transcode::kind_of(gvr) == Some(&resource.kind), "{gvr} is {:?}", transcode::kind_of(gvr));
    let found = transcode::resource_of(&gvr.group, &gvr.version, &resource.kind);
    let found = found.map(|found| (found.resource, found.namespaced));
    ensure!(found == Some((&gvr.resource, resource.namespaced)), "{gvr}: {found:?}");
    Ok(())
}

/// Compares a list, and then each of its objects alone.
async fn list(server: &Server, resource: &Resource, findings: &mut Findings) -> Result<()> {
    let path = resource.collection(None);
    let (json, protobuf) = (server.get_json(&path).await?, server.get_protobuf(&path).await?);
    let json: Value = serde_json::from_slice(&json)?;
    let versions =
        |item: &Value| (item["metadata"]["uid"].clone(), item["metadata"]["resourceVersion"].clone());
    let items: Vec<&Value> = json["items"].as_array().into_iter().flatten().collect();
    for raw in server::items(&protobuf)? {
        let became: Value = serde_json::from_slice(&transcode::to_json(&resource.gvr, raw, false)?)?;
        // Another write may have come between the two answers; the object alone is compared below.
        let same = items.iter().find(|item| versions(item) == versions(&became));
        // What is made for each request, such as a ComponentStatus, has no version.
        if let Some(item) = same.filter(|item| !item["metadata"]["resourceVersion"].is_null()) {
            findings.compare(resource, "in a list", &became, item);
        }
    }
    for item in items {
        let metadata = &item["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        one(server, resource, metadata["namespace"].as_str(), name, findings).await?;
    }
    Ok(())
}

/// Compares the bytes of one object.
async fn one(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
    findings: &mut Findings,
) -> Result<()> {
    let path = format!("{}/{name}", resource.collection(namespace));
    for _ in 0..5 {
        let (Ok(before), Ok(raw), Ok(after)) =
            (server.get_json(&path).await, server.get_protobuf(&path).await, server.get_json(&path).await)
        else {
            // Deleted meanwhile: events, pods.
            return Ok(());
        };
        if before == after {
            let became = transcode::to_json(&resource.gvr, &raw, true)?;
            findings.bytes(resource, &path, &became, before.trim_ascii_end());
            return Ok(());
        }
    }
    Ok(())
}

/// Asks for an object with parts taken away or emptied, in both encodings, without storing it.
async fn variant(server: &Server, made: &objects::Made, seed: usize, findings: &mut Findings) -> Result<()> {
    let object = objects::thinned(&made.object, u64::try_from(seed)?);
    let path = format!("{}?dryRun=All", made.resource.collection(made.namespace()));
    let Ok(json) = server.post_json(&path, &object).await else {
        findings.refused += 1;
        return Ok(());
    };
    let Ok(raw) = server.post_protobuf(&path, &object).await else {
        findings.refused += 1;
        return Ok(());
    };
    let became = transcode::to_json(&made.resource.gvr, &raw, true)?;
    let [mut became, mut expected] = [serde_json::from_slice(&became)?, serde_json::from_slice(&json)?];
    for value in [&mut became, &mut expected] {
        objects::forget_what_each_request_makes_anew(value);
    }
    findings.variants += 1;
    findings.compare(&made.resource, "as a variant", &became, &expected);
    Ok(())
}

/// `Status` and `PartialObjectMetadata`.
async fn errors_and_metadata(server: &Server, findings: &mut Findings) -> Result<()> {
    for path in [
        "/api/v1/namespaces/absent/pods/absent",
        "/api/v1/pods?fieldSelector=a%3Db",
        "/api/v1/pods?continue=x",
    ] {
        let (json, raw) = server.error(path).await?;
        let became = transcode::meta_to_json(MetaMessage::Status, &raw, true)?;
        findings.same_bytes(path, &became, json.trim_ascii_end());
    }
    let path = "/api/v1/namespaces/default";
    let (json, raw) = server.metadata(path).await?;
    let became = transcode::meta_to_json(MetaMessage::PartialObjectMetadata, &raw, true)?;
    findings.same_bytes(path, &became, json.trim_ascii_end());
    Ok(())
}

/// Discovery of all groups. Another test may add a kind between the two answers.
async fn discovery(server: &Server, findings: &mut Findings) -> Result<()> {
    for path in ["/api", "/apis"] {
        for left in (0..5).rev() {
            let (json, enveloped) = server.discovery(path).await?;
            let became = transcode::discovery_to_json(&enveloped)?;
            if became == json || left == 0 {
                findings.same_bytes(path, &became, &json);
                break;
            }
        }
    }
    Ok(())
}

/// What was compared, and what differed.
#[derive(Default)]
struct Findings {
    kinds: BTreeMap<String, usize>,
    variants: usize,
    refused: usize,
    wrong: Vec<String>,
}

impl Findings {
    fn check(&mut self, check: impl FnOnce() -> Result<()>) {
        if let Err(error) = check() {
            self.wrong.push(error.to_string());
        }
    }

    fn compare(&mut self, resource: &Resource, how: &str, became: &Value, expected: &Value) {
        if became != expected {
            let name = &expected["metadata"]["name"];
            let [became, expected] = [became.to_string(), expected.to_string()];
            self.same_bytes(
                &format!("{} {name} {how}", resource.gvr),
                became.as_bytes(),
                expected.as_bytes(),
            );
        }
    }

    fn bytes(&mut self, resource: &Resource, path: &str, became: &[u8], expected: &[u8]) {
        *self.kinds.entry(resource.gvr.to_string()).or_default() += 1;
        self.same_bytes(path, became, expected);
    }

    fn same_bytes(&mut self, what: &str, became: &[u8], expected: &[u8]) {
        if became != expected {
            let same = became.iter().zip(expected).take_while(|(a, b)| a == b).count();
            let around = |text: &[u8]| {
                let end = (same + 80).min(text.len());
                String::from_utf8_lossy(&text[same.saturating_sub(60).min(end)..end]).into_owned()
            };
            self.wrong.push(format!("{what}: became …{}…, not …{}…", around(became), around(expected)));
        }
    }

    // How much was compared says what the test is worth.
    #[allow(clippy::print_stdout)]
    fn print(&self) {
        let objects: usize = self.kinds.values().sum();
        println!(
            "{objects} objects of {} resources, {} variants ({} refused)",
            self.kinds.len(),
            self.variants,
            self.refused
        );
    }
}
