//! The simple JSON paths of columns: members, indices, `[*]`, and one filter for equality. The first value found counts.

use serde_json::Value;

/// A path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Member(String),
    /// From the end, if negative.
    Index(i64),
    All,
    /// Items whose member has the value.
    Where(String, Value),
}

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`; `None` if it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let (name, after) = member(after);
                if !name.is_empty() {
                    steps.push(Step::Member(name));
                }
                rest = after;
            } else {
                let inner = rest.strip_prefix('[')?;
                let end = closing(inner)?;
                steps.push(bracket(&inner[..end])?);
                rest = &inner[end + 1..];
            }
        }
        Some(Self(steps))
    }

    /// The first value at the path.
    pub(super) fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        walk(&self.0, value)
    }
}

/// A name up to the next step; `\.` is a dot in it.
fn member(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            other => name.push(other),
        }
    }
    (name, "")
}

/// Where the bracket closes that was opened before, quotes minded.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, ']') => return Some(at),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Ok(index) = text.parse() {
        return Some(Step::Index(index));
    }
    if let Some(name) = unquoted(text) {
        return Some(Step::Member(name.replace("\\.", ".")));
    }
    let filter = text.strip_prefix("?(@.")?.strip_suffix(')')?;
    let (name, value) = filter.split_once("==")?;
    let value = value.trim();
    let value = unquoted(value).map(Value::from).or_else(|| serde_json::from_str(value).ok())?;
    Some(Step::Where(name.trim().to_owned(), value))
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

fn walk<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        Step::Member(name) => walk(rest, value.get(name)?),
        Step::Index(index) => {
            let items = value.as_array()?;
            let length = i64::try_from(items.len()).ok()?;
            let index = if *index < 0 { length + index } else { *index };
            walk(rest, items.get(usize::try_from(index).ok()?)?)
        }
        Step::All => match value {
            Value::Array(items) => items.iter().find_map(|item| walk(rest, item)),
            Value::Object(members) => members.values().find_map(|member| walk(rest, member)),
            _ => None,
        },
        Step::Where(name, wanted) => value
            .as_array()?
            .iter()
            .filter(|item| item.get(name) == Some(wanted))
            .find_map(|item| walk(rest, item)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::JsonPath;

    #[test]
    fn paths_find_the_first_value() {
        let value = json!({
            "spec": { "ports": [{ "name": "a" }, { "name": "b" }], "a.b": 1 },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        for (path, expected) in [
            (".spec.ports[0].name", Some(json!("a"))),
            (".spec.ports[-1].name", Some(json!("b"))),
            (".spec.ports[*].name", Some(json!("a"))),
            (".spec.ports[7].name", None),
            (".spec['a.b']", Some(json!(1))),
            (r".spec.a\.b", Some(json!(1))),
            (".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True"))),
            (".status.conditions[?(@.type=='Other')].status", None),
            (".spec.missing.more", None),
        ] {
            let found = JsonPath::parse(path).unwrap();
            assert_eq!(found.find(&value), expected.as_ref(), "{path}");
        }
        assert_eq!(JsonPath::parse(".spec[?]"), None);
    }
}
