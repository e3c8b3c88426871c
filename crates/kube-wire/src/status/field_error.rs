//! What is wrong with one field of a request, in the API server's words.

use std::fmt;

use super::StatusCause;
use crate::quoting::quoted;

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    field: String,
    kind: Kind,
    detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Forbidden,
    /// The value that is none of those there are.
    NotSupported(String),
}

impl FieldError {
    /// A value that could be valid, but not together with the others.
    pub fn forbidden(field: &str, detail: &str) -> Self {
        Self { field: field.to_owned(), kind: Kind::Forbidden, detail: detail.to_owned() }
    }

    /// A value that is none of `supported`.
    pub fn not_supported(field: &str, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<_> = supported.iter().map(|value| quoted(value)).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        Self { field: field.to_owned(), kind: Kind::NotSupported(value.to_owned()), detail }
    }

    fn message(&self) -> String {
        match &self.kind {
            Kind::Forbidden => format!("Forbidden: {}", self.detail),
            Kind::NotSupported(value) => format!("Unsupported value: {}: {}", quoted(value), self.detail),
        }
    }

    pub(super) fn cause(&self) -> StatusCause {
        let reason = match self.kind {
            Kind::Forbidden => "FieldValueForbidden",
            Kind::NotSupported(_) => "FieldValueNotSupported",
        };
        StatusCause { reason: reason.to_owned(), message: self.message(), field: self.field.clone() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.message())
    }
}

/// Several errors as one text; what is said twice stands once.
pub(super) fn aggregate(errors: &[FieldError]) -> String {
    let mut words: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !words.contains(&text) {
            words.push(text);
        }
    }
    match &words[..] {
        [one] => one.clone(),
        _ => format!("[{}]", words.join(", ")),
    }
}
