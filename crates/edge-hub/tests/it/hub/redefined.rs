//! A definition whose schema changes: the API server shows the same objects with other bytes at the same versions, pruned and with new
//! defaults, and no event tells of it. Its own cache ends then, with all watches, and begins anew with a list; so does the hub's.

use serde_json::{Value, json};

use super::meanwhile::Meanwhile;
use super::site::{JSON, Lines, Site, WIDGETS, get, version, widget};

/// Prunes one field, and gives another its default.
fn shape(object: &mut Value) {
    let spec = object["spec"].as_object_mut().unwrap();
    spec.remove("n");
    spec.insert("color".to_owned(), "red".into());
}

async fn redefined(meanwhile: Meanwhile) {
    let mut site = Site::started().await;
    let cluster = site.server.cluster().clone();
    for name in ["x", "y"] {
        cluster.create("widgets.example.com", widget(name, 1)).unwrap();
    }
    let hub = site.plain();
    let list = format!("{WIDGETS}?resourceVersion=0");
    site.caught_up(WIDGETS, &["x", "y"]).await;
    let before = get(&hub, &list).await.unwrap().1;
    // It stands where the cluster stands: there is no version between the last event and the change of the definition.
    assert_eq!(version(&before), cluster.revision());
    let mut watch =
        Lines::open(&hub, &format!("{WIDGETS}?watch=1&resourceVersion={}", version(&before))).await;
    meanwhile.begin(&mut site).await;
    let schema = json!({ "type": "object", "properties": { "spec": {
        "type": "object", "properties": { "color": { "type": "string", "default": "red" } },
    } } });
    let versions =
        json!([{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }]);
    let patch = json!({ "spec": { "versions": versions } });
    cluster.redefine("widgets.example.com", &patch, shape).unwrap();
    meanwhile.end(&mut site);
    site.until("the API server answers", async || get(&site.direct(), &list).await.is_some()).await;
    let now = get(&site.direct(), &list).await.unwrap().1;
    assert_ne!(now["items"], before["items"]);
    site.until("the objects are as the new schema has them", async || {
        get(&hub, &list).await.is_some_and(|(_, list)| list["items"] == now["items"])
    })
    .await;
    let versions = |list: &Value| -> Vec<Value> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["resourceVersion"].clone()).collect()
    };
    assert_eq!(versions(&before), versions(&now), "the same versions, {meanwhile:?}");
    if meanwhile != Meanwhile::Killed {
        assert_eq!(watch.brief().await, "ERROR 410", "{meanwhile:?}: who holds the old bytes lists anew");
    }
    // Who comes back with the version of the old bytes is told so, as by the API server.
    let again = format!("{WIDGETS}?watch=1&resourceVersion={}", version(&before));
    for endpoint in [&hub, &site.direct()] {
        let answer = endpoint.get(&again, JSON).await.unwrap();
        let expired =
            if answer.status == 410 { "ERROR 410".to_owned() } else { Lines::of(answer).brief().await };
        assert_eq!(expired, "ERROR 410", "{meanwhile:?}");
    }
}

#[tokio::test]
async fn objects_are_shown_as_the_schema_of_today_has_them() {
    redefined(Meanwhile::Connected).await;
}

#[tokio::test]
async fn a_schema_that_changed_during_a_cut_is_noticed_after_it() {
    redefined(Meanwhile::Cut).await;
}

#[tokio::test]
async fn a_schema_that_changed_while_no_hub_ran_is_noticed_by_the_next() {
    redefined(Meanwhile::Killed).await;
}
