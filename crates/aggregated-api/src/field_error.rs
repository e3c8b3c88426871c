//! What is wrong with fields of an object, in the API server's words, and the status 422 of them all.

use kube_wire::status::{Status, StatusCause, StatusDetails};

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    field: String,
    reason: &'static str,
    message: String,
}

impl FieldError {
    fn new(field: &str, reason: &'static str, message: String) -> Self {
        Self { field: field.to_owned(), reason, message }
    }

    /// `value` as it stands in JSON.
    pub(crate) fn invalid(field: &str, value: &str, detail: &str) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {value}: {detail}"))
    }

    pub(crate) fn type_invalid(field: &str, wanted: &str, found: &str) -> Self {
        let found = kube_wire::quoting::quoted(found);
        let message = format!("Invalid value: {found}: {field} in body must be of type {wanted}: {found}");
        Self::new(field, "FieldValueTypeInvalid", message)
    }

    pub(crate) fn required(field: &str, detail: &str) -> Self {
        let message =
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self::new(field, "FieldValueRequired", message)
    }

    pub(crate) fn duplicate(field: &str, value: &str) -> Self {
        Self::new(field, "FieldValueDuplicate", format!("Duplicate value: {value}"))
    }

    /// `value` and those `supported` as they stand in JSON.
    pub(crate) fn not_supported(field: &str, value: &str, supported: &str) -> Self {
        let message = format!("Unsupported value: {value}: supported values: {supported}");
        Self::new(field, "FieldValueNotSupported", message)
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {detail}"))
    }

    pub(crate) fn too_long(field: &str, most: u64) -> Self {
        Self::new(field, "FieldValueTooLong", format!("Too long: may not be more than {most} bytes"))
    }

    pub(crate) fn too_many(field: &str, count: u64, most: u64) -> Self {
        Self::new(field, "FieldValueTooMany", format!("Too many: {count}: must have at most {most} items"))
    }
}

/// All that is wrong with an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    pub(crate) fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The errors as those of a member.
    pub(crate) fn under(mut self, name: &str) -> Self {
        for error in self.0.iter_mut().filter(|error| error.field != "<nil>") {
            error.field =
                if error.field.is_empty() { name.to_owned() } else { format!("{name}.{}", error.field) };
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing, or status 422 about the object `name` of this kind.
    pub(crate) fn check(self, group: &str, kind: &str, name: &str) -> Result<(), Status> {
        if self.is_empty() {
            return Ok(());
        }
        let mut words: Vec<String> = Vec::with_capacity(self.0.len());
        for FieldError { field, message, reason: _ } in &self.0 {
            let text = format!("{field}: {message}");
            if !words.contains(&text) {
                words.push(text);
            }
        }
        let words = match &words[..] {
            [one] => one.clone(),
            _ => format!("[{}]", words.join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes = self.0.into_iter().map(|FieldError { field, reason, message }| StatusCause {
            reason: reason.to_owned(),
            message,
            field,
        });
        let details = StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: causes.collect(),
            ..StatusDetails::default()
        };
        let message = format!("{qualified} {} is invalid: {words}", kube_wire::quoting::quoted(name));
        Err(failure(422, "Invalid", message, Some(details)))
    }
}

/// A status of failure that [`Status`] has no constructor for.
pub(crate) fn failure(code: u16, reason: &str, message: String, details: Option<StatusDetails>) -> Status {
    Status {
        status: "Failure".to_owned(),
        message,
        reason: reason.to_owned(),
        code,
        details: details.map(Box::new),
        ..Status::default()
    }
}
