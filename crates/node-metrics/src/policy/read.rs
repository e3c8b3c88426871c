//! Reads the ConfigMap's keys member by member, so that what is wrong is named by its place and not by a line of JSON. Members that do not
//! concern metrics are Koordinator's own and passed over.

use api::slo::node_metric::MemoryCollectPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use node_report::{CgroupBase, HostApplication, Policy, Priority, Qos};
use serde_json::{Map, Value};

use super::{NodeConfig, Strategy};

/// More programs than this no node is asked to measure.
const MOST_APPLICATIONS: usize = 32;

/// Why a key cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {path}: {reason}")]
pub struct MalformedPolicy {
    /// The key of the ConfigMap.
    pub key: &'static str,
    /// Where in it: `nodeConfigs[1].metricReportIntervalSeconds`.
    pub path: String,
    /// What is wrong there.
    pub reason: String,
}

/// An object, and where it stands.
pub(super) struct Place {
    key: &'static str,
    path: String,
    members: Map<String, Value>,
}

impl Place {
    fn wrong(&self, member: &str, reason: impl Into<String>) -> MalformedPolicy {
        let path = if self.path.is_empty() { member.to_owned() } else { format!("{}.{member}", self.path) };
        MalformedPolicy { key: self.key, path, reason: reason.into() }
    }

    /// A member that is there; null is as if it were not.
    fn get(&self, member: &str) -> Option<&Value> {
        self.members.get(member).filter(|value| !value.is_null())
    }

    fn object(&self, member: &str) -> Result<Option<Place>, MalformedPolicy> {
        let Some(value) = self.get(member) else { return Ok(None) };
        let members = value.as_object().ok_or_else(|| self.wrong(member, "must be an object"))?;
        let path = if self.path.is_empty() { member.to_owned() } else { format!("{}.{member}", self.path) };
        Ok(Some(Place { key: self.key, path, members: members.clone() }))
    }

    fn objects(&self, member: &str) -> Result<Vec<Place>, MalformedPolicy> {
        let Some(value) = self.get(member) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| self.wrong(member, "must be a list"))?;
        let place = |(at, item): (usize, &Value)| -> Result<Place, MalformedPolicy> {
            let at = format!("{member}[{at}]");
            let members = item.as_object().ok_or_else(|| self.wrong(&at, "must be an object"))?;
            let path = if self.path.is_empty() { at } else { format!("{}.{at}", self.path) };
            Ok(Place { key: self.key, path, members: members.clone() })
        };
        items.iter().enumerate().map(place).collect()
    }

    fn seconds(&self, member: &str) -> Result<Option<u32>, MalformedPolicy> {
        let Some(value) = self.get(member) else { return Ok(None) };
        let number =
            value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
        number.map(Some).ok_or_else(|| self.wrong(member, "must be a number of seconds from 1 on"))
    }

    fn text(&self, member: &str) -> Result<Option<&str>, MalformedPolicy> {
        let Some(value) = self.get(member) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(member, "must be a text"))
    }
}

/// A key's value; `None` if it is absent or empty.
pub(super) fn document(key: &'static str, text: Option<&str>) -> Result<Option<Place>, MalformedPolicy> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    let wrong = |reason: String| MalformedPolicy { key, path: "JSON".to_owned(), reason };
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let Value::Object(members) = value else { return Err(wrong("must be an object".to_owned())) };
    Ok(Some(Place { key, path: String::new(), members }))
}

/// What of a strategy concerns metrics.
pub(super) fn strategy(place: &Place) -> Result<Strategy, MalformedPolicy> {
    let mut percentiles = None;
    if let Some(policy) = place.object("metricAggregatePolicy")?
        && let Some(durations) = policy.get("durations")
    {
        let durations = durations.as_array().ok_or_else(|| policy.wrong("durations", "must be a list"))?;
        if durations.len() > Policy::MAX_PERCENTILES {
            return Err(policy.wrong("durations", format!("are more than {}", Policy::MAX_PERCENTILES)));
        }
        let read = |(at, duration): (usize, &Value)| -> Result<u32, MalformedPolicy> {
            let read = duration.as_str().and_then(seconds);
            let possible = Policy::PERCENTILE_DURATIONS_S;
            read.filter(|seconds| possible.contains(seconds)).ok_or_else(|| {
                let reason = "must be a duration of whole seconds, such as 5m, of half an hour at most";
                policy.wrong(&format!("durations[{at}]"), reason)
            })
        };
        let durations: Vec<u32> = durations.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        percentiles = Some(durations).filter(|durations| !durations.is_empty());
    }
    let memory = match place.text("metricMemoryCollectPolicy")? {
        None | Some("") => None,
        Some("usageWithoutPageCache") => Some(MemoryCollectPolicy::UsageWithoutPageCache),
        Some("usageWithHotPageCache") => Some(MemoryCollectPolicy::UsageWithHotPageCache),
        Some("usageWithPageCache") => Some(MemoryCollectPolicy::UsageWithPageCache),
        Some(_) => {
            let reason = "must be usageWithoutPageCache, usageWithHotPageCache or usageWithPageCache";
            return Err(place.wrong("metricMemoryCollectPolicy", reason));
        }
    };
    let possible = Policy::AGGREGATE_DURATIONS_S;
    let window = place.seconds("metricAggregateDurationSeconds")?;
    if window.is_some_and(|window| !possible.contains(&window)) {
        let reason = format!("must be {} to {} seconds", possible.start(), possible.end());
        return Err(place.wrong("metricAggregateDurationSeconds", reason));
    }
    Ok(Strategy { window, interval: place.seconds("metricReportIntervalSeconds")?, percentiles, memory })
}

