//! Compares an API server, as `kubectl proxy` offers it, with the fake: `differential ADDRESS LISTS WATCHES SEED`.

// It is a tool for people at a terminal.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;

use serde_json::json;
use testkit::api_server::{FakeApiServer, Kind};
use testkit::client::connection::Endpoint;
use testkit::differential::{Case, Common, Subject, compare, populate};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (lists, watches, seed) = (number(1, 1000)?, number(2, 300)?, number(3, 0)?);
    let real = Endpoint::plain(arguments.first().ok_or("the address is missing")?.parse()?);
    let server = FakeApiServer::start().await?;
    server.cluster().define(Kind::built_in("", "v1", "limitranges", "LimitRange", true));
    let fake = Endpoint::plain(server.address());
    let widgets =
        Kind { typed: false, ..Kind::built_in("test.isthmus.dev", "v1", "widgets", "Widget", true) };
    server.cluster().create("customresourcedefinitions.apiextensions.k8s.io", widgets.crd())?;
    let typed = json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}});
    let custom = json!({"apiVersion": widgets.api_version(), "kind": widgets.kind, "spec": {"n": 1}});
    let subjects = [("/api/v1", "limitranges", typed), ("/apis/test.isthmus.dev/v1", "widgets", custom)];
    for (root, resource, template) in subjects {
        let subject =
            Subject { root: root.to_owned(), resource: resource.to_owned(), namespaced: true, template };
        let theirs = populate(&real, &subject).await?;
        let ours = populate(&fake, &subject).await?;
        server.compact(ours.old - 6);
        let free = ["resourceVersion", "resourceVersionMatch", "sendInitialEvents", "allowWatchBookmarks"];
        let mut cases = Case::corners(true, &free);
        cases.extend(Case::corners(false, &["resourceVersion", "resourceVersionMatch", "limit", "continue"]));
        cases.extend(Case::sample(false, lists, seed).chain(Case::sample(true, watches, seed)));
        cases.retain(|case| !case.is_protobuf());
        let count = cases.len();
        let mut differences = BTreeMap::<String, (usize, String)>::new();
        for some in cases.chunks(48) {
            let mut tasks = JoinSet::new();
            for case in some {
                let (real, fake, subject) = (real.clone(), fake.clone(), subject.clone());
                let (theirs, ours) = (theirs.clone(), ours.clone());
                let case = case.clone();
                tasks.spawn(async move {
                    compare(&case, &subject, (&real, &theirs), (&fake, &ours), Common::Writes).await
                });
            }
            for difference in
                tasks.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten()
            {
                let said = |reply: &testkit::differential::Reply| {
                    let first = reply.values.first();
                    format!(
                        "{} {}",
                        reply.status,
                        first.map_or(String::new(), |value| value["message"].to_string())
                    )
                };
                let class = format!("{} | {}", said(&difference.left), said(&difference.right));
                let entry = differences.entry(class).or_insert_with(|| (0, difference.to_string()));
                entry.0 += 1;
            }
        }
        let differing: usize = differences.values().map(|(count, _)| count).sum();
        println!("{resource}: {count} combinations, {differing} differ");
        for (class, (count, example)) in differences {
            println!("{count} x {class}\n{example}");
        }
    }
    Ok(())
}
