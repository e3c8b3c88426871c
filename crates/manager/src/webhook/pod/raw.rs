//! Reading a pod as raw JSON: where a value stands and that it has the type the API gives it.
//!
//! A pod never goes through a Rust struct: a struct would drop the fields of Kubernetes versions newer than itself. It
//! must not decide anything about pods.

use std::fmt;

use json_patch::jsonptr::PointerBuf;
use serde_json::{Map, Value};

use crate::raw_json::{self, is_nothing};
use thiserror::Error;

/// A value of another type than the API's.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{field} is {found} where the API has {expected}")]
pub struct Malformed {
    /// Where, as Kubernetes writes field paths.
    pub field: String,
    /// What the API has there.
    pub expected: &'static str,
    /// What was found.
    pub found: &'static str,
}

/// Where a value stands: a field path for users, a JSON pointer for patches.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Path(Vec<Segment>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Segment {
    /// A field of the API.
    Field(&'static str),
    /// A key that users chose, such as a label's.
    Key(String),
    /// A place in a list.
    Index(usize),
    /// The end of a list, for appending.
    End,
}

impl Path {
    fn with(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    pub(super) fn field(&self, name: &'static str) -> Self {
        self.with(Segment::Field(name))
    }

    pub(super) fn key(&self, key: &str) -> Self {
        self.with(Segment::Key(key.to_owned()))
    }

    pub(super) fn end(&self) -> Self {
        self.with(Segment::End)
    }

    fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    pub(super) fn pointer(&self) -> PointerBuf {
        PointerBuf::from_tokens(self.0.iter().map(|segment| match segment {
            Segment::Field(name) => (*name).to_owned(),
            Segment::Key(key) => key.clone(),
            Segment::Index(index) => index.to_string(),
            Segment::End => "-".to_owned(),
        }))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the pod");
        }
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if place == 0 => f.write_str(name)?,
                Segment::Field(name) => write!(f, ".{name}")?,
                Segment::Key(key) => write!(f, "[{key}]")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::End => f.write_str("[-]")?,
            }
        }
        Ok(())
    }
}

/// An object of the pod and where it stands. Null and absent members are the same, as they are to the API server.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    members: &'a Map<String, Value>,
    path: Path,
}

impl<'a> Object<'a> {
    pub(super) fn root(pod: &'a Value) -> Result<Self, Malformed> {
        Self::new(pod, Path::default())
    }

    fn new(value: &'a Value, path: Path) -> Result<Self, Malformed> {
        match value {
            Value::Object(members) => Ok(Self { members, path }),
            other => Err(malformed(&path, "an object", other)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn members(&self) -> &'a Map<String, Value> {
        self.members
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.values().all(is_nothing)
    }

    pub(super) fn object(&self, name: &'static str) -> Result<Option<Self>, Malformed> {
        self.value(name).map(|value| Self::new(value, self.path.field(name))).transpose()
    }

    /// The object `name`, which the API requires.
    pub(super) fn required(&self, name: &'static str) -> Result<Self, Malformed> {
        self.object(name)?.ok_or_else(|| malformed(&self.path.field(name), "an object", &Value::Null))
    }

    /// The objects of list `name`; none when there is no such list.
    pub(super) fn objects(&self, name: &'static str) -> Result<Vec<Self>, Malformed> {
        let path = self.path.field(name);
        self.list(name)?.iter().enumerate().map(|(at, item)| Self::new(item, path.index(at))).collect()
    }

    /// The strings of list `name`; none when there is no such list.
    pub(super) fn strings(&self, name: &'static str) -> Result<Vec<&'a str>, Malformed> {
        let path = self.path.field(name);
        self.list(name)?
            .iter()
            .enumerate()
            .map(|(at, item)| item.as_str().ok_or_else(|| malformed(&path.index(at), "a string", item)))
            .collect()
    }

    pub(super) fn has(&self, name: &'static str) -> bool {
        self.value(name).is_some()
    }

    pub(super) fn string(&self, name: &'static str) -> Result<Option<&'a str>, Malformed> {
        self.scalar(name, "a string", Value::as_str)
    }

    pub(super) fn boolean(&self, name: &'static str) -> Result<Option<bool>, Malformed> {
        self.scalar(name, "a boolean", Value::as_bool)
    }

    pub(super) fn integer(&self, name: &'static str) -> Result<Option<i64>, Malformed> {
        self.scalar(name, "an integer", Value::as_i64)
    }

    /// The string under `key` of a map whose keys users choose.
    pub(super) fn entry(&self, key: &str) -> Result<Option<&'a str>, Malformed> {
        match self.members.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(malformed(&self.path.key(key), "a string", other)),
        }
    }

    fn scalar<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Malformed> {
        let Some(value) = self.value(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| malformed(&self.path.field(name), expected, value))
    }

    fn list(&self, name: &'static str) -> Result<&'a [Value], Malformed> {
        match self.value(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(malformed(&self.path.field(name), "a list", other)),
        }
    }

    fn value(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }
}

fn malformed(path: &Path, expected: &'static str, found: &Value) -> Malformed {
    let found = raw_json::kind(found);
    Malformed { field: path.to_string(), expected, found }
}