/// What holds of some nodes, each with its selector.
pub(super) fn node_configs<T>(
    place: &Place,
    member: &str,
    read: fn(&Place) -> Result<T, MalformedPolicy>,
) -> Result<Vec<NodeConfig<T>>, MalformedPolicy> {
    let config = |config: Place| -> Result<NodeConfig<T>, MalformedPolicy> {
        let selector = config.get("nodeSelector").map(|selector| {
            let selector: LabelSelector = serde_json::from_value(selector.clone())
                .map_err(|error| config.wrong("nodeSelector", error.to_string()))?;
            for (at, requirement) in selector.match_expressions.iter().flatten().enumerate() {
                if !matches!(requirement.operator.as_str(), "In" | "NotIn" | "Exists" | "DoesNotExist") {
                    let path = format!("nodeSelector.matchExpressions[{at}].operator");
                    return Err(config.wrong(&path, "must be In, NotIn, Exists or DoesNotExist"));
                }
            }
            Ok(selector)
        });
        Ok(NodeConfig { selector: selector.transpose()?, value: read(&config)? })
    };
    place.objects(member)?.into_iter().map(config).collect()
}

/// Programs beside pods.
pub(super) fn applications(place: &Place) -> Result<Vec<HostApplication>, MalformedPolicy> {
    let found = place.objects("applications")?;
    if found.len() > MOST_APPLICATIONS {
        return Err(place.wrong("applications", format!("are more than {MOST_APPLICATIONS}")));
    }
    let mut read: Vec<HostApplication> = Vec::new();
    for one in &found {
        let application = application(one)?;
        if read.iter().any(|other| other.name == application.name) {
            return Err(one.wrong("name", "is there twice"));
        }
        read.push(application);
    }
    Ok(read)
}

fn application(place: &Place) -> Result<HostApplication, MalformedPolicy> {
    let name = place.text("name")?.filter(|name| is_name(name));
    let name =
        name.ok_or_else(|| place.wrong("name", "must be a name of at most 253 characters, without /"))?;
    let priority = match place.text("priority")? {
        None | Some("") => None,
        Some("koord-prod") => Some(Priority::Prod),
        Some("koord-mid") => Some(Priority::Mid),
        Some("koord-batch") => Some(Priority::Batch),
        Some("koord-free") => Some(Priority::Free),
        Some(_) => {
            return Err(place.wrong("priority", "must be koord-prod, koord-mid, koord-batch or koord-free"));
        }
    };
    let qos = match place.text("qos")? {
        None | Some("") => None,
        Some("LSE") => Some(Qos::Lse),
        Some("LSR") => Some(Qos::Lsr),
        Some("LS") => Some(Qos::Ls),
        Some("BE") => Some(Qos::Be),
        Some("SYSTEM") => Some(Qos::System),
        Some(_) => return Err(place.wrong("qos", "must be LSE, LSR, LS, BE or SYSTEM")),
    };
    let (base, path) = match place.object("cgroupPath")? {
        // As Koordinator places those that say nothing.
        None => {
            let folder = match qos {
                Some(Qos::Lse | Qos::Lsr | Qos::Ls) => "host-latency-sensitive/",
                Some(Qos::Be) => "host-best-effort/",
                _ => "",
            };
            (CgroupBase::Root, format!("{folder}{name}"))
        }
        Some(cgroup) => {
            let base = match cgroup.text("base")? {
                None | Some("" | "CgroupRoot") => CgroupBase::Root,
                Some("Kubepods") => CgroupBase::Kubepods,
                Some("KubepodsBurstable") => CgroupBase::Burstable,
                Some("KubepodsBesteffort") => CgroupBase::BestEffort,
                Some(_) => {
                    let reason = "must be CgroupRoot, Kubepods, KubepodsBurstable or KubepodsBesteffort";
                    return Err(cgroup.wrong("base", reason));
                }
            };
            let part = |member: &str| -> Result<String, MalformedPolicy> {
                Ok(cgroup.text(member)?.unwrap_or_default().trim_matches('/').to_owned())
            };
            let parts = [part("parentDir")?, part("relativePath")?];
            let path = parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("/");
            if path.is_empty()
                || path.len() > 1_024
                || path.split('/').any(|part| part == ".." || part == ".")
            {
                return Err(cgroup.wrong("relativePath", "must lead to a cgroup beneath its base"));
            }
            (base, path)
        }
    };
    Ok(HostApplication {
        name: name.to_owned(),
        priority: priority.map(i32::from),
        qos: qos.map(i32::from),
        base: base.into(),
        path,
    })
}

