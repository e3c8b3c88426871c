//! Requests as clients make them: drawn from what is valid, and from what a client says that was away for long, so that most are answered with
//! objects, where [`Case::sample`] walks a product that is mostly errors.

use super::{Case, Verb};
use crate::random::SplitMix64;

/// What a list may say of its version: `resourceVersion`, `resourceVersionMatch`, `continue`. Not `00`, whose pages etcd's storage gives tokens without a slash.
const LISTS: [[&str; 3]; 15] = [
    ["", "", ""],
    ["0", "", ""],
    ["0", "NotOlderThan", ""],
    ["$old", "", ""],
    ["$old", "NotOlderThan", ""],
    ["$old", "Exact", ""],
    ["$current", "", ""],
    ["$current", "NotOlderThan", ""],
    ["$current", "Exact", ""],
    ["$expired", "", ""],
    ["$expired", "NotOlderThan", ""],
    ["$expired", "Exact", ""],
    ["", "", "$valid"],
    ["", "", "$expired"],
    ["", "", "$inconsistent"],
];

/// What a watch may say of its beginning: `resourceVersion`, `resourceVersionMatch`, `sendInitialEvents`. `00` is zero, and not the text that stands
/// for it.
const WATCHES: [[&str; 3]; 17] = [
    ["", "", ""],
    ["0", "", ""],
    ["00", "", ""],
    ["00", "NotOlderThan", "true"],
    ["$old", "", ""],
    ["$current", "", ""],
    ["$expired", "", ""],
    ["", "NotOlderThan", "true"],
    ["0", "NotOlderThan", "true"],
    ["$old", "NotOlderThan", "true"],
    ["$current", "NotOlderThan", "true"],
    ["$expired", "NotOlderThan", "true"],
    ["", "NotOlderThan", "false"],
    ["0", "NotOlderThan", "false"],
    ["$old", "NotOlderThan", "false"],
    ["$current", "NotOlderThan", "false"],
    ["$expired", "NotOlderThan", "false"],
];

const LIMITS: [&str; 6] = ["", "", "1", "2", "3", "500"];

const LABELS: [&str; 8] =
    ["", "", "", "parity=even", "parity=none", "parity in (even,none)", "parity notin (even)", "!parity"];

/// Fields that every kind has, and one that custom resources have.
const FIELDS: [&str; 5] = ["", "", "", "metadata.name=o-1", "$others"];
const CUSTOM_FIELDS: [&str; 6] = ["", "", "", "metadata.name=o-1", "$others", "spec.n=1"];

const SCOPES: [&str; 2] = ["namespaced", "cluster"];

/// `timeoutSeconds` of lists, which is of no consequence, and of watches, which end then.
const LIST_TIMEOUTS: [&str; 3] = ["", "5", "0"];
const WATCH_TIMEOUTS: [&str; 2] = ["1", "2"];

/// Within how long a get or a list is to be answered, which clients of today say of each; a number alone is refused. Of a watch nobody reads it.
const DEADLINES: [&str; 16] =
    ["", "", "", "", "", "", "", "", "", "32s", "32s", "32s", "32s", "1m0.5s", "0", "5"];

/// Those of [`super::populate`], most of them there; one was deleted, and one never was.
const NAMES: [&str; 8] = ["o-0", "o-1", "o-2", "o-0", "o-1", "o-2", "o-3", "none"];

const GET_VERSIONS: [&str; 7] = ["", "", "0", "$old", "$current", "$expired", "junk"];

/// Encodings and shapes, by how often clients want them; of a custom resource there is only metadata in protobuf. With a comma: what the client
/// takes as well.
const TYPED: [&str; 12] = [
    "json",
    "json",
    "json",
    "protobuf",
    "protobuf",
    "protobuf",
    "protobuf",
    "metadata",
    "metadata",
    "protobuf metadata",
    "any metadata",
    "table",
];
const CUSTOM: [&str; 12] = [
    "json",
    "json",
    "json",
    "json",
    "json",
    "protobuf, json",
    "metadata",
    "metadata",
    "protobuf metadata",
    "protobuf metadata, json",
    "any metadata",
    "table",
];

/// What few clients ask for: metadata in the version that came first.
const UNUSUAL: [&str; 2] = ["metadata v1beta1", "protobuf metadata v1beta1"];

