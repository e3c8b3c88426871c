//! What names, labels and annotations may look like, with the API server's words for what they may not: `IsLabelKey` and its like in
//! k8s.io/apimachinery, `pkg/api/validate/content` and `pkg/util/validation`.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
     with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
     alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
     'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
     an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The longest subdomain, label and name.
const SUBDOMAIN_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Whether it is a label of a DNS name.
fn is_dns_label(text: &str) -> bool {
    let lower = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(lower)
        && bytes.last().is_some_and(lower)
        && bytes.iter().all(|byte| lower(byte) || *byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_name(text: &str) -> bool {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn too_long(most: usize, unit: &str) -> String {
    format!("must be no more than {most} {unit}")
}

/// What is wrong with the name of an object.
pub fn subdomain_errors(text: &str) -> Vec<String> {
    subdomain_errors_in(text, "characters")
}

/// The API server counts a name in characters and the prefix of a key in bytes, and means the same.
fn subdomain_errors_in(text: &str, unit: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX, unit));
    }
    if !is_subdomain(text) {
        errors.push(SUBDOMAIN.to_owned());
    }
    errors
}

/// What is wrong with the name of a namespace.
pub fn label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX, "characters"));
    }
    if !is_dns_label(text) {
        errors.push(LABEL.to_owned());
    }
    errors
}

/// What is wrong with the key of a label or an annotation, or with a finalizer.
pub fn qualified_name_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(
                    subdomain_errors_in(prefix, "bytes")
                        .into_iter()
                        .map(|words| format!("prefix part {words}")),
                );
            }
            name
        }
        _ => {
            errors.push(format!(
                "a valid label key {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return errors;
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", too_long(LABEL_MAX, "bytes")));
    }
    if !is_name(name) {
        errors.push(format!("name part {NAME}"));
    }
    errors
}

/// What is wrong with the value of a label.
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX, "bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE.to_owned());
    }
    errors
}