fn is_name(name: &str) -> bool {
    (1..=253).contains(&name.len()) && !name.contains('/') && name != "." && name != ".."
}

/// Whole seconds of a duration as Go writes it: `5m`, `1h30m`, `90s`. `None` if it is none, or has other units.
pub(super) fn seconds(text: &str) -> Option<u32> {
    let mut total = 0_u32;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
        let number: u32 = rest.get(..digits)?.parse().ok()?;
        let unit = match rest.as_bytes().get(digits)? {
            b'h' => 3_600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = rest.get(digits + 1..)?;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::super::Policies;
    use super::*;

    #[test]
    fn what_is_wrong_has_a_place() {
        for (text, path) in [
            ("{", "JSON"),
            ("[]", "JSON"),
            (r#"{"metricReportIntervalSeconds": 0}"#, "metricReportIntervalSeconds"),
            (r#"{"metricReportIntervalSeconds": "60"}"#, "metricReportIntervalSeconds"),
            (r#"{"metricAggregateDurationSeconds": -1}"#, "metricAggregateDurationSeconds"),
            (r#"{"metricAggregateDurationSeconds": 9}"#, "metricAggregateDurationSeconds"),
            (r#"{"metricAggregateDurationSeconds": 1801}"#, "metricAggregateDurationSeconds"),
            (r#"{"metricAggregatePolicy": {"durations": ["30m1s"]}}"#, "metricAggregatePolicy.durations[0]"),
            (
                r#"{"metricAggregatePolicy": {"durations": ["1m","2m","3m","4m","5m","6m","7m","8m","9m"]}}"#,
                "metricAggregatePolicy.durations",
            ),
            (r#"{"metricMemoryCollectPolicy": "all"}"#, "metricMemoryCollectPolicy"),
            (
                r#"{"metricAggregatePolicy": {"durations": ["5m", "5d"]}}"#,
                "metricAggregatePolicy.durations[1]",
            ),
            (r#"{"metricAggregatePolicy": []}"#, "metricAggregatePolicy"),
            (r#"{"nodeConfigs": {}}"#, "nodeConfigs"),
            (
                r#"{"nodeConfigs": [{}, {"metricReportIntervalSeconds": 1.5}]}"#,
                "nodeConfigs[1].metricReportIntervalSeconds",
            ),
            (r#"{"nodeConfigs": [{"nodeSelector": []}]}"#, "nodeConfigs[0].nodeSelector"),
            (
                r#"{"nodeConfigs": [{"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}]}"#,
                "nodeConfigs[0].nodeSelector.matchExpressions[0].operator",
            ),
        ] {
            let error = Policies::parse(Some(text), None).unwrap_err();
            assert_eq!((error.key, error.path.as_str()), ("colocation-config", path), "{text}: {error}");
        }
        for (text, path) in [
            (r#"{"applications": [{}]}"#, "applications[0].name"),
            (r#"{"applications": [{"name": "../etc"}]}"#, "applications[0].name"),
            (r#"{"applications": [{"name": "a"}, {"name": "a"}]}"#, "applications[1].name"),
            (r#"{"applications": [{"name": "a", "qos": "x"}]}"#, "applications[0].qos"),
            (r#"{"applications": [{"name": "a", "priority": "x"}]}"#, "applications[0].priority"),
            (
                r#"{"applications": [{"name": "a", "cgroupPath": {"base": "x"}}]}"#,
                "applications[0].cgroupPath.base",
            ),
            (
                r#"{"applications": [{"name": "a", "cgroupPath": {"relativePath": "b/../../c"}}]}"#,
                "applications[0].cgroupPath.relativePath",
            ),
            (
                r#"{"nodeConfigs": [{"applications": [{"name": "a", "cgroupPath": {}}]}]}"#,
                "nodeConfigs[0].applications[0].cgroupPath.relativePath",
            ),
        ] {
            let error = Policies::parse(None, Some(text)).unwrap_err();
            assert_eq!(
                (error.key, error.path.as_str()),
                ("host-application-config", path),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn durations_are_gos() {
        for (text, expected) in [
            ("5m", Some(300)),
            ("1h0m5s", Some(3_605)),
            ("", None),
            ("5", None),
            ("m", None),
            ("5d", None),
            ("1.5h", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
