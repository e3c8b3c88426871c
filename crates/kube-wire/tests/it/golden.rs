//! The golden vectors: a line with status and content type, then the body.

use std::{fs, path::Path};

use bytes::Bytes;
use kube_wire::{
    frame::read::{ITEM_MAX, ListEnd, ListReader, WatchEvent, WatchReader},
    object::{Encoding, Object},
};

/// One answer of a real API server.
pub(crate) struct Golden {
    pub(crate) code: u16,
    pub(crate) body: Bytes,
}

pub(crate) fn golden(name: &str) -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.golden"));
    let bytes = fs::read(&path).unwrap();
    let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let code = std::str::from_utf8(&bytes[..3]).unwrap().parse().unwrap();
    Golden { code, body: Bytes::from(bytes).slice(line + 1..) }
}

pub(crate) fn encoding(name: &str) -> Encoding {
    if name.ends_with("protobuf") { Encoding::Protobuf } else { Encoding::Json }
}

pub(crate) fn read_list(name: &str) -> (Vec<Object>, ListEnd) {
    let mut reader = ListReader::new(encoding(name), ITEM_MAX);
    let mut items = Vec::new();
    reader.push(&golden(name).body, &mut items).unwrap();
    (items, reader.finish().unwrap())
}

pub(crate) fn read_watch(name: &str) -> Vec<WatchEvent> {
    let mut reader = WatchReader::new(encoding(name), ITEM_MAX);
    let mut events = Vec::new();
    reader.push(&golden(name).body, &mut events).unwrap();
    reader.finish().unwrap();
    events
}
