//! Events as they are written to watchers: framed, and transcoded where that is needed, once for all who are told in the same form.
//! Each of their connections has the same bytes.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use kube_wire::{
    frame::{EventType, Form},
    object::Object,
};

/// How many are kept: as many as watchers lag behind each other.
const COUNT: usize = 64;

/// How long they are together, but for the last of them.
const LENGTH: usize = 512 << 10;

/// The last events of a subscription.
#[derive(Default)]
pub(super) struct WrittenEvents {
    events: VecDeque<Written>,
    length: usize,
}

struct Written {
    object: Arc<Object>,
    event: EventType,
    form: Form,
    text: Bytes,
}

impl WrittenEvents {
    /// What was written of it, if it is kept.
    pub(super) fn find(&self, object: &Arc<Object>, event: EventType, form: Form) -> Option<Bytes> {
        let same = |written: &&Written| {
            Arc::ptr_eq(&written.object, object) && written.event == event && written.form == form
        };
        self.events.iter().rev().find(same).map(|written| written.text.clone())
    }

    /// Keeps it in the place of the oldest.
    pub(super) fn keep(&mut self, object: &Arc<Object>, event: EventType, form: Form, text: &Bytes) {
        self.length += text.len();
        self.events.push_back(Written { object: object.clone(), event, form, text: text.clone() });
        while self.events.len() > COUNT || self.length > LENGTH && self.events.len() > 1 {
            let oldest = self.events.pop_front();
            self.length -= oldest.map_or(0, |oldest| oldest.text.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use kube_wire::{frame::Projection, object::Encoding};

    use super::*;

    const WHOLE: Form = Form { encoding: Encoding::Json, projection: Projection::Whole };
    const METADATA: Form = Form { projection: Projection::Metadata("meta.k8s.io/v1"), ..WHOLE };

    fn object(version: u32) -> Arc<Object> {
        let text = format!(r#"{{"metadata":{{"name":"x","resourceVersion":"{version}"}}}}"#);
        Arc::new(Object::from_json(text.into()).unwrap())
    }

    #[test]
    fn each_form_of_an_event_is_kept_until_many_came_after_it() {
        let (mut kept, first) = (WrittenEvents::default(), object(1));
        let text = Bytes::from_static(b"whole");
        kept.keep(&first, EventType::Added, WHOLE, &text);
        assert_eq!(kept.find(&first, EventType::Added, WHOLE), Some(text.clone()));
        assert_eq!(kept.find(&first, EventType::Modified, WHOLE), None, "another event");
        assert_eq!(kept.find(&first, EventType::Added, METADATA), None, "another form");
        assert_eq!(kept.find(&object(1), EventType::Added, WHOLE), None, "another object");
        for version in 2..=64 {
            kept.keep(&object(version), EventType::Added, WHOLE, &text);
        }
        assert!(kept.find(&first, EventType::Added, WHOLE).is_some());
        kept.keep(&object(65), EventType::Added, WHOLE, &text);
        assert_eq!(kept.find(&first, EventType::Added, WHOLE), None);
    }

    #[test]
    fn great_events_do_not_pile_up() {
        let mut kept = WrittenEvents::default();
        let great = Bytes::from(vec![b'x'; LENGTH / 2 + 1]);
        let objects = [1, 2, 3].map(object);
        for object in &objects {
            kept.keep(object, EventType::Added, WHOLE, &great);
        }
        let found = objects.each_ref().map(|object| kept.find(object, EventType::Added, WHOLE).is_some());
        assert_eq!(found, [false, false, true]);
        assert_eq!(kept.length, great.len());
    }
}
