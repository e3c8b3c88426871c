//! Pure: how conditions name nodes: a few by their names, of more the number.

use std::collections::BTreeSet;

/// How many endpoints a message names before it only counts.
const NAMED: usize = 10;

/// Whether so many are named.
pub(super) fn is_few(count: usize) -> bool {
    count <= NAMED
}

/// The names of some.
pub(super) fn join<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let more = names.len().saturating_sub(NAMED);
    let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// The nodes, or, of many, about how many they are: this is read by every edge node, and not to be written anew with each that comes or goes.
pub(super) fn about(nodes: &BTreeSet<&str>) -> String {
    match nodes.len() {
        0 => "no node".to_owned(),
        few if is_few(few) => join(nodes.iter().copied()),
        some if some <= 100 => format!("more than {} nodes", (some - 1) / 10 * 10),
        many => format!("more than {} nodes", (many - 1) / 100 * 100),
    }
}

/// What there is to say of each.
pub(super) fn list(items: &[String]) -> String {
    let more = items.len().saturating_sub(NAMED);
    let shown = items.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    if more == 0 { shown } else { format!("{shown}; and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_nodes_are_counted_roughly() {
        let names: Vec<String> = (0..2000).map(|n| format!("n{n}")).collect();
        let about = |count: usize| about(&names.iter().take(count).map(String::as_str).collect());
        assert_eq!(about(0), "no node");
        assert_eq!(about(2), "n0, n1");
        assert_eq!(about(11), "more than 10 nodes");
        assert_eq!(about(20), "more than 10 nodes");
        assert_eq!(about(21), "more than 20 nodes");
        assert_eq!(about(101), "more than 100 nodes");
        assert_eq!(about(1999), "more than 1900 nodes");
    }
}