impl Case {
    /// The same in forms that few clients ask for; the test kit's own server answers in the other version.
    pub fn unusual(verb: Verb, count: usize, seed: u64, typed: bool) -> Vec<Self> {
        let mut cases = Self::plausible(verb, count, !seed, typed);
        for (case, form) in cases.iter_mut().zip(UNUSUAL.iter().cycle()) {
            for (_, value) in case.values.iter_mut().filter(|(name, _)| *name == "$accept") {
                *value = form;
            }
        }
        cases
    }

    /// `count` requests of a verb; the same for the same seed. `typed`: whether there is protobuf of whole objects.
    pub fn plausible(verb: Verb, count: usize, seed: u64, typed: bool) -> Vec<Self> {
        let mut dice = SplitMix64(seed ^ (verb as u64) << 32);
        (0..count).map(|_| Self { verb, values: values(verb, typed, &mut dice) }).collect()
    }
}

fn values(verb: Verb, typed: bool, dice: &mut SplitMix64) -> Vec<(&'static str, &'static str)> {
    let accept = ("$accept", if typed { dice.pick(&TYPED) } else { dice.pick(&CUSTOM) });
    let scope = ("$scope", dice.pick(&SCOPES));
    if verb == Verb::Get {
        let version = dice.pick(&GET_VERSIONS);
        let name = ("$name", dice.pick(&NAMES));
        return vec![("resourceVersion", version), ("timeout", dice.pick(&DEADLINES)), name, scope, accept];
    }
    let labels = dice.pick(&LABELS);
    let fields = if typed { dice.pick(&FIELDS) } else { dice.pick(&CUSTOM_FIELDS) };
    let deadline = ("timeout", dice.pick(&DEADLINES));
    let chosen = [("labelSelector", labels), ("fieldSelector", fields), deadline, scope, accept];
    let mut values = if verb == Verb::List {
        let [version, matching, next] = dice.pick(&LISTS);
        vec![
            ("resourceVersion", version),
            ("resourceVersionMatch", matching),
            ("continue", next),
            ("limit", dice.pick(&LIMITS)),
            ("timeoutSeconds", dice.pick(&LIST_TIMEOUTS)),
        ]
    } else {
        let [version, matching, initial] = dice.pick(&WATCHES);
        vec![
            ("resourceVersion", version),
            ("resourceVersionMatch", matching),
            ("sendInitialEvents", initial),
            ("allowWatchBookmarks", dice.pick(&["", "true"])),
            ("timeoutSeconds", dice.pick(&WATCH_TIMEOUTS)),
        ]
    };
    values.extend(chosen);
    values
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_value_is_drawn_and_a_seed_gives_the_same_again() {
        for verb in [Verb::List, Verb::Watch, Verb::Get] {
            let drawn = Case::plausible(verb, 400, 7, true);
            assert_eq!(drawn, Case::plausible(verb, 400, 7, true));
            assert_ne!(drawn, Case::plausible(verb, 400, 8, true));
            let values: HashSet<_> = drawn.iter().flat_map(|case| case.values.clone()).collect();
            for value in
                TYPED.map(|form| ("$accept", form)).into_iter().chain([("timeout", "32s"), ("timeout", "5")])
            {
                assert!(values.contains(&value), "{verb:?} {value:?}");
            }
            let expected: &[_] = match verb {
                Verb::List => &[
                    ("continue", "$valid"),
                    ("continue", "$inconsistent"),
                    ("resourceVersionMatch", "Exact"),
                    ("limit", "1"),
                ],
                Verb::Watch => &[
                    ("sendInitialEvents", "true"),
                    ("timeoutSeconds", "2"),
                    ("resourceVersion", "00"),
                    ("resourceVersion", "$expired"),
                ],
                Verb::Get => &[("$name", "o-1"), ("$name", "none"), ("resourceVersion", "0")],
            };
            assert!(expected.iter().all(|value| values.contains(value)), "{verb:?}");
        }
        let custom = Case::plausible(Verb::List, 400, 7, false);
        assert!(CUSTOM.iter().all(|form| custom.iter().any(|case| case.value("$accept") == *form)));
        assert!(custom.iter().all(|case| !case.is_protobuf()));
    }
}
