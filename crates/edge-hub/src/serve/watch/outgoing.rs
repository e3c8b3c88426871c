//! The bytes that a watch sends at once.

use axum::body::Bytes;

/// What goes out at once. A single event, as most are, is lent as it was written for all watchers.
#[derive(Default)]
pub(super) struct Outgoing {
    first: Bytes,
    all: Vec<u8>,
}

impl Outgoing {
    pub(super) fn push(&mut self, text: Bytes) {
        if self.len() == 0 {
            self.first = text;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(self.first.len() + text.len());
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&text);
    }

    pub(super) fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    /// What was pushed; `None` if nothing was.
    pub(super) fn take(self) -> Option<Bytes> {
        let Self { first, all } = self;
        let bytes = if all.is_empty() { first } else { all.into() };
        (!bytes.is_empty()).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_event_is_lent_and_several_go_out_together() {
        let texts = ["one", "two", "three"].map(|text| Bytes::from_static(text.as_bytes()));
        let pushed = |count: usize| {
            let mut out = Outgoing::default();
            texts.iter().take(count).for_each(|text| out.push(text.clone()));
            (out.len(), out.take())
        };
        assert_eq!(pushed(0), (0, None));
        let (length, single) = pushed(1);
        assert_eq!((length, single.as_ref()), (3, Some(&texts[0])));
        assert_eq!(single.map(|single| single.as_ptr()), Some(texts[0].as_ptr()), "not copied");
        assert_eq!(pushed(3), (11, Some(Bytes::from_static(b"onetwothree"))));
    }
}
