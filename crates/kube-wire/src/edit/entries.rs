//! Fields that map texts to texts, such as the data of a ConfigMap.

use serde_json::Value;

use super::{Field, Message, Verdict};

const KEY: Field = Field::new("key", 1);
const VALUE: Field = Field::new("value", 2);

impl Message {
    /// The text under `key` of a field that maps texts to texts.
    pub fn entry(&self, field: Field, key: &str) -> Option<String> {
        match self {
            Self::Json(members) => members.get(field.name)?.get(key)?.as_str().map(str::to_owned),
            Self::Protobuf(_) => {
                let found = self
                    .messages(field)
                    .into_iter()
                    .rev()
                    .find(|entry| entry.text(KEY).as_deref() == Some(key))?;
                Some(found.text(VALUE).unwrap_or_default().into_owned())
            }
        }
    }

    /// The keys of a field that maps texts to texts.
    pub fn keys(&self, field: Field) -> Vec<String> {
        match self {
            Self::Json(members) => {
                let map = members.get(field.name).and_then(Value::as_object);
                map.into_iter().flat_map(|map| map.keys().cloned()).collect()
            }
            Self::Protobuf(_) => self
                .messages(field)
                .iter()
                .map(|entry| entry.text(KEY).unwrap_or_default().into_owned())
                .collect(),
        }
    }

    /// Changes the text under `key` of a field that maps texts to texts.
    pub fn edit_entry(&mut self, field: Field, key: &str, edit: impl FnOnce(&str) -> Option<String>) -> bool {
        match self {
            Self::Json(members) => {
                let Some(value) = members.get_mut(field.name).and_then(|map| map.get_mut(key)) else {
                    return false;
                };
                let Some(new) = value.as_str().and_then(edit) else { return false };
                *value = new.into();
                true
            }
            Self::Protobuf(_) => {
                let mut edit = Some(edit);
                self.edit_each(field, |entry| {
                    if entry.text(KEY).as_deref() != Some(key) {
                        return Verdict::Keep;
                    }
                    let new = entry.text(VALUE).and_then(|value| edit.take()?(&value));
                    Verdict::changed(new.is_some_and(|new| entry.set_text(VALUE, &new)))
                })
            }
        }
    }
}
