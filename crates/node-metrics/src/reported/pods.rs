//! The pods of a node in one piece of memory, in the order of their UIDs. There are half a million pods: each by itself would be an allocation of its own, to be
//! looked up, counted and freed somewhere else in memory at each report and each look. What did not change is copied in runs.

use bytes::Bytes;
use node_report::report::MAX_PODS;
use node_report::{Message, PodUsage};

/// Cloning copies none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pods {
    /// Each behind four bytes that say how long it is.
    bytes: Bytes,
    count: usize,
}

/// One of them: a byte that says how long its UID is, the UID, and the rest of it encoded.
#[derive(Clone, Copy)]
pub(super) struct Pod<'a> {
    /// Where it stands, with its length before it.
    start: usize,
    whole: &'a [u8],
}

/// How many bytes say how long a pod is.
const LENGTH: usize = size_of::<u32>();

impl<'a> Pod<'a> {
    fn parts(self) -> (&'a [u8], &'a [u8]) {
        let (length, rest) = self.whole.split_first().unwrap_or((&0, &[]));
        rest.split_at_checked(usize::from(*length)).unwrap_or_default()
    }

    pub(super) fn uid(self) -> &'a [u8] {
        self.parts().0
    }

    /// All but the UID.
    pub(super) fn encoded(self) -> &'a [u8] {
        self.parts().1
    }

    fn end(self) -> usize {
        self.start + LENGTH + self.whole.len()
    }
}

impl Pods {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Pod<'_>> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let (length, rest) = self.bytes.get(start..)?.split_first_chunk()?;
            let whole = rest.get(..u32::from_ne_bytes(*length) as usize)?;
            let pod = Pod { start, whole };
            start = pod.end();
            Some(pod)
        })
    }

    /// Each as it is sent to a standby; no byte is copied.
    pub(super) fn pieces(&self) -> Vec<Bytes> {
        self.iter().map(|pod| self.bytes.slice(pod.start + LENGTH..pod.end())).collect()
    }

    /// Of what was sent; `None` if it is not in the order of UIDs.
    pub(super) fn of_pieces(pieces: &[Bytes]) -> Option<Self> {
        let mut out = Vec::with_capacity(pieces.iter().map(|piece| LENGTH + piece.len()).sum());
        let mut before = None;
        for piece in pieces {
            let uid = Pod { start: 0, whole: piece }.uid();
            if before.replace(uid).is_some_and(|before| before >= uid) {
                return None;
            }
            out.extend_from_slice(&u32::try_from(piece.len()).ok()?.to_ne_bytes());
            out.extend_from_slice(piece);
        }
        Some(Self { bytes: out.into(), count: pieces.len() })
    }

    /// With these in place of those of the same UIDs, and without the removed; `None` if there were more than may be.
    pub(super) fn after(&self, mut changed: Vec<PodUsage>, removed: &[String]) -> Option<Self> {
        if changed.is_empty() && removed.is_empty() {
            return Some(self.clone());
        }
        let length: usize = changed.iter().map(|pod| LENGTH + 1 + pod.encoded_len()).sum();
        let mut changed: Vec<&mut PodUsage> = changed.iter_mut().collect();
        changed.sort_unstable_by(|one, other| one.uid.cmp(&other.uid));
        let mut changed = changed.into_iter().peekable();
        let mut removed: Vec<&[u8]> = removed.iter().map(String::as_bytes).collect();
        removed.sort_unstable();
        let mut removed = removed.into_iter().peekable();

        let (mut out, mut count) = (Vec::with_capacity(self.bytes.len() + length), 0);
        // From here on what is known has not been copied yet.
        let mut kept = 0;
        for known in self.iter() {
            let uid = known.uid();
            while let Some(new) = changed.next_if(|pod| pod.uid.as_bytes() < uid) {
                out.extend_from_slice(self.bytes.get(kept..known.start).unwrap_or_default());
                kept = known.start;
                put(new, &mut out);
                count += 1;
            }
            while removed.next_if(|gone| *gone < uid).is_some() {}
            let now = changed.next_if(|pod| pod.uid.as_bytes() == uid);
            let is_gone = removed.next_if(|gone| *gone == uid).is_some();
            if now.is_some() || is_gone {
                out.extend_from_slice(self.bytes.get(kept..known.start).unwrap_or_default());
                kept = known.end();
            }
            count += usize::from(now.is_some() || !is_gone);
            if let Some(now) = now {
                put(now, &mut out);
            }
        }
        out.extend_from_slice(self.bytes.get(kept..).unwrap_or_default());
        for new in changed {
            put(new, &mut out);
            count += 1;
        }
        out.shrink_to_fit();
        (count <= MAX_PODS).then(|| Self { bytes: out.into(), count })
    }
}

fn put(pod: &mut PodUsage, out: &mut Vec<u8>) {
    let uid = std::mem::take(&mut pod.uid);
    // What is longer has been refused ([`node_report::report::MAX_TEXT`]).
    let length = u8::try_from(uid.len()).unwrap_or(u8::MAX);
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    out.push(length);
    out.extend_from_slice(uid.as_bytes().get(..usize::from(length)).unwrap_or_default());
    // Memory is made room for.
    let _ = pod.encode(out);
    let length = u32::try_from(out.len() - start - LENGTH).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..start + LENGTH) {
        place.copy_from_slice(&length.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(of: &[(&str, &str)]) -> Vec<PodUsage> {
        let pod = |(uid, name): &(&str, &str)| PodUsage {
            uid: (*uid).to_owned(),
            name: (*name).to_owned(),
            ..PodUsage::default()
        };
        of.iter().map(pod).collect()
    }

    fn told(pods: &Pods) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let name = |pod: Pod<'_>| PodUsage::decode(pod.encoded()).unwrap().name;
        pods.iter().map(|pod| (text(pod.uid()), name(pod))).collect()
    }

    #[test]
    fn what_is_new_changed_and_gone_stands_in_order() {
        let first = Pods::default().after(pods(&[("d", "1"), ("b", "1"), ("f", "1")]), &[]).unwrap();
        let gone = ["f", "c", "x"].map(str::to_owned);
        let next = first.after(pods(&[("g", "2"), ("a", "2"), ("d", "22"), ("c", "2")]), &gone).unwrap();
        let expected = [("a", "2"), ("b", "1"), ("c", "2"), ("d", "22"), ("g", "2")];
        assert_eq!(told(&next), expected.map(|(uid, name)| (uid.to_owned(), name.to_owned())));
        assert_eq!((first.count(), next.count(), told(&next).len()), (3, 5, 5));
        assert_eq!(Pods::of_pieces(&next.pieces()), Some(next));
    }

    #[test]
    fn where_nothing_changed_nothing_is_copied() {
        let first = Pods::default().after(pods(&[("a", "1"), ("b", "1")]), &[]).unwrap();
        let next = first.after(Vec::new(), &[]).unwrap();
        assert_eq!(next.bytes.as_ptr(), first.bytes.as_ptr());
        assert!(first.bytes.as_ptr_range().contains(&first.pieces().last().unwrap().as_ptr()));
    }
}
