//! Where the steps of a load are: ConfigMap `slo-controller-config`, key `node-load-config`. Pure.
//!
//! ```json
//! {"cpu": [50, 65, 80], "memory": [70, 85], "memoryPressure": [5, 20], "hysteresis": 5}
//! ```

use serde_json::Value;

/// More steps than this no consumer tells apart.
const MOST: usize = 16;

/// In percent. Beyond a hundred, because a node may use more than it has to give to pods.
const HIGHEST: u64 = 1_000;

/// The thresholds, in percent, rising.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds {
    pub(super) cpu: Vec<u32>,
    pub(super) memory: Vec<u32>,
    pub(super) cpu_pressure: Vec<u32>,
    pub(super) memory_pressure: Vec<u32>,
    pub(super) io_pressure: Vec<u32>,
    /// So far below a threshold it is left.
    pub(super) hysteresis: u32,
}

/// Why they cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct MalformedThresholds {
    /// Where: `memory[2]`.
    pub path: String,
    /// What.
    pub reason: String,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            cpu: vec![50, 65, 80, 90],
            memory: vec![50, 70, 85, 95],
            cpu_pressure: vec![10, 30, 60],
            memory_pressure: vec![5, 20, 50],
            io_pressure: vec![10, 30, 60],
            hysteresis: 5,
        }
    }
}

impl Thresholds {
    /// Reads the ConfigMap's key; what it does not say is the default.
    pub fn parse(text: Option<&str>) -> Result<Self, MalformedThresholds> {
        let mut read = Self::default();
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(read) };
        let value: Value = serde_json::from_str(text).map_err(|error| wrong("", &error))?;
        let Value::Object(members) = value else { return Err(wrong("", &"must be an object")) };
        for (name, value) in &members {
            let list = match name.as_str() {
                "cpu" => &mut read.cpu,
                "memory" => &mut read.memory,
                "cpuPressure" => &mut read.cpu_pressure,
                "memoryPressure" => &mut read.memory_pressure,
                "ioPressure" => &mut read.io_pressure,
                "hysteresis" => {
                    let percent = value.as_u64().filter(|percent| *percent <= 50);
                    let percent = percent.ok_or_else(|| wrong(name, &"must be a percentage from 0 to 50"))?;
                    read.hysteresis = u32::try_from(percent).unwrap_or_default();
                    continue;
                }
                _ => return Err(wrong(name, &"there is no such setting")),
            };
            *list = rising(name, value)?;
        }
        Ok(read)
    }
}

fn rising(name: &str, value: &Value) -> Result<Vec<u32>, MalformedThresholds> {
    let Value::Array(items) = value else { return Err(wrong(name, &"must be a list of percentages")) };
    if items.len() > MOST {
        return Err(wrong(name, &format!("has more than {MOST} thresholds")));
    }
    let mut list: Vec<u32> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let path = format!("{name}[{at}]");
        let percent = item.as_u64().filter(|percent| (1..=HIGHEST).contains(percent));
        let percent = percent.and_then(|percent| u32::try_from(percent).ok());
        let percent =
            percent.ok_or_else(|| wrong(&path, &format!("must be a percentage from 1 to {HIGHEST}")))?;
        if list.last().is_some_and(|last| *last >= percent) {
            return Err(wrong(&path, &"must be greater than the one before"));
        }
        list.push(percent);
    }
    Ok(list)
}

fn wrong(path: &str, reason: &dyn std::fmt::Display) -> MalformedThresholds {
    let path = if path.is_empty() { "JSON" } else { path };
    MalformedThresholds { path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_the_default() {
        assert_eq!(Thresholds::parse(None), Ok(Thresholds::default()));
        let read = Thresholds::parse(Some(r#"{"cpu": [70], "ioPressure": [], "hysteresis": 0}"#)).unwrap();
        let expected =
            Thresholds { cpu: vec![70], io_pressure: vec![], hysteresis: 0, ..Thresholds::default() };
        assert_eq!(read, expected);
    }

    #[test]
    fn what_is_wrong_has_a_place() {
        for (text, path) in [
            ("[", "JSON"),
            ("[]", "JSON"),
            (r#"{"gpu": [1]}"#, "gpu"),
            (r#"{"cpu": 5}"#, "cpu"),
            (r#"{"cpu": [0]}"#, "cpu[0]"),
            (r#"{"cpu": [50, 50]}"#, "cpu[1]"),
            (r#"{"memory": [1, 2.5]}"#, "memory[1]"),
            (r#"{"memory": [1001]}"#, "memory[0]"),
            (r#"{"hysteresis": 51}"#, "hysteresis"),
            (r#"{"cpu": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}"#, "cpu"),
        ] {
            assert_eq!(Thresholds::parse(Some(text)).unwrap_err().path, path, "{text}");
        }
    }
}
