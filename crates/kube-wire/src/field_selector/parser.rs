//! The grammar of field selectors: `label=value` terms, separated by commas, with `\` before `\`, `,` and `=` in values.

/// One term, whose label may be any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) label: Box<str>,
    pub(crate) equals: bool,
    pub(crate) value: Box<str>,
}

/// Parses all terms of `text`, in the order in which the API server looks at them.
pub(super) fn parse(text: &str) -> Result<Vec<Term>, String> {
    let mut parts = split_terms(text);
    parts.sort_unstable();
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (label, equals, value) = split_term(part)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            Ok(Term { label: label.into(), equals, value: unescaped(value)?.into() })
        })
        // A term without label and value is dropped; no field has an empty label.
        .filter(|term| !matches!(term, Ok(term) if term.label.is_empty() && term.value.is_empty()))
        .collect()
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Label, whether the value must be equal, and the value as it stands.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(at, _)| {
        let operators = [("!=", false), ("==", true), ("=", true)];
        operators
            .iter()
            .find_map(|(operator, equals)| Some((&term[..at], *equals, term[at..].strip_prefix(operator)?)))
    })
}

fn unescaped(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    let sequence: String = ['\\'].into_iter().chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            // The API server writes the number of the character.
            ',' | '=' => {
                let number = u32::from(character);
                return Err(format!("invalid field selector: unescaped character in value: {number}"));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// The value as it stands in a selector.
pub fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}
