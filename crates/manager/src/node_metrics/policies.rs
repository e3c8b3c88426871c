//! What nodes are to collect, and where the steps of their loads are: Koordinator's ConfigMap, read now and then. What cannot be read
//! changes nothing, and is said where people look: in an event of the ConfigMap that names the key and the place in it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::slo::names::{COLOCATION_CONFIG, HOST_APPLICATION_CONFIG, NODE_LOAD_CONFIG};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::Api;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use node_metrics::load::Thresholds;
use node_metrics::policy::Policies;
use tracing::{info, warn};

use super::Host;
use super::conditions::FIELD_MANAGER;

/// How often they are read. A watch of what may not be read would not come to rest.
const TURN: Duration = Duration::from_secs(10);

/// A read that takes longer is given up.
const CALL: Duration = Duration::from_secs(5);

/// Reason of the event.
const INVALID: &str = "InvalidNodeMetricConfig";

/// Reason of the event that ends it.
const VALID: &str = "NodeMetricConfigRead";

/// Reads them for ever; `found` gets policies that may be new.
pub(super) async fn follow(host: &Host, found: impl Fn(Policies)) {
    let (namespace, name) = &host.config.policies;
    let api: Api<ConfigMap> = Api::namespaced(host.client.clone(), namespace);
    let reporter =
        Reporter { controller: FIELD_MANAGER.into(), instance: Some(host.config.identity.clone()) };
    let recorder = Recorder::new(host.client.clone(), reporter);
    let mut policies = Policies::default();
    let mut seen = None;
    let mut failed = false;
    let mut is_wrong = false;
    // What is to be said of which ConfigMap, once this replica leads.
    let mut untold: Option<(Event, ObjectReference)> = None;
    loop {
        match tokio::time::timeout(CALL, api.get_opt(name)).await {
            Ok(Ok(map)) => {
                failed = false;
                let version = map.as_ref().map(|map| map.metadata.resource_version.clone());
                if seen.as_ref() != Some(&version) {
                    seen = Some(version);
                    let read = Read::of(map.as_ref().and_then(|map| map.data.as_ref()), &mut policies);
                    found(policies.clone());
                    if let Some(thresholds) = read.thresholds {
                        host.source.change(|store, _| store.set_thresholds(thresholds));
                    }
                    log(host, &read.wrong, is_wrong);
                    untold =
                        map.as_ref().and_then(|map| Some((event(&read.wrong, is_wrong)?, reference(map))));
                    is_wrong = !read.wrong.is_empty();
                }
            }
            // Most clusters have no Koordinator, and then no permission in its namespace: said once.
            Ok(Err(error)) if !std::mem::replace(&mut failed, true) => {
                warn!(%error, namespace, name, "cannot read what nodes are to collect; what was known holds");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        host.policies_tried.store(true, Ordering::Relaxed);
        if host.source.is_leading()
            && let Some((event, about)) = untold.take()
            && let Err(error) = recorder.publish(&event, &about).await
        {
            warn!(%error, "cannot publish an event");
        }
        tokio::time::sleep(TURN).await;
    }
}

/// What a ConfigMap says beside policies; of a key that is wrong nothing.
struct Read {
    thresholds: Option<Thresholds>,
    wrong: Vec<String>,
}

impl Read {
    /// Of `policies` those keys stay as they are that cannot be read.
    fn of(data: Option<&BTreeMap<String, String>>, policies: &mut Policies) -> Self {
        let key = |key: &str| data.and_then(|data| data.get(key)).map(String::as_str);
        let wrong = policies.update(key(COLOCATION_CONFIG), key(HOST_APPLICATION_CONFIG));
        let mut wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        let thresholds = Thresholds::parse(key(NODE_LOAD_CONFIG));
        let thresholds = thresholds.map_err(|error| wrong.push(format!("{NODE_LOAD_CONFIG}: {error}"))).ok();
        Self { thresholds, wrong }
    }
}

/// In the log of every replica.
fn log(host: &Host, wrong: &[String], was_wrong: bool) {
    let (namespace, name) = &host.config.policies;
    for wrong in wrong {
        warn!(wrong, namespace, name, "what nodes are to collect cannot be read; all stays as it was");
    }
    if wrong.is_empty() && was_wrong {
        info!(namespace, name, "what nodes are to collect can be read again");
    }
}

fn reference(map: &ConfigMap) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ConfigMap".to_owned()),
        namespace: map.metadata.namespace.clone(),
        name: map.metadata.name.clone(),
        uid: map.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// In an event, for people.
fn event(wrong: &[String], was_wrong: bool) -> Option<Event> {
    let (type_, reason, note) = match (wrong, was_wrong) {
        ([], false) => return None,
        ([], true) => (EventType::Normal, VALID, "all keys are read again".to_owned()),
        (wrong, _) => {
            let note = format!("{}; the last configuration that could be read holds", wrong.join("; "));
            (EventType::Warning, INVALID, note.chars().take(1_000).collect())
        }
    };
    Some(Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note),
        action: "Read".to_owned(),
        secondary: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_key_leaves_the_others_and_is_named() {
        let data: BTreeMap<String, String> = [
            (COLOCATION_CONFIG, r#"{"metricReportIntervalSeconds": "x"}"#),
            (NODE_LOAD_CONFIG, r#"{"cpu": [60]}"#),
        ]
        .map(|(key, text)| (key.to_owned(), text.to_owned()))
        .into();
        let mut policies = Policies::default();
        let read = Read::of(Some(&data), &mut policies);
        assert!(!policies.are_read() && read.thresholds.is_some());
        let event = event(&read.wrong, false).unwrap();
        let note = event.note.unwrap();
        assert!(note.contains("colocation-config: metricReportIntervalSeconds: must be"), "{note}");
        assert!(note.contains("the last configuration that could be read holds"), "{note}");
        assert!(matches!(event.type_, EventType::Warning));

        let data = [(NODE_LOAD_CONFIG.to_owned(), r#"{"cpu": [60, 50]}"#.to_owned())].into();
        let read = Read::of(Some(&data), &mut policies);
        assert!(policies.are_read() && read.thresholds.is_none());
        assert_eq!(read.wrong, ["node-load-config: cpu[1]: must be greater than the one before"]);

        let data: BTreeMap<String, String> = [COLOCATION_CONFIG, HOST_APPLICATION_CONFIG, NODE_LOAD_CONFIG]
            .map(|key| (key.to_owned(), "[]".to_owned()))
            .into();
        let read = Read::of(Some(&data), &mut policies);
        let keys: Vec<_> = read.wrong.iter().filter_map(|wrong| wrong.split(':').next()).collect();
        assert_eq!(keys, [COLOCATION_CONFIG, HOST_APPLICATION_CONFIG, NODE_LOAD_CONFIG]);
    }

    #[test]
    fn good_news_are_told_only_after_bad_ones() {
        assert!(event(&[], false).is_none());
        assert!(matches!(event(&[], true).unwrap().type_, EventType::Normal));
    }
}
