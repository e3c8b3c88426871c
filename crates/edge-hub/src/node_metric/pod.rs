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
    let class = metadata["labels"][api::koordinator::QOS_CLASS].as_str().and_then(qos);
    let class = class.unwrap_or_else(|| default_qos(pod));
    let priority = priority(
        metadata["labels"][api::koordinator::PRIORITY_CLASS].as_str(),
        pod["spec"]["priority"].as_i64(),
    );
    let facts = PodFacts {
        namespace: text("namespace"),
        name: text("name"),
        priority: Some(priority.unwrap_or_else(|| default_priority(class))),
        qos: Some(class),
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

/// Of a pod that says nothing of it: by Kubernetes' class, as Koordinator has it (`GetPodQoSClassWithDefault` of its `apis/extension/qos_utils.go`).
/// Its scheduler counts as prod what is said to be, and ordinary pods are to be among that.
fn default_qos(pod: &Value) -> Qos {
    match pod["status"]["qosClass"].as_str() {
        Some("Guaranteed") => Qos::Lsr,
        Some("BestEffort") => Qos::Be,
        Some("Burstable") => Qos::Ls,
        // Not admitted yet.
        _ => by_resources(&pod["spec"]),
    }
}

/// The same where the pod's status does not tell yet: by the rules by which the kubelet will (`ComputePodQOS`).
fn by_resources(spec: &Value) -> Qos {
    let list = |key: &str| spec[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_pod = std::slice::from_ref(spec);
    let resources = |one: &Value, what: &str| {
        ["cpu", "memory"].map(|name| quantity(&one["resources"][what][name]).filter(|amount| *amount > 0))
    };
    let says = |one: &Value| [resources(one, "requests"), resources(one, "limits")];
    let is_said = |one: &Value| says(one).iter().flatten().any(Option::is_some);
    // What is said of the pod as a whole counts alone.
    let all: Vec<&Value> = if is_said(spec) {
        of_pod.iter().collect()
    } else {
        list("containers").iter().chain(list("initContainers")).collect()
    };
    if !all.iter().any(|one| is_said(one)) {
        return Qos::Be;
    }
    let is_guaranteed = |one: &&Value| {
        let [requests, limits] = says(one);
        // Who asks for nothing asks for the limit.
        let requests = [0, 1].map(|at| requests[at].or(limits[at]));
        limits.iter().all(Option::is_some) && requests == limits
    };
    if all.iter().all(is_guaranteed) { Qos::Lsr } else { Qos::Ls }
}

/// Of a pod that says nothing of it, by its quality of service (`GetPodPriorityClassWithDefault` of `apis/extension/priority_utils.go`).
fn default_priority(qos: Qos) -> Priority {
    if qos == Qos::Be { Priority::Batch } else { Priority::Prod }
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
    fn pods_that_say_nothing_have_a_class_by_that_of_kubernetes() {
        let of = |status: &str, labels: Value, priority: i64| {
            let pod = pod(&json!({
                "metadata": { "uid": "u", "labels": labels }, "spec": { "priority": priority },
                "status": { "qosClass": status },
            }));
            let facts = pod.unwrap().1;
            (facts.qos.unwrap(), facts.priority.unwrap(), facts.is_prod())
        };
        let none = || json!({});
        assert_eq!(of("Guaranteed", none(), 0), (Qos::Lsr, Priority::Prod, true));
        assert_eq!(of("Burstable", none(), 0), (Qos::Ls, Priority::Prod, true));
        assert_eq!(of("BestEffort", none(), 0), (Qos::Be, Priority::Batch, false));
        assert_eq!(of("BestEffort", none(), 9_000), (Qos::Be, Priority::Prod, true));
        let system = json!({ "koordinator.sh/qosClass": "SYSTEM" });
        assert_eq!(of("BestEffort", system, 2_000_001_000), (Qos::System, Priority::Prod, true));
        let be = json!({ "koordinator.sh/qosClass": "BE" });
        assert_eq!(of("Burstable", be, 0), (Qos::Be, Priority::Batch, false));
        let unknown = json!({ "koordinator.sh/qosClass": "MINE" });
        assert_eq!(of("Burstable", unknown, 5_500), (Qos::Ls, Priority::Batch, false));
    }

    #[test]
    fn without_a_status_the_class_is_by_what_containers_ask_for() {
        let both = |amount: &str| json!({ "cpu": amount, "memory": amount });
        let limited = json!({ "resources": { "limits": both("1"), "requests": both("1000m") } });
        let only_limits = json!({ "resources": { "limits": both("1") } });
        let asks = json!({ "resources": { "limits": both("2"), "requests": both("1") } });
        for (spec, expected) in [
            (json!({ "containers": [{}] }), Qos::Be),
            (
                json!({ "containers": [{ "resources": { "requests": { "cpu": "0", "nvidia.com/gpu": "1" } } }] }),
                Qos::Be,
            ),
            (json!({ "containers": [limited] }), Qos::Lsr),
            (json!({ "containers": [only_limits], "initContainers": [limited] }), Qos::Lsr),
            (json!({ "containers": [limited], "initContainers": [{}] }), Qos::Ls),
            (json!({ "containers": [asks] }), Qos::Ls),
            (json!({ "containers": [{}], "resources": limited["resources"] }), Qos::Lsr),
            (json!({ "containers": [limited], "resources": asks["resources"] }), Qos::Ls),
        ] {
            assert_eq!(default_qos(&json!({ "spec": spec })), expected, "{spec}");
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
