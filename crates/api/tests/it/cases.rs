//! The cases of `tests/cases/*.yaml`: one table of objects for a kind, accepted or refused, and what they become.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use api::{Gateway, NodePool};
use kube::core::cel::{Validator, apply_defaults};
use serde_json::Value;

use crate::case::{Case, contains};
use crate::structural::{pruned, refusals};

#[test]
fn node_pools_are_accepted_or_refused_as_the_cases_say() {
    check_all(include_str!("../cases/node_pool.yaml"));
}

#[test]
fn gateways_are_accepted_or_refused_as_the_cases_say() {
    check_all(include_str!("../cases/gateway.yaml"));
}

#[test]
fn every_rule_refuses_some_case() {
    let refused: String = [include_str!("../cases/node_pool.yaml"), include_str!("../cases/gateway.yaml")]
        .into_iter()
        .flat_map(parse)
        .map(|case| errors(&case).join("\n"))
        .collect();
    let mut silent = Vec::new();
    for crd in api::crds() {
        for_each_rule(&serde_json::to_value(crd).unwrap(), &mut |rule| {
            let message = rule["message"].as_str().unwrap().trim_start_matches("a key ");
            if !refused.contains(message) {
                silent.push(rule["rule"].to_string());
            }
        });
    }
    assert!(silent.is_empty(), "no case is refused by these rules, add one:\n{}", silent.join("\n"));
}

fn for_each_rule(value: &Value, visit: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    Value::Array(rules) if key == "x-kubernetes-validations" => {
                        rules.iter().for_each(&mut *visit);
                    }
                    field => for_each_rule(field, visit),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| for_each_rule(item, visit)),
        _ => {}
    }
}

fn check_all(file: &str) {
    let cases = parse(file);
    let mut names = BTreeSet::new();
    let mut wrong = String::new();
    for case in &cases {
        assert!(names.insert(&case.name), "two cases are named {:?}", case.name);
        if let Err(why) = check(case) {
            writeln!(wrong, "- {}: {why}", case.name).unwrap();
        }
    }
    assert!(wrong.is_empty(), "of {} cases these are wrong:\n{wrong}", cases.len());
}

fn parse(file: &str) -> Vec<Case> {
    serde_saphyr::from_str(file).expect("the cases are YAML of the form that their head describes")
}

fn check(case: &Case) -> Result<(), String> {
    let errors = errors(case);
    match &case.refused {
        Some(fragment) if errors.is_empty() => Err(format!("accepted, want refused: {fragment}")),
        Some(fragment) if !errors.iter().any(|error| error.contains(fragment)) => {
            Err(format!("want refused: {fragment}; got {errors:?}"))
        }
        None if !errors.is_empty() => Err(format!("want accepted, got {errors:?}")),
        Some(_) => Ok(()),
        None => {
            let stored = stored(&case.object);
            let expected = case.becomes.as_ref().is_none_or(|part| contains(&stored, part));
            let read = parses(&stored);
            if expected { read } else { Err(format!("becomes {stored}")) }
        }
    }
}

/// What the schema, and if that is content, the rules have against the case; each begins with the path of the field.
fn errors(case: &Case) -> Vec<String> {
    let schema = schema(&case.object);
    let object = stored(&case.object);
    let structural = refusals(schema, &object);
    if !structural.is_empty() {
        return structural;
    }
    let old = case.old.as_ref().map(stored);
    let evaluated = Validator::new().validate(schema, &object, old.as_ref());
    let errors = evaluated.err().map(kube::core::cel::ValidationErrors::into_vec).unwrap_or_default();
    errors.into_iter().map(|error| format!("{}: {}", error.field_path, error.message)).collect()
}

/// The object as the API server stores it.
fn stored(object: &Value) -> Value {
    let schema = schema(object);
    // Twice, because the evaluator, unlike the API server, does not look into a default that it has just filled in.
    apply_defaults(schema, &apply_defaults(schema, &pruned(schema, object)))
}

/// The schema of the version in which the object is written.
fn schema(object: &Value) -> &'static Value {
    static CRDS: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(api::crds()).unwrap());
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let crd = CRDS.as_array().unwrap().iter().find(|crd| crd["spec"]["group"] == group).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    &versions.iter().find(|v| v["name"] == version).unwrap()["schema"]["openAPIV3Schema"]
}

/// What the API server stores, our types read, and lose nothing of.
fn parses(stored: &Value) -> Result<(), String> {
    let written = match stored["kind"].as_str() {
        Some("NodePool") => serde_json::from_value::<NodePool>(stored.clone()).map(serde_json::to_value),
        _ => serde_json::from_value::<Gateway>(stored.clone()).map(serde_json::to_value),
    };
    let written = written
        .and_then(|value| value)
        .map_err(|error| format!("our types do not read {stored}: {error}"))?;
    let spec = apply_defaults(schema(stored), &written)["spec"].clone();
    let expected = without_empty(&stored["spec"]);
    if contains(&spec, &expected) { Ok(()) } else { Err(format!("{expected} was read as {spec}")) }
}

/// Without the fields whose absence means the same, which our types leave out: empty texts and maps, and port 0.
fn without_empty(value: &Value) -> Value {
    let says_something = |(key, value): &(&String, &Value)| match value {
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Number(_) if matches!(key.as_str(), "port" | "publicPort") => **value != 0,
        _ => true,
    };
    match value {
        Value::Object(fields) => {
            let kept =
                fields.iter().filter(says_something).map(|(key, value)| (key.clone(), without_empty(value)));
            Value::Object(kept.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_empty).collect()),
        other => other.clone(),
    }
}
