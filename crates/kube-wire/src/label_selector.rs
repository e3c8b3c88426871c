//! Label selectors: parsed by apimachinery's grammar with its words for what is wrong, matched against objects in place.

use std::fmt;

use thiserror::Error;

use crate::{
    object::Object,
    selector_requirements::{SelectorOperator, SelectorRequirement},
};

mod lexer;
mod parser;
mod syntax;

/// A conjunction of requirements on labels; in canonical form, so that equal selectors are equal values.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelSelector {
    /// Sorted, without repetition.
    requirements: Box<[Requirement]>,
}

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Requirement {
    key: Box<str>,
    operator: Operator,
    /// Sorted, without repetition.
    values: Box<[Box<str>]>,
}

/// What a requirement asks of its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operator {
    /// `=` and `==`.
    Equals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// The text is not a label selector; in the API server's words, which it answers with status 400.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidLabelSelector(pub String);

impl LabelSelector {
    /// Parses a selector such as `a=b,c in (d,e),!f`. The empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, InvalidLabelSelector> {
        let mut requirements = parser::parse(text).map_err(InvalidLabelSelector)?;
        requirements.sort();
        requirements.dedup();
        Ok(Self { requirements: requirements.into() })
    }

    /// Whether the object's labels meet every requirement.
    pub fn matches(&self, object: &Object) -> bool {
        if self.requirements.is_empty() {
            return true;
        }
        let labels = object.labels();
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(labels.get(&requirement.key).as_deref()))
    }

    /// Whether nothing is required.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// What it requires, but for comparisons, which reviews have no word for.
    pub(crate) fn requirements(&self) -> Vec<SelectorRequirement> {
        self.requirements.iter().filter_map(Requirement::told).collect()
    }
}

impl Requirement {
    /// As access reviews have it.
    fn told(&self) -> Option<SelectorRequirement> {
        let operator = match self.operator {
            Operator::Equals | Operator::In => SelectorOperator::In,
            Operator::NotEquals | Operator::NotIn => SelectorOperator::NotIn,
            Operator::Exists => SelectorOperator::Exists,
            Operator::DoesNotExist => SelectorOperator::DoesNotExist,
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        Some(SelectorRequirement { key: self.key.clone(), operator, values: self.values.to_vec() })
    }

    /// Whether a label of this value, or its absence, meets the requirement.
    fn matches(&self, label: Option<&str>) -> bool {
        let among = |label: &str| self.values.iter().any(|value| **value == *label);
        match (self.operator, label) {
            (Operator::Equals | Operator::In, Some(label)) => among(label),
            (Operator::NotEquals | Operator::NotIn, Some(label)) => !among(label),
            (Operator::Exists, Some(_))
            | (Operator::NotEquals | Operator::NotIn | Operator::DoesNotExist, None) => true,
            (Operator::DoesNotExist, Some(_))
            | (
                Operator::Equals
                | Operator::In
                | Operator::Exists
                | Operator::GreaterThan
                | Operator::LessThan,
                None,
            ) => false,
            (Operator::GreaterThan, Some(label)) => self.compares(label, |label, bound| label > bound),
            (Operator::LessThan, Some(label)) => self.compares(label, |label, bound| label < bound),
        }
    }

    /// A label that is no integer compares with none.
    fn compares(&self, label: &str, holds: impl Fn(i64, i64) -> bool) -> bool {
        let bound = self.values.first().and_then(|value| value.parse().ok());
        label.parse().ok().zip(bound).is_some_and(|(label, bound)| holds(label, bound))
    }
}

/// The canonical text, which parses to the same selector: as apimachinery writes it, but `==` as `=`.
impl fmt::Display for LabelSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            requirement.fmt(formatter)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let values = values.join(",");
        match operator {
            Operator::Equals => write!(formatter, "{key}={values}"),
            Operator::NotEquals => write!(formatter, "{key}!={values}"),
            Operator::In => write!(formatter, "{key} in ({values})"),
            Operator::NotIn => write!(formatter, "{key} notin ({values})"),
            Operator::Exists => write!(formatter, "{key}"),
            Operator::DoesNotExist => write!(formatter, "!{key}"),
            Operator::GreaterThan => write!(formatter, "{key}>{values}"),
            Operator::LessThan => write!(formatter, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests;
