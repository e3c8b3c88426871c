//! How far a `DaemonSet` or Deployment is in giving its pods the new affinity: the object as raw JSON in, a word on it out.
//!
//! Pure. The rules are those of `kubectl rollout status`.

use serde_json::{Value, json};

use super::components::Kind;

/// How far it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Rollout {
    /// All pods are new.
    Done,
    /// Not all are; in words.
    Waiting(String),
    /// They will not be, unless somebody acts; why.
    Stuck(String),
}

/// How far `object` is.
pub fn rollout(kind: Kind, object: &Value) -> Rollout {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let status = |name: &str| number(&format!("/status/{name}")).unwrap_or(0);
    if status("observedGeneration") < number("/metadata/generation").unwrap_or(0) {
        return Rollout::Waiting("its controller has not seen the change yet".to_owned());
    }
    let wanted = match kind {
        Kind::DaemonSet => status("desiredNumberScheduled"),
        Kind::Deployment => number("/spec/replicas").unwrap_or(1),
    };
    let progress = match kind {
        Kind::DaemonSet => {
            progress(wanted, wanted, status("updatedNumberScheduled"), status("numberAvailable"))
        }
        Kind::Deployment => {
            progress(wanted, status("replicas"), status("updatedReplicas"), status("availableReplicas"))
        }
    };
    match (progress, obstacle(kind, object)) {
        (Rollout::Waiting(_), Some(obstacle)) => Rollout::Stuck(obstacle),
        (progress, _) => progress,
    }
}

/// What keeps pods from being replaced.
fn obstacle(kind: Kind, object: &Value) -> Option<String> {
    let is = |pointer: &str, value: Value| object.pointer(pointer) == Some(&value);
    match kind {
        Kind::DaemonSet => is("/spec/updateStrategy/type", json!("OnDelete"))
            .then(|| "its update strategy is OnDelete: pods are replaced when you delete them".to_owned()),
        Kind::Deployment if is("/spec/paused", json!(true)) => {
            Some("it is paused: kubectl rollout resume".to_owned())
        }
        Kind::Deployment => deadline_exceeded(object),
    }
}

/// `present` counts old pods too.
fn progress(wanted: i64, present: i64, updated: i64, available: i64) -> Rollout {
    if updated < wanted {
        Rollout::Waiting(format!("{updated} of {wanted} pods are new"))
    } else if present > updated {
        Rollout::Waiting(format!("old pods left: {}", present - updated))
    } else if available < updated {
        Rollout::Waiting(format!("{available} of {updated} new pods are available"))
    } else {
        Rollout::Done
    }
}

fn deadline_exceeded(object: &Value) -> Option<String> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let condition = conditions.iter().find(|condition| {
        let is = |name: &str, value: &str| condition.get(name).and_then(Value::as_str) == Some(value);
        is("type", "Progressing") && is("reason", "ProgressDeadlineExceeded")
    })?;
    let message = condition.get("message").and_then(Value::as_str).unwrap_or("its progress deadline is over");
    Some(message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_sets_are_done_when_every_pod_is_new_and_available() {
        let object = |seen: i64, wanted: i64, updated: i64, available: i64| {
            json!({
                "metadata": { "generation": 2 },
                "spec": { "updateStrategy": { "type": "RollingUpdate" } },
                "status": {
                    "observedGeneration": seen, "desiredNumberScheduled": wanted,
                    "updatedNumberScheduled": updated, "numberAvailable": available,
                },
            })
        };
        let waiting = |text: &str| Rollout::Waiting(text.to_owned());
        let cases = [
            (object(1, 3, 3, 3), waiting("its controller has not seen the change yet")),
            (object(2, 3, 1, 3), waiting("1 of 3 pods are new")),
            (object(2, 3, 3, 2), waiting("2 of 3 new pods are available")),
            (object(2, 3, 3, 3), Rollout::Done),
            (object(2, 0, 0, 0), Rollout::Done),
        ];
        for (object, expected) in cases {
            assert_eq!(rollout(Kind::DaemonSet, &object), expected, "{object}");
        }
        // The status leaves out zeroes.
        let mut object = object(2, 3, 0, 0);
        object["status"].as_object_mut().unwrap().retain(|_, number| *number != 0);
        assert_eq!(rollout(Kind::DaemonSet, &object), waiting("0 of 3 pods are new"));
        object["spec"]["updateStrategy"]["type"] = json!("OnDelete");
        assert!(matches!(rollout(Kind::DaemonSet, &object), Rollout::Stuck(_)));
    }

    #[test]
    fn deployments_are_done_when_no_old_pod_is_left() {
        let object = |spec: Value, status: Value| {
            let mut object = json!({ "metadata": { "generation": 2 }, "spec": spec, "status": status });
            object["status"]["observedGeneration"] = json!(2);
            object
        };
        let waiting = |text: &str| Rollout::Waiting(text.to_owned());
        let two = || json!({ "replicas": 2 });
        let cases = [
            (
                two(),
                json!({ "replicas": 3, "updatedReplicas": 1, "availableReplicas": 2 }),
                waiting("1 of 2 pods are new"),
            ),
            (
                two(),
                json!({ "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3 }),
                waiting("old pods left: 1"),
            ),
            (
                two(),
                json!({ "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1 }),
                waiting("1 of 2 new pods are available"),
            ),
            (two(), json!({ "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2 }), Rollout::Done),
            (json!({ "replicas": 0 }), json!({}), Rollout::Done),
            // Paused before, and rolled out: nothing is left to do.
            (
                json!({ "replicas": 1, "paused": true }),
                json!({ "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1 }),
                Rollout::Done,
            ),
            (
                json!({ "replicas": 2, "paused": true }),
                json!({}),
                Rollout::Stuck("it is paused: kubectl rollout resume".to_owned()),
            ),
            (
                two(),
                json!({ "conditions": [
                    { "type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "timed out" },
                ] }),
                Rollout::Stuck("timed out".to_owned()),
            ),
        ];
        for (spec, status, expected) in cases {
            let object = object(spec, status);
            assert_eq!(rollout(Kind::Deployment, &object), expected, "{object}");
        }
    }
}
