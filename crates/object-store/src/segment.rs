//! The name and the header of a file of a log.
//!
//! A log is a row of files numbered from 0 without a gap. A file holds one number, or, when several were rewritten into
//! one, a range. Only the last may be without its seal and only the last may be cut short.

use std::path::{Path, PathBuf};

use ring::digest;

use crate::{
    frame::{self, Frame, Kind, Parsed},
    record::SubscriptionId,
    seal::KeyId,
};

const MAGIC: &[u8; 8] = b"isthmus1";
const COMPLETE: u8 = 1;
const SEALED: u8 = 2;
const DROPPED: u8 = 4;
const REWRITTEN: u8 = 8;

/// The name of a file: whose log, the how-manieth list, which numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// Says whose it is when the header cannot be read.
    pub(crate) subscription: String,
    pub(crate) generation: u64,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Name {
    /// What stands for a subscription in the names of its files.
    pub(crate) fn of(subscription: &SubscriptionId) -> String {
        hex(subscription.0.as_bytes())
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".log")?.split('-');
        let parsed = Name {
            subscription: parts.next()?.to_owned(),
            generation: u64::from_str_radix(parts.next()?, 16).ok()?,
            first: u32::from_str_radix(parts.next()?, 16).ok()?,
            last: u32::from_str_radix(parts.next()?, 16).ok()?,
        };
        // Only what is written here is read again.
        (parts.next().is_none() && parsed.first <= parsed.last && parsed.to_string() == name)
            .then_some(parsed)
    }

    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Name { subscription, generation, first, last } = self;
        write!(f, "{subscription}-{generation:x}-{first:x}-{last:x}.log")
    }
}

/// Sixteen bytes of the SHA-256 of a name, in hexadecimal.
pub(crate) fn hex(name: &[u8]) -> String {
    use std::fmt::Write;
    let digest = digest::digest(&digest::SHA256, name);
    digest.as_ref().iter().take(16).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// How far back the events of a log are all there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    /// Events up to this sequence may be missing, or lack what was before them.
    pub(crate) sequence: u64,
    /// The version of the log at that sequence.
    pub(crate) version: u64,
}

/// The first frame of a file: all that must be known when what was before it has been rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) subscription: SubscriptionId,
    pub(crate) generation: u64,
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// The list is whole in the files before this or in records left out of this.
    pub(crate) complete: bool,
    /// Not a log, but the word that all logs before are dropped.
    pub(crate) dropped: bool,
    /// Records were left out of it, so it is nothing without its seal.
    pub(crate) rewritten: bool,
    /// With which key the bodies are sealed.
    pub(crate) sealed: Option<KeyId>,
    pub(crate) version: u64,
    pub(crate) floor: Floor,
}

impl Header {
    /// Writes the header; returns its length and the seed of the frames behind it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> (usize, u32) {
        let Header {
            subscription,
            generation,
            first,
            last,
            complete,
            dropped,
            rewritten,
            sealed,
            version,
            floor,
        } = self;
        let flags =
            [(*complete, COMPLETE), (sealed.is_some(), SEALED), (*dropped, DROPPED), (*rewritten, REWRITTEN)];
        let mut body = MAGIC.to_vec();
        body.push(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum());
        body.extend_from_slice(&generation.to_le_bytes());
        body.extend_from_slice(&first.to_le_bytes());
        body.extend_from_slice(&last.to_le_bytes());
        body.extend_from_slice(&floor.version.to_le_bytes());
        body.extend_from_slice(&sealed.unwrap_or_default());
        body.extend_from_slice(subscription.0.as_bytes());
        let frame =
            Frame { kind: Kind::Header, sequence: floor.sequence, version: *version, key: &[], body: &body };
        let start = out.len();
        let length = frame.encode(0, out);
        (length, frame::seed(&out[start..]))
    }

    /// Reads the header at the beginning of a file; its length and the seed of the frames behind it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, usize, u32), Unread> {
        let (frame, length) = match Frame::parse(0, bytes) {
            Parsed::Frame(frame, length) => (frame, length),
            Parsed::End | Parsed::Torn => return Err(Unread::Torn),
            Parsed::Garbled => return Err(Unread::Garbled),
        };
        let header = Self::fields(&frame).ok_or(Unread::Garbled)?;
        Ok((header, length, frame::seed(&bytes[..length])))
    }

    fn fields(frame: &Frame<'_>) -> Option<Self> {
        let rest = frame.body.strip_prefix(MAGIC)?;
        let (flags, rest) = rest.split_first()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        let (floor, rest) = rest.split_first_chunk()?;
        let (key, id) = rest.split_first_chunk::<8>()?;
        (frame.kind == Kind::Header).then_some(Header {
            subscription: std::str::from_utf8(id).ok()?.into(),
            generation: u64::from_le_bytes(*generation),
            first: u32::from_le_bytes(*first),
            last: u32::from_le_bytes(*last),
            complete: flags & COMPLETE != 0,
            dropped: flags & DROPPED != 0,
            rewritten: flags & REWRITTEN != 0,
            sealed: (flags & SEALED != 0).then_some(*key),
            version: frame.version,
            floor: Floor { sequence: frame.sequence, version: u64::from_le_bytes(*floor) },
        })
    }

    /// Whether the file of that name may begin with this.
    pub(crate) fn belongs_to(&self, name: &Name) -> bool {
        self.generation == name.generation
            && (self.first, self.last) == (name.first, name.last)
            && Name::of(&self.subscription) == name.subscription
    }
}

/// There is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It was not written to its end.
    Torn,
    /// It is not what was written.
    Garbled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_headers_are_read_back() {
        let subscription = SubscriptionId::from("hub/services");
        let name = Name { subscription: Name::of(&subscription), generation: 17, first: 2, last: 30 };
        assert_eq!(Name::parse(&name.to_string()), Some(name.clone()));
        for other in ["", "lock", "a-b.log", "a-1-2-1.log", "a-1-1-2.new", "a-1-1-02.log", "a-1-1-2-3.log"] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        let header = Header {
            subscription,
            generation: 17,
            first: 2,
            last: 30,
            complete: true,
            dropped: false,
            rewritten: true,
            sealed: Some([3; 8]),
            version: 99,
            floor: Floor { sequence: 4, version: 88 },
        };
        let mut bytes = Vec::new();
        let (length, seed) = header.encode(&mut bytes);
        assert_eq!(Header::parse(&bytes), Ok((header.clone(), length, seed)));
        assert!(header.belongs_to(&name));
        assert!(!header.belongs_to(&Name { first: 1, ..name }));
        assert_eq!(Header::parse(&bytes[..length - 1]), Err(Unread::Torn));
    }
}
