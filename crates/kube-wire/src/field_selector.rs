//! Field selectors: parsed by apimachinery's grammar, resolved against the fields of a resource, matched against objects in place.

use std::fmt;

use thiserror::Error;

use crate::{
    object::Object,
    selectable_field::{SelectableField, SelectableFields},
};

mod parser;

pub(crate) use parser::Term;
pub use parser::escaped;

/// A conjunction of requirements on fields; in canonical form, so that equal selectors are equal values.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldSelector {
    /// Sorted, without repetition.
    requirements: Box<[Requirement]>,
}

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Requirement {
    label: Box<str>,
    field: SelectableField,
    /// Whether the field must have the value, or must not.
    equals: bool,
    value: Box<str>,
}

/// The text is not a field selector of this resource; in the API server's words, which it answers with status 400.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidFieldSelector {
    /// It does not follow the grammar.
    #[error("{0}")]
    Syntax(String),
    /// It names a field that cannot be selected by.
    #[error("{0}")]
    Unsupported(String),
}

impl FieldSelector {
    /// Parses a selector such as `spec.nodeName=a,status.phase!=Failed`. The empty text selects everything.
    pub fn parse(text: &str, fields: &SelectableFields) -> Result<Self, InvalidFieldSelector> {
        let terms = parser::parse(text).map_err(InvalidFieldSelector::Syntax)?;
        Self::resolve(&terms, fields).map_err(InvalidFieldSelector::Unsupported)
    }

    /// The terms of a selector, whose fields are not looked at: the API server reports other mistakes in between.
    pub(crate) fn terms(text: &str) -> Result<Vec<Term>, String> {
        parser::parse(text)
    }

    /// Finds the fields that the terms name.
    pub(crate) fn resolve(terms: &[Term], fields: &SelectableFields) -> Result<Self, String> {
        let mut requirements = Vec::with_capacity(terms.len());
        for Term { label, equals, value } in terms {
            let (field, label) = fields.get(label).ok_or_else(|| fields.refuse(label))?;
            requirements.push(Requirement {
                label: label.into(),
                field,
                equals: *equals,
                value: value.clone(),
            });
        }
        requirements.sort();
        requirements.dedup();
        Ok(Self { requirements: requirements.into() })
    }

    /// Whether the object's fields meet every requirement.
    pub fn matches(&self, object: &Object) -> bool {
        self.requirements.iter().all(|requirement| {
            (*object.field(&requirement.field) == *requirement.value) == requirement.equals
        })
    }

    /// Whether nothing is required.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether nothing is required of any other field than the one called `label`.
    pub fn looks_only_at(&self, label: &str) -> bool {
        self.requirements.iter().all(|requirement| *requirement.label == *label)
    }

    /// The value that the field called `label` must have, if there is one: `metadata.name` makes a request about one object.
    pub fn requires_exactly(&self, label: &str) -> Option<&str> {
        let found =
            self.requirements.iter().find(|requirement| requirement.equals && *requirement.label == *label);
        found.map(|requirement| &*requirement.value)
    }
}

/// The canonical text, which parses to the same selector.
impl fmt::Display for FieldSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { label, field: _, equals, value }) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if *equals { "=" } else { "!=" };
            write!(formatter, "{comma}{label}{operator}{}", escaped(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
