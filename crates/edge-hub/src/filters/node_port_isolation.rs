//! `nodeportisolation`: a Service with node ports names the pools whose nodes open them. The first mention of a pool counts;
//! `-pool` excludes it, `*` means all that are not named. A node without a pool opens all, as without the annotation.

use std::collections::BTreeSet;

use api::annotations::NODE_PORT_LISTEN;
use kube_wire::object::Object;

use super::{View, catalog::service_type};

pub(super) fn keeps(service: &Object, view: &View) -> bool {
    let (Some(listen), Some(pool)) = (service.annotation(NODE_PORT_LISTEN), &view.pool) else { return true };
    listens(&listen, pool) || !matches!(service_type(service).as_str(), "NodePort" | "LoadBalancer")
}

fn listens(listen: &str, pool: &str) -> bool {
    let mut mentioned = BTreeSet::new();
    let mut all = false;
    for entry in listen.split(',').map(str::trim) {
        let name = entry.strip_prefix('-').unwrap_or(entry);
        if name.is_empty() || !mentioned.insert(name) {
            continue;
        }
        if name == pool {
            return entry == name;
        }
        all |= entry == "*";
    }
    all
}

#[cfg(test)]
mod tests {
    use super::listens;

    #[test]
    fn pools_are_named_excluded_or_all() {
        for (listen, expected) in [
            ("a", true),
            ("b", false),
            ("", false),
            ("*", true),
            ("-a,*", false),
            ("*,-a", false),
            ("-*", false),
            (" a , -a", true),
            ("-a,a", false),
            ("-b,*", true),
            ("-,a", true),
        ] {
            assert_eq!(listens(listen, "a"), expected, "{listen:?}");
        }
    }
}
