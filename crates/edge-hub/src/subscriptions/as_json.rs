//! Whether what a subscription holds as protobuf can be told as JSON. An API server that is newer than the hub may send fields that the
//! hub has no names for; an object is then told by the API server itself or not at all, never with a part missing.
//!
//! To look at all objects takes its time, and is done while nobody waits for what is known: [`AsJson::known`] before the objects are
//! taken, [`Known::look`] at them, and [`AsJson::learn`] what came of it. Two who ask at once may both look.

use std::sync::Arc;

use kube_wire::{
    object::{Encoding, Object},
    resource::GroupVersionResource,
    resource_version::ResourceVersion,
    transcode::{self, TranscodeError},
};
use watch_cache::Snapshot;

/// What is known about that.
#[derive(Debug, Default)]
pub(super) struct AsJson {
    known: Known,
    /// The last event that could not be told: nobody's watch may begin before it.
    event: Option<ResourceVersion>,
}

/// What is known about the objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Another one for objects of another time, whose versions say nothing about these.
    time: Arc<()>,
    /// Every object up to this version can be told.
    checked: Option<ResourceVersion>,
    /// One that cannot, and why.
    fails: Option<(Arc<Object>, TranscodeError)>,
}

impl Known {
    /// Whether all of a snapshot can be told. Each object is looked at once.
    pub(super) fn look(mut self, resource: &GroupVersionResource, snapshot: &Snapshot) -> Self {
        let is_held =
            |object: &Arc<Object>| snapshot.get(object.key()).is_some_and(|held| Arc::ptr_eq(held, object));
        if self.fails.as_ref().is_some_and(|(object, _)| is_held(object)) {
            return self;
        }
        self.fails = None;
        if self.checked == Some(snapshot.resource_version()) {
            return self;
        }
        let new = |object: &&Arc<Object>| {
            object.encoding() == Encoding::Protobuf && Some(object.resource_version()) > self.checked
        };
        let told = |object: &Arc<Object>| {
            let error = transcode::to_json(resource, object.body(), true).err()?;
            Some((object.clone(), error))
        };
        self.fails = snapshot.iter().filter(new).find_map(told);
        if self.fails.is_none() {
            self.checked = Some(snapshot.resource_version());
        }
        self
    }

    /// What came of a look.
    pub(super) fn told(&self) -> Result<(), TranscodeError> {
        self.fails.as_ref().map_or(Ok(()), |(_, error)| Err(error.clone()))
    }
}

impl AsJson {
    /// What is known, to look at objects with that are held from now on.
    pub(super) fn known(&self) -> Known {
        self.known.clone()
    }

    /// Somebody has looked meanwhile, and perhaps somebody else, at what was held before or after.
    pub(super) fn learn(&mut self, found: Known) {
        if Arc::ptr_eq(&found.time, &self.known.time) {
            self.known.checked = self.known.checked.max(found.checked);
            self.known.fails = found.fails;
        }
    }

    /// The event of this version could not be told.
    pub(super) fn untold(&mut self, version: ResourceVersion) {
        self.event = self.event.max(Some(version));
    }

    /// Whether all events after this version, as far as they are known, can be told.
    pub(super) fn from(&self, version: ResourceVersion) -> bool {
        self.event.is_none_or(|event| event <= version)
    }
}

#[cfg(test)]
mod tests {
    use watch_cache::{Cache, Change, Limits};

    use super::*;

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number).unwrap()
    }

    /// A Service as protobuf, with a field that nobody has a name for if it is from a newer server.
    fn service(name: &str, at: u64, is_newer: bool) -> Arc<Object> {
        let field = |number: u8, content: &[u8]| {
            [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
        };
        let metadata =
            [field(1, name.as_bytes()), field(3, b"a"), field(6, at.to_string().as_bytes())].concat();
        let newer = if is_newer { field(15, b"x") } else { Vec::new() };
        Arc::new(Object::from_protobuf([field(1, &metadata), newer].concat().into()).unwrap())
    }

    fn services() -> GroupVersionResource {
        GroupVersionResource::new("", "v1", "services")
    }

    fn held(objects: &[Arc<Object>], at: u64) -> Cache {
        let mut cache = Cache::new(Limits::default());
        cache.replace(objects.to_vec(), version(at)).unwrap();
        cache
    }

    /// Looks as a request does.
    fn look(as_json: &mut AsJson, cache: &Cache) -> bool {
        let found = as_json.known().look(&services(), &cache.snapshot().unwrap());
        as_json.learn(found.clone());
        found.told().is_ok()
    }

    #[test]
    fn one_that_cannot_be_told_is_known_as_long_as_it_is_held() {
        let (mut as_json, mut cache) = (AsJson::default(), held(&[service("x", 1, false)], 1));
        assert!(look(&mut as_json, &cache));
        cache.apply(Change::Added, service("y", 2, true)).unwrap();
        assert!(!look(&mut as_json, &cache) && !look(&mut as_json, &cache));
        assert_eq!(as_json.known.checked, Some(version(1)));
        cache.apply(Change::Modified, service("y", 3, false)).unwrap();
        assert!(look(&mut as_json, &cache));
        assert_eq!(as_json.known.checked, Some(version(3)), "none of these is looked at again");
    }

    #[test]
    fn who_looked_at_an_earlier_state_takes_nothing_back() {
        let (mut as_json, mut cache) = (AsJson::default(), held(&[service("x", 1, true)], 1));
        let (slow, before) = (as_json.known(), cache.snapshot().unwrap());
        cache.apply(Change::Modified, service("x", 2, false)).unwrap();
        assert!(look(&mut as_json, &cache));
        let slow = slow.look(&services(), &before);
        assert!(slow.told().is_err());
        as_json.learn(slow);
        assert_eq!(as_json.known.checked, Some(version(2)));
        assert!(look(&mut as_json, &cache), "that one is not held any more");
    }

    #[test]
    fn what_was_found_of_another_time_is_not_learnt() {
        let (mut as_json, cache) = (AsJson::default(), held(&[service("x", 9, false)], 9));
        let found = as_json.known().look(&services(), &cache.snapshot().unwrap());
        // All was listed anew, after a restore: versions are lower.
        as_json = AsJson::default();
        as_json.learn(found);
        assert!(!look(&mut as_json, &held(&[service("x", 5, true)], 5)));
    }
}
