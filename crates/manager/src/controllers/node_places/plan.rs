//! Pure: what is to be written down of where nodes are, and what forgotten.

use std::collections::BTreeMap;

use api::names::NODE_PLACES_PREFIX;

/// Of how many nodes that are gone it is known where they were. Machines that come and go under ever new names must not fill the record.
pub(crate) const GONE_MAX: usize = 4096;

/// Where a node is, as the labels on its Node say, or was.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Place {
    pub(crate) pool: String,
    pub(crate) gateway: String,
    /// The day, since 1970, on which its Node was first seen to be gone.
    pub(crate) gone: Option<i64>,
}

/// Places by the names of nodes.
pub(crate) type Places = BTreeMap<String, Place>;

impl Place {
    /// As it is written: `POOL,GATEWAY[,DAY]`. The chart's policy reads the first two.
    pub(crate) fn text(&self) -> String {
        let Self { pool, gateway, gone } = self;
        match gone {
            None => format!("{pool},{gateway}"),
            Some(day) => format!("{pool},{gateway},{day}"),
        }
    }

    /// What was written. What is no place is none, and is written anew.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(',').map(str::to_owned);
        let (pool, gateway) = (parts.next()?, parts.next()?);
        let gone = parts.next().map(|day| day.parse()).transpose().ok()?;
        parts.next().is_none().then_some(Self { pool, gateway, gone })
    }
}

/// In which of the sixteen parts of the record a node is: FNV-1a, of which the last four bits count.
pub(crate) fn part(node: &str) -> u32 {
    let hash =
        node.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash & 0xf
}

/// The name of a part's `ConfigMap`.
pub(crate) fn name(part: u32) -> String {
    format!("{NODE_PLACES_PREFIX}{part:x}")
}

/// What a `ConfigMap` of that name says: of nodes of its own part alone, and of none if it is no part.
pub(crate) fn of_part(config_map: &str, data: BTreeMap<String, String>) -> Places {
    let places = data.into_iter().filter(|(node, _)| name(part(node)) == config_map);
    places.filter_map(|(node, text)| Some((node, Place::read(&text)?))).collect()
}

/// All of a part, with what changes.
pub(crate) fn whole(part_: u32, changes: &BTreeMap<String, Option<Place>>, known: &Places) -> Places {
    let mut whole: Places = known
        .iter()
        .filter(|(node, _)| part(node) == part_)
        .map(|(node, place)| (node.clone(), place.clone()))
        .collect();
    for (node, place) in changes {
        match place {
            Some(place) => drop(whole.insert(node.clone(), place.clone())),
            None => drop(whole.remove(node)),
        }
    }
    whole
}

/// What changes of `known` when the nodes are where `present` says; `None`: to be forgotten.
pub(crate) fn plan(present: &Places, known: &Places, today: i64) -> BTreeMap<String, Option<Place>> {
    let mut changes: BTreeMap<String, Option<Place>> = BTreeMap::new();
    for (node, place) in present.iter().filter(|(node, place)| known.get(*node) != Some(place)) {
        changes.insert(node.clone(), Some(place.clone()));
    }
    let mut gone: Vec<(i64, &String)> = Vec::new();
    for (node, place) in known.iter().filter(|(node, _)| !present.contains_key(*node)) {
        if place.gone.is_none() {
            changes.insert(node.clone(), Some(Place { gone: Some(today), ..place.clone() }));
        }
        gone.push((place.gone.unwrap_or(today), node));
    }
    gone.sort_unstable();
    let beyond = gone.len().saturating_sub(GONE_MAX);
    changes.extend(gone.into_iter().take(beyond).map(|(_, node)| (node.clone(), None)));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pool: &str, gateway: &str, gone: Option<i64>) -> Place {
        Place { pool: pool.to_owned(), gateway: gateway.to_owned(), gone }
    }

    fn follow(known: &mut Places, present: &[(&str, Place)], today: i64) -> usize {
        let present = present.iter().map(|(node, place)| ((*node).to_owned(), place.clone())).collect();
        let changes = plan(&present, known, today);
        let count = changes.len();
        for (node, place) in changes {
            match place {
                Some(place) => drop(known.insert(node, place)),
                None => drop(known.remove(&node)),
            }
        }
        assert_eq!(plan(&present, known, today), BTreeMap::new(), "what is written stays as it is");
        count
    }

    #[test]
    fn where_a_node_was_is_known_when_it_is_gone() {
        let mut known = Places::new();
        assert_eq!(follow(&mut known, &[("a", place("shop", "", None)), ("c", place("", "", None))], 7), 2);
        assert_eq!(follow(&mut known, &[("c", place("", "", None))], 8), 1);
        assert_eq!(known["a"], place("shop", "", Some(8)));
        // Days go by, and nothing is written.
        assert_eq!(follow(&mut known, &[("c", place("", "", None))], 9), 0);
        // It is back where it was; an administrator puts another elsewhere.
        let present = [("a", place("shop", "", None)), ("c", place("van", "g", None))];
        assert_eq!(follow(&mut known, &present, 10), 2);
        assert_eq!(known, present.map(|(node, place)| (node.to_owned(), place)).into());
    }

    #[test]
    fn those_that_went_first_are_forgotten_first() {
        let mut known: Places = (0..GONE_MAX)
            .map(|n| (format!("n{n}"), place("p", "", Some(if n == 5 { 1 } else { 2 }))))
            .collect();
        known.insert("here".to_owned(), place("p", "", None));
        assert_eq!(follow(&mut known, &[("other", place("p", "", None))], 3), 3);
        assert!(!known.contains_key("n5") && known["here"].gone == Some(3) && known.len() == GONE_MAX + 1);
    }

    #[test]
    fn a_part_is_of_its_own_nodes_and_made_anew_as_a_whole() {
        let data =
            |nodes: &[&str]| nodes.iter().map(|node| ((*node).to_owned(), "shop,".to_owned())).collect();
        let names: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        // Whoever writes into another one, or one of another name, says nothing.
        let own: Vec<&str> = all.iter().copied().filter(|node| part(node) == 3).collect();
        assert!(own.len() > 1 && own.len() < all.len());
        let read = of_part("isthmus-node-places-3", data(&all));
        assert_eq!(read.keys().collect::<Vec<_>>(), own.iter().collect::<Vec<_>>());
        assert_eq!(of_part("isthmus-gateway-n1", data(&all)), Places::new());
        // One that somebody deleted has all its nodes again, not only those that change.
        let known = all.iter().map(|node| ((*node).to_owned(), place("shop", "", None))).collect();
        let changes = [(own[0].to_owned(), Some(place("van", "", None))), (own[1].to_owned(), None)].into();
        let whole = whole(3, &changes, &known);
        assert_eq!((whole.len(), &whole[own[0]].pool[..]), (own.len() - 1, "van"));
        assert!(!whole.contains_key(own[1]) && whole.keys().all(|node| part(node) == 3));
    }

    #[test]
    fn what_is_written_is_read() {
        for one in [place("", "", None), place("shop", "g", None), place("shop", "", Some(20_000))] {
            assert_eq!(Place::read(&one.text()), Some(one));
        }
        for none in ["", "shop", "a,b,c", "a,b,1,2"] {
            assert_eq!(Place::read(none), None, "{none}");
        }
        let parts: std::collections::BTreeSet<u32> = (0..1000).map(|n| part(&format!("node-{n}"))).collect();
        assert_eq!(parts, (0..16).collect());
        assert_eq!((part("a-1"), part("a-1")), (part("a-1"), part("a-1")));
    }
}
