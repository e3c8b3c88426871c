//! The objects that were made last, for readers that come to them at about the same time. Who is far behind has them made anew.

use std::collections::VecDeque;
use std::sync::Arc;

use kube_wire::object::Object;
use parking_lot::Mutex;

/// So many bytes of objects are held.
const MOST: usize = 16 << 20;

/// The last objects, up to a number of bytes.
#[derive(Debug, Default)]
pub struct Recent(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    objects: VecDeque<Arc<Object>>,
    bytes: usize,
}

impl Recent {
    /// Holds one more, and lets go of the oldest.
    pub fn hold(&self, object: &Arc<Object>) {
        let mut held = self.0.lock();
        held.bytes += object.size();
        held.objects.push_back(Arc::clone(object));
        while held.bytes > MOST {
            let Some(oldest) = held.objects.pop_front() else { break };
            held.bytes -= oldest.size();
        }
    }

    /// Lets go of all.
    pub fn clear(&self) {
        *self.0.lock() = Held::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_much_is_held_and_no_more() {
        let recent = Recent::default();
        let body = format!(
            r#"{{"metadata":{{"name":"n","resourceVersion":"1"}},"status":"{}"}}"#,
            "x".repeat(MOST / 4)
        );
        let objects: Vec<_> =
            (0..6).map(|_| Arc::new(Object::from_json(body.clone().into()).unwrap())).collect();
        for object in &objects {
            recent.hold(object);
        }
        let held: Vec<_> = objects.iter().map(|object| Arc::strong_count(object) > 1).collect();
        assert_eq!(held, [false, false, false, true, true, true]);
        recent.clear();
        assert!(objects.iter().all(|object| Arc::strong_count(object) == 1));
    }
}
