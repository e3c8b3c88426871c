//! Label and field selectors: text in, a predicate out; errors in the API server's words.
//!
//! Pure. Which fields a kind may be selected by is not decided here.

use std::fmt;

use serde_json::Value;

/// One requirement of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Greater(String, i64),
    Less(String, i64),
}

/// A label selector; the empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// Why a text is no selector, as the API server says it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Symbol(symbol) => f.write_str(symbol),
            Self::End => Ok(()),
        }
    }
}

const SYMBOLS: [&str; 10] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<", ""];

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let symbol = SYMBOLS.iter().find(|symbol| !symbol.is_empty() && rest.starts_with(**symbol));
        if let Some(symbol) = symbol {
            tokens.push(Token::Symbol(symbol));
            rest = rest[symbol.len()..].trim_start();
            continue;
        }
        let special = |c: char| c.is_whitespace() || "=!(),><".contains(c);
        let end = rest.find(special).unwrap_or(rest.len()).max(first.len_utf8());
        tokens.push(Token::Word(rest[..end].to_owned()));
        rest = rest[end..].trim_start();
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn unexpected(found: &Token, expected: &str) -> SelectorError {
        SelectorError(format!("found '{found}', expected: {expected}"))
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = *self.peek() == Token::Symbol("!");
        if absent {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => {
                return Err(Self::unexpected(
                    &other,
                    if absent { "identifier" } else { "!, identifier, or 'end of string'" },
                ));
            }
        };
        if absent {
            return Ok(Requirement::Absent(key));
        }
        match self.peek().clone() {
            Token::End | Token::Symbol(",") => Ok(Requirement::Exists(key)),
            Token::Symbol("=" | "==") => {
                self.at += 1;
                Ok(Requirement::In(key, vec![self.value()?]))
            }
            Token::Symbol("!=") => {
                self.at += 1;
                Ok(Requirement::NotIn(key, vec![self.value()?]))
            }
            Token::Symbol(sign @ (">" | "<")) => {
                self.at += 1;
                let value = self.value()?;
                let number = value.parse().map_err(|_| SelectorError(format!("values[0][{key}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")))?;
                Ok(if sign == ">" {
                    Requirement::Greater(key, number)
                } else {
                    Requirement::Less(key, number)
                })
            }
            Token::Word(word) if word == "in" || word == "notin" => {
                self.at += 1;
                let values = self.values()?;
                Ok(if word == "in" { Requirement::In(key, values) } else { Requirement::NotIn(key, values) })
            }
            other => Err(Self::unexpected(&other, "in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek().clone() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            other @ Token::Symbol(_) => Err(Self::unexpected(&other, "identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(Self::unexpected(&open, "'('"));
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => values.push(word),
                Token::Symbol(",") => {}
                Token::Symbol(")") => return Ok(values),
                other => return Err(Self::unexpected(&other, "',', ')' or identifier")),
            }
        }
    }
}

impl LabelSelector {
    /// Reads a selector as it stands in `labelSelector=`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let mut requirements = Vec::new();
        let wrap = |error: SelectorError| SelectorError(format!("unable to parse requirement: {}", error.0));
        loop {
            if *parser.peek() == Token::End {
                return Ok(Self(requirements));
            }
            requirements.push(parser.requirement().map_err(wrap)?);
            match parser.next() {
                Token::End => return Ok(Self(requirements)),
                Token::Symbol(",") => {}
                other => {
                    return Err(SelectorError(format!("found '{other}', expected: ',' or 'end of string'")));
                }
            }
        }
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `object`'s labels satisfy it.
    pub fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        self.0.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
            Requirement::In(key, values) => label(key).is_some_and(|value| values.iter().any(|v| v == value)),
            Requirement::NotIn(key, values) => {
                !label(key).is_some_and(|value| values.iter().any(|v| v == value))
            }
            Requirement::Greater(key, bound) => number(label(key)).is_some_and(|value| value > *bound),
            Requirement::Less(key, bound) => number(label(key)).is_some_and(|value| value < *bound),
        })
    }
}

fn number(text: Option<&str>) -> Option<i64> {
    text.and_then(|text| text.parse().ok())
}

/// A field selector: `path=value`, `path!=value`, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Reads a selector as it stands in `fieldSelector=`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for term in text.split(',').filter(|term| !term.is_empty()) {
            let (path, equal, value) = if let Some((path, value)) = term.split_once("!=") {
                (path, false, value)
            } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (path, true, value)
            } else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            terms.push((path.to_owned(), equal, value.to_owned()));
        }
        Ok(Self(terms))
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// The paths it names.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(path, _, _)| path.as_str())
    }

    /// The one value `path` must have, if it says so.
    pub fn exactly(&self, path: &str) -> Option<&str> {
        self.0.iter().find(|(p, equal, _)| p == path && *equal).map(|(_, _, value)| value.as_str())
    }

    /// Whether `object`'s fields satisfy it.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, equal, value)| (field(object, path) == *value) == *equal)
    }
}

/// A selectable field as text; what is not there is the empty text, but for booleans, which are false.
fn field(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |value, step| value.get(step));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None if path == "spec.unschedulable" || path == "spec.hostNetwork" => {
            "false".to_owned()
        }
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_select_as_documented() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "x"}}});
        let table = [
            ("", true),
            ("a", true),
            ("c", false),
            ("!c", true),
            ("!a", false),
            ("a=1,b==x", true),
            ("a!=1", false),
            ("c!=1", true),
            ("b in (x, y)", true),
            ("b notin (x,y)", false),
            ("c notin (x)", true),
            ("a>0", true),
            ("a<1", false),
            ("c=", false),
        ];
        for (text, expected) in table {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&object), expected, "{text}");
        }
    }

    #[test]
    fn malformed_labels_are_refused_in_the_servers_words() {
        let said = |text: &str| LabelSelector::parse(text).unwrap_err().0;
        assert_eq!(said("a===b"), "unable to parse requirement: found '=', expected: identifier");
        assert_eq!(
            said("a in (="),
            "unable to parse requirement: found '=', expected: ',', ')' or identifier"
        );
    }

    #[test]
    fn fields_select_by_path() {
        let object = json!({"metadata": {"name": "n"}, "spec": {"nodeName": "a"}});
        let matches = |text: &str| FieldSelector::parse(text).unwrap().matches(&object);
        assert!(matches("metadata.name=n,spec.nodeName!=b"));
        assert!(!matches("metadata.name==m"));
        assert!(matches("spec.unschedulable=false"));
        assert_eq!(FieldSelector::parse("b").unwrap_err().0, "invalid selector: 'b'; can't understand 'b'");
    }
}
