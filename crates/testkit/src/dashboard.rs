//! Whether a Grafana dashboard asks for what a process shows: names of metrics, labels, and values of labels that are told apart.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Labels that Prometheus adds to what it scrapes.
const OF_THE_TARGET: [&str; 4] = ["namespace", "pod", "job", "instance"];

/// The series of one metric: values by label.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// What `dashboard` asks for that is not in `exposition` (the text that a process shows), a sentence each; and how many expressions
/// were looked at. What shows up only under load must be under load.
pub fn unanswered(dashboard: &Value, exposition: &str) -> (Vec<String>, usize) {
    let shown = parse(exposition);
    let (mut amiss, mut count) = (Vec::new(), 0);
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            count += 1;
            let [expression, legend] =
                ["expr", "legendFormat"].map(|field| target[field].as_str().unwrap_or_default());
            let found = unanswered_by(&shown, expression, legend);
            amiss.extend(found.into_iter().map(|what| format!("{}: {what} ({expression})", panel["title"])));
        }
    }
    (amiss, count)
}

fn unanswered_by(shown: &BTreeMap<String, Labels>, expression: &str, legend: &str) -> Vec<String> {
    let mut amiss = Vec::new();
    let asked = selectors(expression);
    if asked.is_empty() {
        amiss.push("no metric of ours".to_owned());
    }
    let grouped: BTreeSet<&str> = groupings(expression).collect();
    for (metric, matchers) in asked {
        let Some(labels) = shown.get(metric) else {
            amiss.push(format!("no metric {metric}"));
            continue;
        };
        let is_known = |label: &str| labels.contains_key(label) || OF_THE_TARGET.contains(&label);
        let matched = matchers.iter().map(|(label, _)| *label);
        for label in matched.chain(grouped.iter().copied()).filter(|label| !is_known(label)) {
            amiss.push(format!("{metric} has no label {label}"));
        }
        for (label, value) in matchers {
            if labels.get(label).is_some_and(|values| !value.contains('$') && !values.contains(value)) {
                amiss.push(format!("no {metric} with {label}={value}"));
            }
        }
        for label in placeholders(legend) {
            let is_left = if grouped.is_empty() { is_known(label) } else { grouped.contains(label) };
            if !is_left {
                amiss.push(format!("the legend shows {label}, which is not in the result"));
            }
        }
    }
    amiss
}

/// The metrics of ours in an expression, each with the labels and values of its matchers.
fn selectors(expression: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_name) {
        rest = &rest[start..];
        let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after;
        if !(name.starts_with("isthmus_") || name.starts_with("process_")) {
            continue;
        }
        let inside =
            after.strip_prefix('{').and_then(|after| after.split_once('}')).map(|(inside, _)| inside);
        let matchers = inside.into_iter().flat_map(|inside| inside.split("\",")).filter_map(|matcher| {
            let (label, value) = matcher.split_once('=')?;
            // What a pattern means is Prometheus' to say.
            let value = if value.starts_with('~') { "$" } else { value.trim_matches('"') };
            Some((label.trim_end_matches('!').trim(), value))
        });
        found.push((name, matchers.collect()));
        rest = inside.map_or(rest, |inside| &after[inside.len() + 2..]);
    }
    found
}

/// The labels by which an expression sums up.
fn groupings(expression: &str) -> impl Iterator<Item = &str> {
    let lists = expression.split(" by (").skip(1).filter_map(|after| after.split_once(')'));
    lists.flat_map(|(labels, _)| labels.split(',').map(str::trim))
}

/// The labels that a legend shows.
fn placeholders(legend: &str) -> impl Iterator<Item = &str> {
    legend.split("{{").skip(1).filter_map(|after| after.split_once("}}")).map(|(label, _)| label.trim())
}

/// Every sample's name, with the labels and values under which it is there.
fn parse(exposition: &str) -> BTreeMap<String, Labels> {
    let mut shown: BTreeMap<String, Labels> = BTreeMap::new();
    for line in exposition.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
        let labels = shown.entry(name.to_owned()).or_default();
        let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once("} ")).map(|(inside, _)| inside);
        for pair in inside.into_iter().flat_map(|inside| inside.split("\",")) {
            if let Some((label, value)) = pair.split_once("=\"") {
                labels.entry(label.to_owned()).or_default().insert(value.trim_end_matches('"').to_owned());
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SHOWN: &str = "# HELP isthmus_turns Turns.\nisthmus_turns_total{controller=\"pool\",outcome=\"ok\"} 1\n\
                         isthmus_turns_total{controller=\"pool\",outcome=\"bad\"} 0\nprocess_open_fds 3\n# EOF\n";

    fn amiss(expression: &str, legend: &str) -> Vec<String> {
        let dashboard = json!({ "panels": [{ "title": "t", "targets": [{ "expr": expression, "legendFormat": legend }] }] });
        let (amiss, count) = unanswered(&dashboard, SHOWN);
        assert_eq!(count, 1);
        amiss.into_iter().map(|what| what.split(" (").next().unwrap().replace("\"t\": ", "")).collect()
    }

    #[test]
    fn what_is_shown_is_answered() {
        for (expression, legend) in [
            (
                "sum by (controller) (rate(isthmus_turns_total{namespace=~\"$n\",outcome!=\"ok\"}[5m]))",
                "{{controller}}",
            ),
            ("process_open_fds{pod=~\".*-manager-.*\"}", "{{pod}} files"),
            ("sum(isthmus_turns_total{outcome=\"bad\"}) / sum(isthmus_turns_total)", "bad"),
        ] {
            assert_eq!(amiss(expression, legend), [""; 0], "{expression}");
        }
    }

    #[test]
    fn what_is_not_shown_is_named() {
        for (expression, legend, expected) in [
            ("isthmus_turns", "", "no metric isthmus_turns"),
            ("up", "", "no metric of ours"),
            ("sum by (le) (isthmus_turns_total)", "", "isthmus_turns_total has no label le"),
            ("isthmus_turns_total{pool=\"a\"}", "", "isthmus_turns_total has no label pool"),
            ("isthmus_turns_total{outcome=\"worse\"}", "", "no isthmus_turns_total with outcome=worse"),
            (
                "sum by (outcome) (isthmus_turns_total)",
                "{{controller}}",
                "the legend shows controller, which is not in the result",
            ),
        ] {
            assert_eq!(amiss(expression, legend), [expected], "{expression}");
        }
    }
}
