//! Who writes: to the cluster, and through the hub, where a writer then reads the most recent state.

use serde_json::Value;
use testkit::{
    client::connection::{Answer, Endpoint},
    history::{End, ListAt, Observation, Request, Scope},
};
use tokio::time::timeout;

use super::{
    super::{
        history_clients::{WIDGET_ID, written},
        site::{JSON, SERVICES, widget},
    },
    world::{SOON, World},
};

impl World {
    pub(super) fn write(&self, name: u8, n: u64) {
        let (id, object) = match name % 4 {
            0 => (WIDGET_ID, widget(&format!("o-{name}"), n)),
            1 => ("services", written("b", &format!("o-{name}"), n)),
            _ => ("services", written("a", &format!("o-{name}"), n)),
        };
        if self.cluster.update(id, &object).is_err() {
            // The definition may have gone.
            let _ = self.cluster.create(id, object);
        }
    }

    pub(super) fn delete(&self, name: u8) {
        let (id, namespace) = match name % 4 {
            0 => (WIDGET_ID, "a"),
            1 => ("services", "b"),
            _ => ("services", "a"),
        };
        // It may not be there.
        let _ = self.cluster.delete(id, &format!("{namespace}/o-{name}"));
    }

    /// Objects that each client selects one of come and go: all is as it was then, and only what a watch told says whether it told of them.
    pub(super) fn come_and_go(&self) {
        for n in 0..4 {
            let name = format!("passing-{n}");
            for (id, object) in [("services", written("a", &name, n)), (WIDGET_ID, widget(&name, n))] {
                self.cluster.create(id, object).unwrap();
                self.cluster.delete(id, &format!("a/{name}")).unwrap();
            }
        }
    }

    /// What its writer reads then has it, whatever the hub's stream was told: but an answer that says that it may be old.
    pub(super) async fn write_through(&mut self, name: u8, n: u64) {
        self.written += 1;
        let (hub, object) = (self.endpoint(), written("a", &format!("w-{name}"), n));
        let exchange = async {
            let version = write(&hub, &object).await?;
            let answer = hub.get(SERVICES, JSON).await.ok()?;
            let is_old = answer.headers.contains_key("warning");
            let list = whole(answer).await.filter(|_| !is_old)?;
            Some((version, list))
        };
        let Ok(Some((version, list))) = timeout(SOON, exchange).await else { return };
        let name = format!("writer {}", self.written);
        let request = Request::List(ListAt::NotOlderThan(version));
        let recording = self.recorder.begin(&name, "services", &Scope::default(), request);
        recording.opened();
        let (rv, items) = (resource_version(&list), list["items"].as_array().cloned().unwrap_or_default());
        recording.observe(Observation::Page { rv: rv.unwrap_or(0), items, more: false, remaining: None });
        recording.end(End::Clean);
    }
}

/// Writes a Service through the hub, made if it is not there; its version then, if that succeeded.
async fn write(hub: &Endpoint, service: &Value) -> Option<u64> {
    let name = service["metadata"]["name"].as_str()?;
    let path = "/api/v1/namespaces/a/services";
    let json = |request: http::request::Builder| request.header("content-type", JSON).header("accept", JSON);
    let made = hub.ask(json(http::Request::post(path)), service.to_string()).await.ok()?;
    let answer = if made.status == 409 {
        hub.ask(json(http::Request::put(format!("{path}/{name}"))), service.to_string()).await.ok()?
    } else {
        made
    };
    resource_version(&whole(answer).await?)
}

/// What was answered, if that was not refused.
pub(super) async fn whole(mut answer: Answer) -> Option<Value> {
    let body = answer.bytes().await.ok()?;
    answer.status.is_success().then(|| serde_json::from_slice(&body).ok())?
}

pub(super) fn resource_version(value: &Value) -> Option<u64> {
    value["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
