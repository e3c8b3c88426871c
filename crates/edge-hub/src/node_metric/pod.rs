//! Pods and the Node as the sampler needs them. Pure; what is odd in an object is passed over.

use node_report::report::{Priority, Qos, Resources};
use node_sampler::PodFacts;
use serde_json::Value;

use api::quantity::milli;

/// The UID in the name of the pod's cgroup, and what else is to be known; `None` if the pod is over or is none.
pub(super) fn pod(pod: &Value) -> Option<(String, PodFacts)> {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let metadata = &pod["metadata"];
    let mirrored = metadata["annotations"][api::annotations::MIRROR_POD].as_str();
    let uid = mirrored.or_else(|| metadata["uid"].as_str()).filter(|uid| !uid.is_empty())?;
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    let facts = PodFacts {
        namespace: text("namespace"),
        name: text("name"),
        priority: priority(
            metadata["labels"][api::koordinator::PRIORITY_CLASS].as_str(),
            pod["spec"]["priority"].as_i64(),
        ),
        qos: metadata["labels"][api::koordinator::QOS_CLASS].as_str().and_then(qos),
        requests: Resources {
            cpu_milli: Some(requests(&pod["spec"], "cpu")),
            memory_bytes: Some(requests(&pod["spec"], "memory") / 1_000),
        },
    };
    Some((uid.to_owned(), facts))
}

fn priority(class: Option<&str>, priority: Option<i64>) -> Option<Priority> {
    let named = |(name, _): &(&str, _)| Some(*name) == class;
    let within =
        |(_, band): &(&str, std::ops::RangeInclusive<i64>)| priority.is_some_and(|one| band.contains(&one));
    let classes = &api::koordinator::PRIORITY_CLASSES;
    let at = classes.iter().position(named).or_else(|| classes.iter().position(within))?;
    [Priority::Prod, Priority::Mid, Priority::Batch, Priority::Free].get(at).copied()
}

fn qos(class: &str) -> Option<Qos> {
    Some(match class {
        "LSE" => Qos::Lse,
        "LSR" => Qos::Lsr,
        "LS" => Qos::Ls,
        "BE" => Qos::Be,
        "SYSTEM" => Qos::System,
        _ => return None,
    })
}

/// What a pod asks for, in thousandths, as the scheduler counts it: containers and sidecars together, or one container of the start if that
/// asks for more; and the overhead.
fn requests(spec: &Value, resource: &str) -> u64 {
    let of = |container: &Value| quantity(&container["resources"]["requests"][resource]).unwrap_or(0);
    let list = |key: &str| spec[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_sidecar = |container: &&Value| container["restartPolicy"] == "Always";
    let sidecars: u64 = list("initContainers").iter().filter(is_sidecar).map(of).fold(0, u64::saturating_add);
    let running = list("containers").iter().map(of).fold(sidecars, u64::saturating_add);
    let starting = list("initContainers").iter().filter(|one| !is_sidecar(one)).map(of).max().unwrap_or(0);
    running.max(starting).saturating_add(quantity(&spec["overhead"][resource]).unwrap_or(0))
}

fn quantity(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => milli(text),
        Value::Number(number) => milli(&number.to_string()),
        _ => None,
    }
}

/// What of the node may be given to pods.
pub(super) fn allocatable(node: &Value) -> Resources {
    let of = |resource: &str| quantity(&node["status"]["allocatable"][resource]);
    Resources { cpu_milli: of("cpu"), memory_bytes: of("memory").map(|milli| milli / 1_000) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_known_by_its_cgroup() {
        let (uid, facts) = pod(&json!({
            "metadata": { "uid": "u", "namespace": "a", "name": "b",
                "labels": { "koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-batch" } },
            "spec": { "priority": 9_500,
                "overhead": { "cpu": "10m" },
                "initContainers": [
                    { "resources": { "requests": { "cpu": "100m" } }, "restartPolicy": "Always" },
                    { "resources": { "requests": { "memory": "1Gi" } } } ],
                "containers": [
                    { "resources": { "requests": { "cpu": "1", "memory": "64Mi" } } }, {} ] },
        }))
        .unwrap();
        assert_eq!((uid.as_str(), facts.namespace.as_str(), facts.name.as_str()), ("u", "a", "b"));
        assert_eq!((facts.priority, facts.qos), (Some(Priority::Batch), Some(Qos::Lsr)));
        assert_eq!(facts.requests, Resources { cpu_milli: Some(1_110), memory_bytes: Some(1 << 30) });
    }

    #[test]
    fn static_pods_have_the_hash_of_their_file_and_pods_that_are_over_no_cgroup() {
        let mirror =
            json!({ "metadata": { "uid": "u", "annotations": { "kubernetes.io/config.mirror": "hash" } } });
        assert_eq!(pod(&mirror).unwrap().0, "hash");
        for over in ["Succeeded", "Failed"] {
            assert_eq!(pod(&json!({ "metadata": { "uid": "u" }, "status": { "phase": over } })), None);
        }
        for odd in [
            json!(null),
            json!([]),
            json!({ "metadata": { "uid": 5 } }),
            json!({ "metadata": { "uid": "" } }),
        ] {
            assert_eq!(pod(&odd), None);
        }
    }

    #[test]
    fn priorities_have_bands() {
        for (class, number, expected) in [
            (None, Some(9_000), Some(Priority::Prod)),
            (None, Some(7_999), Some(Priority::Mid)),
            (None, Some(5_000), Some(Priority::Batch)),
            (None, Some(3_500), Some(Priority::Free)),
            (None, Some(2_000_001_000), None),
            (None, None, None),
            (Some("koord-free"), Some(9_000), Some(Priority::Free)),
            (Some("mine"), Some(9_000), Some(Priority::Prod)),
        ] {
            assert_eq!(priority(class, number), expected, "{class:?} {number:?}");
        }
    }
}
