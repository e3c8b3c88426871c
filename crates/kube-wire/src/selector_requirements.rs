//! What the selectors of a request require, in the form of access reviews: who may not read all of a resource may be allowed what a selector
//! chooses (KEP-4601). The rules are those of the API server's own `RequestInfo` and of its extensions' library.

use crate::{
    field_selector::{FieldSelector, Term},
    label_selector::LabelSelector,
    query::first,
    request::{RequestInfo, Verb},
};

/// What the selectors of a request require. Requirements only narrow, so what cannot be told is left out: the review is of more then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectorRequirements {
    /// Of fields, by the labels that stand in the selector.
    pub fields: Vec<SelectorRequirement>,
    /// Of labels.
    pub labels: Vec<SelectorRequirement>,
}

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorRequirement {
    /// Of which field or label.
    pub key: Box<str>,
    /// What is asked of it.
    pub operator: SelectorOperator,
    /// None of existence.
    pub values: Vec<Box<str>>,
}

/// What a requirement asks of its field or label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectorOperator {
    /// To be one of the values.
    In,
    /// To be none of the values.
    NotIn,
    /// To be there.
    Exists,
    /// Not to be there.
    DoesNotExist,
}

impl SelectorOperator {
    /// As access reviews write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }
}

impl SelectorRequirements {
    /// What the selectors in the query of a list, a watch or a deletion of many require.
    pub fn of(request: &RequestInfo, query: &str) -> Self {
        let is_of_many = matches!(request.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        // Some watches of that form are of one object, whose selectors nobody looks at.
        if !is_of_many || request.resource().is_none_or(|path| path.verb_in_path) {
            return Self::default();
        }
        // One that cannot be read requires nothing here; the request is answered 400 after the review.
        let terms = first(query, "fieldSelector").and_then(|text| FieldSelector::terms(&text).ok());
        let labels = first(query, "labelSelector").and_then(|text| LabelSelector::parse(&text).ok());
        Self {
            fields: terms.unwrap_or_default().into_iter().map(SelectorRequirement::of_field).collect(),
            labels: labels.unwrap_or_default().requirements(),
        }
    }
}

impl SelectorRequirement {
    fn of_field(term: Term) -> Self {
        let Term { label, equals, value } = term;
        let operator = if equals { SelectorOperator::In } else { SelectorOperator::NotIn };
        Self { key: label, operator, values: vec![value] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: &str = "/api/v1/pods";

    fn told(requirements: &[SelectorRequirement]) -> String {
        let one = |SelectorRequirement { key, operator, values }: &SelectorRequirement| {
            format!("{key} {} {}", operator.as_str(), values.join("|")).trim_end().to_owned()
        };
        requirements.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn of(method: &str, url: &str) -> [String; 2] {
        let uri: http::Uri = url.parse().unwrap();
        let request = RequestInfo::parse(&method.parse().unwrap(), &uri);
        let found = SelectorRequirements::of(&request, uri.query().unwrap_or_default());
        [told(&found.fields), told(&found.labels)]
    }

    #[test]
    fn selectors_are_told_as_the_api_server_tells_them() {
        for (query, fields, labels) in [
            ("", "", ""),
            ("fieldSelector=", "", ""),
            ("fieldSelector=a%3Db", "a In b", ""),
            ("fieldSelector=z!%3Db%2Ca%3D%3Db%5C%2Cc", "a In b,c, z NotIn b", ""),
            ("fieldSelector=a%3D", "a In", ""),
            ("fieldSelector=a", "", ""),
            ("fieldSelector=no.such.field%3D1&fieldSelector=b%3D2", "no.such.field In 1", ""),
            ("labelSelector=b%3D1%2Ca", "", "a Exists, b In 1"),
            ("labelSelector=a%20in%20(y%2Cx)%2C!b", "", "a In x|y, b DoesNotExist"),
            ("labelSelector=a!%3D1%2Cb%20notin%20(2)", "", "a NotIn 1, b NotIn 2"),
            // There is no word for these.
            ("labelSelector=a%3E1%2Cb%3C2%2Cc", "", "c Exists"),
            ("labelSelector=a%3D%3D%3Db&fieldSelector=x%3Dy", "x In y", ""),
            ("watch=1&limit=x&fieldSelector=x%3Dy", "x In y", ""),
        ] {
            for (method, path) in [("GET", PODS), ("DELETE", PODS), ("GET", "/apis/g/v1/namespaces/n/rs")] {
                assert_eq!(
                    of(method, &format!("{path}?{query}")),
                    [fields, labels],
                    "{method} {path}?{query}"
                );
            }
        }
    }

    #[test]
    fn nothing_else_is_selected_by() {
        const QUERY: &str = "fieldSelector=a%3Db&labelSelector=c";
        for (method, path) in [
            ("GET", "/api/v1/namespaces/n/pods/p"),
            ("DELETE", "/api/v1/namespaces/n/pods/p"),
            ("POST", "/api/v1/namespaces/n/pods"),
            ("GET", "/api/v1/watch/pods"),
            ("GET", "/healthz"),
        ] {
            assert_eq!(of(method, &format!("{path}?{QUERY}")), ["", ""], "{method} {path}");
        }
    }
}
