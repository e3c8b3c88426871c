//! What label keys and values may look like, with the API server's words for what they may not.

use crate::quoting::quoted;

/// The longest name and value.
const LENGTH_MAX: usize = 63;
/// The longest prefix of a key.
const PREFIX_MAX: usize = 253;

const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
     character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PREFIX_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
     must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Checks a key: an optional DNS subdomain and `/`, and a name.
pub(super) fn check_key(key: &str) -> Result<(), String> {
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            prefix_errors(prefix, &mut errors);
            name
        }
        _ => {
            let rule = format!(
                "a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            );
            return Err(invalid(key, &rule));
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LENGTH_MAX {
        errors.push(format!("name part must be no more than {LENGTH_MAX} bytes"));
    }
    if !is_name(name) {
        errors.push(format!("name part {KEY_RULE}"));
    }
    // The path of the key is nil there, which Go writes so.
    if errors.is_empty() { Ok(()) } else { Err(invalid(key, &errors.join("; "))) }
}

fn invalid(key: &str, errors: &str) -> String {
    format!("<nil>: Invalid value: {}: {errors}", quoted(key))
}

fn prefix_errors(prefix: &str, errors: &mut Vec<String>) {
    if prefix.is_empty() {
        errors.push("prefix part must be non-empty".to_owned());
        return;
    }
    if prefix.len() > PREFIX_MAX {
        errors.push(format!("prefix part must be no more than {PREFIX_MAX} bytes"));
    }
    if !prefix.split('.').all(is_dns_label) {
        errors.push(format!("prefix part {PREFIX_RULE}"));
    }
}

/// What is wrong with a value, if anything.
pub(super) fn value_error(value: &str) -> Option<String> {
    let mut errors = Vec::new();
    if value.len() > LENGTH_MAX {
        errors.push(format!("must be no more than {LENGTH_MAX} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE_RULE.to_owned());
    }
    (!errors.is_empty()).then(|| format!("Invalid value: {}: {}", quoted(value), errors.join("; ")))
}

/// Whether `text` matches `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_name(text: &str) -> bool {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_dns_label(text: &str) -> bool {
    let lower = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(lower)
        && bytes.last().is_some_and(lower)
        && bytes.iter().all(|byte| lower(byte) || *byte == b'-')
}
