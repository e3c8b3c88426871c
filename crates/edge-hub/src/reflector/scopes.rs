//! Whether the objects of a resource have namespaces, as the API server showed it last by what it serves where. Of what is not built in a definition may
//! go and come again with another scope.

use std::time::Duration;

use kube_wire::{resource::GroupVersionResource, transcode};

use super::Reflector;
use crate::{found_out::FoundOut, subscriptions::Key};

/// After that it may make room for another.
const KEPT: Duration = Duration::from_hours(1);

/// What the API server showed, by resource; the last word counts.
#[derive(Default)]
pub struct Scopes(FoundOut<bool>);

impl Scopes {
    /// Whether it has namespaces, if that was seen.
    pub fn said(&self, resource: &GroupVersionResource) -> Option<bool> {
        self.0.last(resource)
    }

    /// The API server showed whether it has; of what is built in that is known.
    pub fn say(&self, resource: &GroupVersionResource, is_namespaced: bool) {
        if transcode::is_namespaced(resource).is_none() {
            self.0.believe(resource, is_namespaced, KEPT);
        }
    }

    /// The API server has something at the path of a stream, or said that it has not. A namespace that does not exist it lists as empty.
    pub(super) fn hear(&self, key: &Key, is_served: bool) {
        if !key.namespace.is_empty() {
            self.say(&key.resource, is_served);
        }
    }
}

impl Reflector {
    /// Whether resources have namespaces, as far as that was seen.
    pub fn scopes(&self) -> &Scopes {
        &self.scopes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_a_path_in_a_namespace_counts() {
        for (group, heard, expected) in [
            ("example.com", vec![], None),
            ("example.com", vec![("", true)], None),
            ("example.com", vec![("", false)], None),
            ("example.com", vec![("a", true)], Some(true)),
            ("example.com", vec![("a", true), ("a", false)], Some(false)),
            ("example.com", vec![("a", false), ("", true)], Some(false)),
            ("example.com", vec![("a", false), ("b", true)], Some(true)),
            // It is known of what is built in.
            ("", vec![("a", false)], None),
        ] {
            let scopes = Scopes::default();
            let all = Key::pooled(&GroupVersionResource::new(group, "v1", "services"));
            for (namespace, is_served) in &heard {
                scopes.hear(&Key { namespace: (*namespace).into(), ..all.clone() }, *is_served);
            }
            assert_eq!(scopes.said(&all.resource), expected, "{group} {heard:?}");
        }
    }
}
