//! What code under test tells the log: `tracing::subscriber::set_default` takes a [`Log`].

use std::{fmt::Debug, sync::Arc};

use parking_lot::Mutex;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Keeps the events of one target, of each its level and some of its fields.
#[derive(Debug, Clone)]
pub struct Log {
    target: &'static str,
    least: Level,
    fields: &'static [&'static str],
    told: Arc<Mutex<Vec<(Level, String)>>>,
}

impl Log {
    /// Of this target, from the level `least` up, these fields.
    pub fn of(target: &'static str, least: Level, fields: &'static [&'static str]) -> Self {
        Self { target, least, fields, told: Arc::default() }
    }

    /// What was told since the last call: the level, and each field's value with `; ` behind it.
    pub fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.told.lock())
    }

    /// The same without levels.
    pub fn take_fields(&self) -> Vec<String> {
        self.take().into_iter().map(|(_, fields)| fields).collect()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == self.target && *metadata.level() <= self.least
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut values = Values { of: self.fields, text: String::new() };
        event.record(&mut values);
        self.told.lock().push((*event.metadata().level(), values.text));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Values {
    of: &'static [&'static str],
    text: String,
}

impl Visit for Values {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.of.contains(&field.name()) {
            self.text += &format!("{value:?}; ").replace('"', "");
        }
    }
}
