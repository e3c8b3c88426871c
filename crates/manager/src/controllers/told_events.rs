//! Events whose texts differ are events of their own.
//!
//! kube's recorder takes one of the same reason for another of the first, whatever it says: it counts it, and shows the text of the first. Of two
//! gateways that died one after the other the second was never named.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use parking_lot::Mutex;
use tracing::warn;

/// Of how many objects and reasons it is remembered what was told last. Beyond that all is forgotten, and what is told again is no repeat.
const REMEMBERED: usize = 512;

/// Tells of objects in events.
#[derive(Clone)]
pub(crate) struct ToldEvents {
    client: Client,
    reporter: Reporter,
    last: Arc<Mutex<HashMap<About, Last>>>,
}

/// A Node as kubelets tell of it, so that `kubectl describe node` shows it: by its name in place of its UID.
pub(crate) fn node_reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// An object's UID, and the reason.
type About = (Option<String>, String);

struct Last {
    note: Option<String>,
    recorder: Recorder,
}

impl ToldEvents {
    pub(crate) fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter, last: Arc::default() }
    }

    /// Tells it; what was told last for the same reason in the same words is counted once more.
    pub(crate) async fn publish(&self, event: &Event, object: &ObjectReference) -> Result<(), kube::Error> {
        self.recorder(event, object).publish(event, object).await
    }

    /// The same for who goes on without it: that it could not be told is logged.
    pub(crate) async fn tell(&self, event: &Event, object: &ObjectReference) {
        if let Err(error) = self.publish(event, object).await {
            let (kind, name) = (object.kind.as_deref(), object.name.as_deref());
            warn!(kind, name, %error, "event could not be published");
        }
    }

    fn recorder(&self, event: &Event, object: &ObjectReference) -> Recorder {
        let about = (object.uid.clone(), event.reason.clone());
        let mut last = self.last.lock();
        if let Some(last) = last.get(&about).filter(|last| last.note == event.note) {
            return last.recorder.clone();
        }
        if last.len() >= REMEMBERED {
            last.clear();
        }
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        last.insert(about, Last { note: event.note.clone(), recorder: recorder.clone() });
        recorder
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use kube::runtime::events::EventType;
    use serde_json::Value;
    use tower::service_fn;

    use super::*;

    fn event(note: &str) -> Event {
        Event {
            type_: EventType::Warning,
            reason: "TooFewEndpoints".to_owned(),
            note: Some(note.to_owned()),
            action: "Elect".to_owned(),
            secondary: None,
        }
    }

    #[tokio::test]
    async fn what_says_something_else_is_an_event_of_its_own() {
        let told = Arc::<Mutex<Vec<(String, String)>>>::default();
        let server = service_fn({
            let told = told.clone();
            move |request: Request<Body>| {
                let told = told.clone();
                async move {
                    let method = request.method().to_string();
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let event: Value = serde_json::from_slice(&body).unwrap();
                    told.lock().push((method, event["note"].as_str().unwrap_or_default().to_owned()));
                    let answer = Response::builder().status(StatusCode::OK).body(Body::from(body.to_vec()));
                    Ok::<_, std::convert::Infallible>(answer.unwrap())
                }
            }
        });
        let reporter = Reporter { controller: "test".to_owned(), instance: None };
        let events = ToldEvents::new(Client::new(server, "default"), reporter);
        let object = |uid: &str| ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
        for (uid, note) in [("g", "one died"), ("g", "one died"), ("g", "another died"), ("h", "one died")] {
            events.publish(&event(note), &object(uid)).await.unwrap();
        }
        let expected =
            [("POST", "one died"), ("PATCH", "one died"), ("POST", "another died"), ("POST", "one died")];
        let told: Vec<_> = told.lock().clone();
        assert_eq!(
            told.iter().map(|(how, note)| (how.as_str(), note.as_str())).collect::<Vec<_>>(),
            expected
        );
    }
}
