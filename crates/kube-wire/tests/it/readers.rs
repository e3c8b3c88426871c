//! The readers: cut anywhere, cut off, too long, and fed with anything.

use kube_wire::{
    frame::read::{ListEnd, ListReader, ReadError, WatchEvent, WatchReader},
    object::{Encoding, Object},
};
use proptest::prelude::*;

use crate::golden::{encoding, golden, read_list, read_watch};

const LISTS: [&str; 6] = [
    "services-list-json",
    "services-list-protobuf",
    "services-page-protobuf",
    "pods-list-protobuf",
    "widgets-page-json",
    "widgets-partial-list-protobuf",
];
const WATCHES: [&str; 5] = [
    "services-watch-json",
    "services-watch-protobuf",
    "widgets-watch-json",
    "pods-partial-watch-protobuf",
    "error-watch-too-old-protobuf",
];
const LIMIT: usize = 1 << 16;

/// The bytes in pieces of these lengths, over and over.
fn pieces<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at((*length).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fn list(encoding: Encoding, limit: usize, pieces: &[&[u8]]) -> Result<(Vec<Object>, ListEnd), ReadError> {
    let mut reader = ListReader::new(encoding, limit);
    let mut items = Vec::new();
    for piece in pieces {
        reader.push(piece, &mut items)?;
    }
    Ok((items, reader.finish()?))
}

fn watch(encoding: Encoding, limit: usize, pieces: &[&[u8]]) -> Result<Vec<WatchEvent>, ReadError> {
    let mut reader = WatchReader::new(encoding, limit);
    let mut events = Vec::new();
    for piece in pieces {
        reader.push(piece, &mut events)?;
    }
    reader.finish()?;
    Ok(events)
}

#[test]
fn a_stream_that_is_cut_off_is_told_from_one_that_ends() {
    for name in LISTS {
        let body = golden(name).body;
        // A line's end, or what the envelope says after its message.
        let needed = body.len() - if encoding(name) == Encoding::Json { 1 } else { 4 };
        for end in 0..needed {
            let cut = list(encoding(name), LIMIT, &[&body[..end]]);
            assert_eq!(cut, Err(ReadError::CutOff), "{name} cut at {end}");
        }
    }
    for name in WATCHES {
        let body = golden(name).body;
        let whole = read_watch(name);
        for end in 0..body.len() {
            match watch(encoding(name), LIMIT, &[&body[..end]]) {
                Ok(events) => assert_eq!(events, whole[..events.len()], "{name} cut at {end}"),
                Err(error) => assert_eq!(error, ReadError::CutOff, "{name} cut at {end}"),
            }
        }
    }
}

#[test]
fn what_is_too_long_is_refused_early() {
    for name in LISTS {
        let body = golden(name).body;
        assert_eq!(list(encoding(name), 100, &[&body]), Err(ReadError::TooLong(100)), "{name}");
    }
    for name in WATCHES {
        let body = golden(name).body;
        assert_eq!(watch(encoding(name), 20, &pieces(&body, &[7])), Err(ReadError::TooLong(20)), "{name}");
    }
    // Four bytes are enough to know.
    assert_eq!(watch(Encoding::Protobuf, LIMIT, &[&[0xff; 4]]), Err(ReadError::TooLong(LIMIT)));
}

#[test]
fn events_before_an_error_are_not_lost() {
    let body = [&golden("services-watch-json").body[..], b"{\"type\":\"X\",\"object\":{}}\n"].concat();
    let mut events = Vec::new();
    let error = WatchReader::new(Encoding::Json, LIMIT).push(&body, &mut events).unwrap_err();
    assert_eq!(error, ReadError::Malformed("unknown event \"X\"".to_owned()));
    assert_eq!(events, read_watch("services-watch-json"));
}

#[test]
fn items_of_built_in_kinds_are_told_what_they_are() {
    let (services, _) = read_list("services-list-json");
    for service in &services {
        let value: serde_json::Value = serde_json::from_slice(service.body()).unwrap();
        assert_eq!((&value["kind"], &value["apiVersion"]), (&"Service".into(), &"v1".into()));
    }
}

#[test]
fn what_is_no_list_is_refused() {
    for body in [
        "",
        "[]",
        "{}",
        "{\"kind\":\"Service\",\"metadata\":{\"resourceVersion\":\"1\"}}",
        "{\"kind\":\"ServiceList\",\"items\":[]}",
        "{\"kind\":\"ServiceList\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":{}}",
        "{\"kind\":\"ServiceList\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[1]}",
        "{\"kind\":\"ServiceList\",\"metadata\":{\"resourceVersion\":\"1\"}}{}",
    ] {
        assert!(list(Encoding::Json, LIMIT, &[body.as_bytes()]).is_err(), "{body}");
    }
    let null = "{\"kind\":\"ServiceList\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":null}";
    assert_eq!(list(Encoding::Json, LIMIT, &[null.as_bytes()]).unwrap().0, []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn where_a_stream_is_cut_makes_no_difference(lengths in prop::collection::vec(1..200_usize, 1..8)) {
        for name in LISTS {
            let body = golden(name).body;
            let read = list(encoding(name), LIMIT, &pieces(&body, &lengths));
            prop_assert_eq!(read.unwrap(), read_list(name), "{}", name);
        }
        for name in WATCHES {
            let body = golden(name).body;
            let read = watch(encoding(name), LIMIT, &pieces(&body, &lengths));
            prop_assert_eq!(read.unwrap(), read_watch(name), "{}", name);
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(
        bytes: Vec<u8>, text in "[{}\\[\\]\":,a items\n]{0,60}", at: usize, with: u8, lengths in prop::collection::vec(1..90_usize, 1..4)
    ) {
        for name in LISTS.into_iter().chain(WATCHES) {
            let mut changed = golden(name).body.to_vec();
            let length = changed.len();
            changed[at % length] = with;
            for stream in [&changed[..], &bytes, text.as_bytes()] {
                let pieces = pieces(stream, &lengths);
                let _ = list(encoding(name), LIMIT, &pieces);
                let _ = watch(encoding(name), LIMIT, &pieces);
            }
        }
    }
}
