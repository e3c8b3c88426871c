//! The forms of a document that clients of all kinds ask for, each in words of its own: what one of them was told serves the others.

use http::{HeaderMap, header};

/// Plain JSON.
pub const JSON: &str = "application/json";

/// Discovery of all groups in one document (KEP-3352), in the words of client-go.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The same in a fifth of the bytes, which only the hub asks for.
pub const AGGREGATED_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// All of `OpenAPI` in its version 2, in the words of client-go, which kubectl asks for where it does not take version 3.
pub const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Whether it is one of those, and not a client's own words.
pub(super) fn is_common(accept: &str) -> bool {
    [JSON, AGGREGATED, OPENAPI_V2].contains(&accept)
}

/// The common forms that a client takes, in its own order.
pub(super) fn accepted(headers: &HeaderMap) -> Vec<&'static str> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    accept.split(',').filter_map(form).collect()
}

fn form(range: &str) -> Option<&'static str> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?;
    let parameters: Vec<&str> = parts.filter(|part| !part.starts_with("q=")).collect();
    let aggregated = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"];
    match media {
        JSON if !parameters.is_empty() => {
            let same = parameters.len() == aggregated.len()
                && aggregated.iter().all(|parameter| parameters.contains(parameter));
            same.then_some(AGGREGATED)
        }
        JSON | "application/*" | "*/*" => Some(JSON),
        OPENAPI_V2 => Some(OPENAPI_V2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_accept_comes_down_to_three_forms() {
        let of = |accept: &str| accepted(&HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]));
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
            application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(of(kubectl), [AGGREGATED, JSON]);
        assert_eq!(of("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"), [AGGREGATED]);
        assert_eq!(of("application/json, */*"), [JSON, JSON]);
        assert_eq!(of("application/json;q=0.5"), [JSON]);
        assert_eq!(of("application/com.github.proto-openapi.spec.v2@v1.0+protobuf;q=0.9"), [OPENAPI_V2]);
        assert_eq!(of("application/vnd.kubernetes.protobuf"), [""; 0]);
        assert_eq!(of("application/json;as=Other;g=x;v=v2"), [""; 0]);
        assert_eq!(accepted(&HeaderMap::new()), [JSON], "who says nothing takes all");
    }
}
