//! How a record stands in a file: length, checksum, content. Reading bytes of any kind never fails otherwise than by
//! saying that there is no frame.

/// Length and checksum.
const PREFIX: usize = 8;
/// Kind, sequence, version and the key's length.
const FIXED: usize = 1 + 8 + 8 + 2;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first of each file; see [`crate::segment::Header`].
    Header = 1,
    /// An object of the list.
    Listed = 2,
    Added = 3,
    Modified = 4,
    Deleted = 5,
    /// A deletion that is no longer history: only its key matters.
    Gone = 6,
    Complete = 7,
    Bookmark = 8,
    /// The last of a file that will not grow; its version is the number of frames before it.
    Seal = 9,
    Blob = 10,
    SealedBlob = 11,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Kind::Header,
            2 => Kind::Listed,
            3 => Kind::Added,
            4 => Kind::Modified,
            5 => Kind::Deleted,
            6 => Kind::Gone,
            7 => Kind::Complete,
            8 => Kind::Bookmark,
            9 => Kind::Seal,
            10 => Kind::Blob,
            11 => Kind::SealedBlob,
            _ => return None,
        })
    }

    /// Whether it says something about an object.
    pub(crate) fn is_of_object(self) -> bool {
        matches!(self, Kind::Listed | Kind::Added | Kind::Modified | Kind::Deleted | Kind::Gone)
    }

    /// Whether it is an event that watchers may see.
    pub(crate) fn is_event(self) -> bool {
        matches!(self, Kind::Added | Kind::Modified | Kind::Deleted)
    }
}

/// A record as it stands in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: Kind,
    /// Ascends in a log and stays with a record when its file is rewritten.
    pub(crate) sequence: u64,
    pub(crate) version: u64,
    pub(crate) key: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// What stands at a place in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// A frame and its length.
    Frame(Frame<'a>, usize),
    /// Nothing.
    End,
    /// The beginning of a frame, or the zeros of a block that was not written.
    Torn,
    /// Something else.
    Garbled,
}

impl<'a> Frame<'a> {
    /// Whether key and body fit a frame.
    pub(crate) fn fits(key: usize, body: usize) -> bool {
        u16::try_from(key).is_ok() && body <= 1 << 30
    }

    /// Writes the frame behind `out` and returns its length. `seed` ties it to its file: see [`checksum`].
    pub(crate) fn encode(&self, seed: u32, out: &mut Vec<u8>) -> usize {
        let length = FIXED + self.key.len() + self.body.len();
        let start = out.len();
        out.reserve(PREFIX + length);
        out.extend_from_slice(&u32::try_from(length).expect("checked by fits()").to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.push(self.kind as u8);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&u16::try_from(self.key.len()).expect("checked by fits()").to_le_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.body);
        let sum = checksum(seed, &out[start..start + 4], &out[start + PREFIX..]);
        out[start + 4..start + PREFIX].copy_from_slice(&sum.to_le_bytes());
        PREFIX + length
    }

    /// Reads the frame at the beginning of `bytes`.
    pub(crate) fn parse(seed: u32, bytes: &'a [u8]) -> Parsed<'a> {
        if bytes.is_empty() {
            return Parsed::End;
        }
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Parsed::Torn };
        let [l0, l1, l2, l3, c0, c1, c2, c3] = *prefix;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length < FIXED {
            return if Self::is_unwritten(prefix) { Parsed::Torn } else { Parsed::Garbled };
        }
        let Some(content) = rest.get(..length) else { return Parsed::Torn };
        if checksum(seed, &prefix[..4], content) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Parsed::Garbled;
        }
        match Self::content(content) {
            Some(frame) => Parsed::Frame(frame, PREFIX + length),
            None => Parsed::Garbled,
        }
    }

    /// Whether the block at the beginning of `bytes` was not written, though a later one may have been.
    pub(crate) fn is_unwritten(bytes: &[u8]) -> bool {
        bytes.starts_with(&[0; PREFIX])
    }

    /// Whether anywhere in `bytes` stands that a list is whole.
    pub(crate) fn completes(seed: u32, bytes: &[u8]) -> bool {
        Self::stands(seed, bytes, |kind, _| kind == Kind::Complete)
    }

    /// Whether anywhere in `bytes` stands a record that was written after the one of that sequence: a file that merely ends early has none.
    pub(crate) fn follows(seed: u32, bytes: &[u8], sequence: u64) -> bool {
        let most = bytes.len() as u64;
        Self::stands(seed, bytes, |_, later| (1..=most).contains(&later.saturating_sub(sequence)))
    }

    /// Whether anywhere in `bytes` a frame stands that is meant by its kind and its sequence: those are looked at before a checksum is reckoned.
    fn stands(seed: u32, bytes: &[u8], is_meant: impl Fn(Kind, u64) -> bool) -> bool {
        (0..bytes.len().saturating_sub(PREFIX + FIXED - 1)).any(|at| {
            let rest = bytes.get(at..).unwrap_or_default();
            let kind = rest.get(PREFIX).and_then(|kind| Kind::from_byte(*kind));
            let sequence = rest.get(PREFIX + 1..).and_then(|rest| rest.first_chunk()).copied();
            kind.zip(sequence).is_some_and(|(kind, sequence)| is_meant(kind, u64::from_le_bytes(sequence)))
                && matches!(Frame::parse(seed, rest), Parsed::Frame(..))
        })
    }

    fn content(content: &'a [u8]) -> Option<Self> {
        let (kind, rest) = content.split_first()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (key_length, rest) = rest.split_first_chunk()?;
        let (key, body) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_length)))?;
        Some(Frame {
            kind: Kind::from_byte(*kind)?,
            sequence: u64::from_le_bytes(*sequence),
            version: u64::from_le_bytes(*version),
            key,
            body,
        })
    }
}

/// The checksum of a frame. The seed is the checksum of the file's header, so that a frame that the file system brings
/// up from another file does not pass.
fn checksum(seed: u32, length: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(length);
    hasher.update(content);
    hasher.finalize()
}

/// The seed of the frames that follow an encoded header.
pub(crate) fn seed(header: &[u8]) -> u32 {
    crc32fast::hash(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame<'_> =
        Frame { kind: Kind::Modified, sequence: 3, version: 9, key: b"ns/a", body: b"{\"a\":1}" };

    #[test]
    fn a_frame_is_read_back_and_no_other() {
        let mut bytes = Vec::new();
        let length = FRAME.encode(5, &mut bytes);
        assert_eq!(length, bytes.len());
        assert_eq!(Frame::parse(5, &bytes), Parsed::Frame(FRAME, length));
        assert_eq!(Frame::parse(6, &bytes), Parsed::Garbled, "of another file");
        assert_eq!(Frame::parse(5, &[]), Parsed::End);
        assert_eq!(Frame::parse(5, &[0; 100]), Parsed::Torn);
        for cut in 1..bytes.len() {
            assert_eq!(Frame::parse(5, &bytes[..cut]), Parsed::Torn, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(!matches!(Frame::parse(5, &flipped), Parsed::Frame(..)), "byte {at} bit {bit}");
            }
        }
    }
}
