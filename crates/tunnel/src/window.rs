//! How much a peer may send before it is read here. Pure.
//!
//! What was granted in HTTP/2 cannot be taken back, be it sent or not. So what binds a peer is the windows of its connections: those of all its links come
//! to no more than [`PEER`], whatever its streams' windows are, how many it opens and what it acknowledges. Each link has a part of that ([`link_window`]).
//!
//! The window of a stream bounds throughput (window ÷ round trip), and what a reader that stands still keeps of its link's. Few streams get wide ones, many
//! get narrow ones, and what is held here already comes off everybody's. So readers that stand still never have all of a link, as long
//! as the peer keeps to what it is told.
//!
//! Streams count from the 200 on. One that waits for it has the window of its link, too, and holds nothing: whoever sends before it has the stream is
//! refused ([`crate::link`]).

use crate::protocol::MAX_STREAMS;

/// What all links of a peer may make this process hold, in bytes.
pub const PEER: u32 = 64 * 1024 * 1024;

/// What a link has however many there are. In HTTP/2 there is no connection with less than a byte less.
pub(crate) const LINK: u32 = 64 * 1024;

/// The widest window of a stream.
const WIDEST: u32 = 8 * 1024 * 1024;

/// The narrowest. Each stream that a link may have has it, whatever the others hold.
pub const NARROWEST: u32 = 2 * 1024;

/// The window of a link whose peer may have `most`, and whose others have `others` more than the least: a quarter of what is left, so that there is some for
/// the next. Four have some 15, 11, 9 and 6 MiB.
pub(crate) fn link_window(others: u32, most: usize) -> u32 {
    LINK + PEER.saturating_sub(least(most)).saturating_sub(others) / 4
}

/// What of a link's window is more than the least.
pub(crate) fn beyond_least(link: u32) -> u32 {
    link.saturating_sub(LINK)
}

fn least(links: usize) -> u32 {
    u32::try_from(links).unwrap_or(u32::MAX).saturating_mul(LINK)
}

/// What of a link's window is for the narrowest windows of its streams.
fn reserved(link: u32) -> u32 {
    (link / 4).min(MAX_STREAMS * NARROWEST)
}

/// How many streams a link of this window may have.
pub(crate) fn streams(link: u32) -> u32 {
    reserved(link) / NARROWEST
}

/// How the streams of a link stand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open<'a> {
    /// How many there are, with those that wait for room.
    pub(crate) streams: usize,
    /// What is held of each, as far as anything may be.
    pub(crate) held: &'a [usize],
    /// The window that the peer has acknowledged.
    pub(crate) window: u32,
    /// For how many that is made: no more have begun.
    pub(crate) room: usize,
}

/// The window of the first stream of a link.
pub(crate) fn first_stream_window(link: u32) -> u32 {
    stream_window(link, 1, Open { streams: 0, held: &[], window: 0, room: 0 })
}

/// The window of each stream, where `room` is made for so many: half of what nobody holds, in equal parts. The other half is for those that come while these
/// are filled.
fn stream_window(link: u32, room: usize, open: Open<'_>) -> u32 {
    let wide = u64::from(link - reserved(link));
    let held = || open.held.iter().map(|held| *held as u64);
    let free = wide.saturating_sub(held().map(beyond_narrowest).sum());
    let fair = free / (2 * room.max(1) as u64);
    let now = u64::from(open.window);
    let part = if fair > beyond_narrowest(now) {
        fair
    } else {
        // Until the peer knows the narrower one, those that have begun may send what they have: it is on its way, perhaps.
        let begun = open.streams.min(open.room);
        let quiet = begun.saturating_sub(open.held.len()) as u64 * beyond_narrowest(now);
        let promised = held().map(|held| beyond_narrowest(held.max(now))).sum::<u64>() + quiet;
        let come = room.saturating_sub(begun).max(1) as u64;
        fair.min(wide.saturating_sub(promised) / come)
    };
    u32::try_from(part).unwrap_or(WIDEST).saturating_add(NARROWEST).min(WIDEST)
}

fn beyond_narrowest(bytes: u64) -> u64 {
    bytes.saturating_sub(u64::from(NARROWEST))
}

/// What the peer is to be told, if anything: for how many streams there is room, and the window of each. More that come need room at once; a window that is
/// wider is worth telling if it is twice as wide.
pub(crate) fn change(link: u32, open: Open<'_>) -> Option<(usize, u32)> {
    // Powers of two, so that it changes seldom: each change is a SETTINGS frame.
    let room = open.streams.next_power_of_two();
    let window = stream_window(link, room, open);
    let [new, now] = [window, open.window].map(|window| beyond_narrowest(window.into()));
    (room > open.room || new > now && new >= 2 * now).then_some((room, window))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    const KIB: u32 = 1024;
    const MIB: u32 = 1024 * KIB;

    #[test]
    fn links_have_parts_of_what_their_peer_has() {
        let (mut others, mut all) = (0, Vec::new());
        for _ in 0..32 {
            let link = link_window(others, 32);
            others += beyond_least(link);
            all.push(link);
        }
        let of_four: Vec<_> = all[..4].iter().map(|link| link / (MIB / 10)).collect();
        assert_eq!(of_four, [155, 116, 87, 66]);
        assert!(all.iter().all(|link| *link >= LINK));
        assert!(all.iter().sum::<u32>() <= PEER);
        assert_eq!(
            all.iter().take(5).map(|link| streams(*link)).collect::<Vec<_>>(),
            [1024, 1024, 1024, 845, 635]
        );
        assert_eq!(link_window(u32::MAX, usize::MAX), LINK);
    }

    #[test]
    fn many_have_narrow_windows_and_so_has_whoever_comes_where_much_is_held() {
        let link = 16 * MIB;
        let window = |room, begun, held: &[usize], window| {
            stream_window(link, room, Open { streams: begun, held, window, room: begun }) / KIB
        };
        let (mib, none) = (MIB as usize, &[][..]);
        for (what, actual, expected) in [
            ("the first", window(1, 0, none, 0), 7170),
            ("two", window(2, 1, none, 8 * MIB), 3586),
            ("a hundred", window(128, 100, none, 0), 58),
            ("all", window(1024, 1024, none, 0), 9),
            ("one that is full, and another", window(2, 1, &[7 * mib], 7 * MIB), 1794),
            ("all is held", window(2, 1, &[14 * mib], 7 * MIB), 2),
            ("many at once, while the first may fill its own", window(1024, 1, none, 8 * MIB), 8),
            ("they are gone", window(1, 0, none, 4 * KIB), 7170),
        ] {
            assert_eq!(actual, expected, "{what}");
        }
        assert_eq!(first_stream_window(PEER), WIDEST);
        assert!(first_stream_window(LINK) > NARROWEST);
    }

    #[test]
    fn a_window_is_told_when_more_come_and_when_it_may_be_much_wider() {
        let link = 16 * MIB;
        let open = |streams, room, window| Open { streams, held: &[], window, room };
        let wide = first_stream_window(link);
        assert_eq!(change(link, open(1, 1, wide)), None);
        let (room, narrow) = change(link, open(3, 1, wide)).unwrap();
        assert!(room == 4 && narrow < wide / 3, "{narrow}");
        assert_eq!(change(link, open(4, 4, narrow)), None);
        assert!(change(link, open(5, 4, narrow)).unwrap().1 < narrow);
        assert!(change(link, open(2, 4, narrow)).unwrap().1 > narrow);
        assert_eq!(change(link, open(0, 4, narrow)), Some((1, wide)));
        let full = Open { held: &[12 * MIB as usize], ..open(1, 1, wide / 4) };
        assert_eq!(change(link, full), None);
    }

    /// What goes to the peer, in order.
    enum Down {
        Window(u32),
        Opened(u32),
    }

    /// What comes from it.
    enum Up {
        Data(u32, usize),
        Acknowledged,
    }

    #[derive(Default)]
    struct Stream {
        known: bool,
        sent: usize,
        arrived: usize,
        read: usize,
    }

    /// A link, its line, and a peer that keeps to what it is told.
    struct Line {
        link: u32,
        room: usize,
        window: u32,
        acknowledged: bool,
        theirs: u32,
        next: u32,
        streams: BTreeMap<u32, Stream>,
        down: VecDeque<Down>,
        up: VecDeque<Up>,
    }

    impl Line {
        fn look(&mut self, coming: usize) {
            if !self.acknowledged {
                return;
            }
            let held: Vec<_> = self.streams.values().map(|stream| stream.arrived - stream.read).collect();
            let (streams, window, room) = (self.streams.len() + coming, self.window, self.room);
            if let Some((room, window)) = change(self.link, Open { streams, held: &held, window, room }) {
                (self.room, self.window, self.acknowledged) = (room, window, false);
                self.down.push_back(Down::Window(window));
            }
        }

        fn open(&mut self, coming: usize) {
            let left = streams(self.link) as usize - self.streams.len();
            let coming = coming.min(left);
            if self.streams.len() + coming > self.room {
                self.look(coming);
            }
            for _ in 0..coming {
                if self.streams.len() < self.room {
                    self.streams.insert(self.next, Stream::default());
                    self.down.push_back(Down::Opened(self.next));
                    self.next += 1;
                }
            }
        }

        fn any(&mut self, number: usize) -> Option<(u32, &mut Stream)> {
            let place = number.checked_rem(self.streams.len())?;
            self.streams.iter_mut().nth(place).map(|(number, stream)| (*number, stream))
        }

        fn step(&mut self, what: u8, number: usize) {
            match what {
                0 => self.open(number % 40),
                1 => {
                    if let Some((number, _)) = self.any(number) {
                        self.streams.remove(&number);
                    }
                }
                2..=4 => {
                    let theirs = self.theirs as usize;
                    let all = what < 4;
                    if let Some((of, stream)) = self.any(number) {
                        let may = theirs.saturating_sub(stream.sent - stream.read);
                        let sent = if all { may } else { number.min(may) };
                        if stream.known && sent > 0 {
                            stream.sent += sent;
                            self.up.push_back(Up::Data(of, sent));
                        }
                    }
                }
                5 => {
                    if let Some((_, stream)) = self.any(number) {
                        stream.read = stream.arrived;
                    }
                }
                6 | 7 => match self.down.pop_front() {
                    Some(Down::Window(window)) => {
                        self.theirs = window;
                        self.up.push_back(Up::Acknowledged);
                    }
                    Some(Down::Opened(stream)) => {
                        if let Some(stream) = self.streams.get_mut(&stream) {
                            stream.known = true;
                        }
                    }
                    None => {}
                },
                8 | 9 => match self.up.pop_front() {
                    Some(Up::Data(of, bytes)) => {
                        if let Some(stream) = self.streams.get_mut(&of) {
                            stream.arrived += bytes;
                        }
                    }
                    Some(Up::Acknowledged) => self.acknowledged = true,
                    None => {}
                },
                10 => self.look(0),
                // Others of the peer's links have ended.
                _ => self.link = (self.link + u32::try_from(number).unwrap() / 8).min(20 * MIB),
            }
        }
    }

    proptest! {
        /// Whatever is opened, sent, read and under way when: all streams that there may be have room for the narrowest window.
        #[test]
        fn who_stands_still_never_has_all_of_a_link(
            born in LINK..20 * MIB,
            steps in proptest::collection::vec((0_u8..=11, any::<usize>()), 1..400),
        ) {
            let window = first_stream_window(born);
            let mut line = Line {
                link: born, window, room: 1, acknowledged: true, theirs: window, next: 0,
                streams: BTreeMap::new(), down: VecDeque::new(), up: VecDeque::new(),
            };
            for (what, number) in steps {
                line.step(what, number % (32 * MIB as usize));
                let narrowest = NARROWEST as usize;
                let link = line.link;
                let to_come = (streams(link) as usize - line.streams.len()) * narrowest;
                let theirs: usize = line.streams.values().map(|stream| (stream.sent - stream.read).max(narrowest)).sum();
                prop_assert!(theirs + to_come <= link as usize, "{} streams have {} of {}", line.streams.len(), theirs, link);
            }
        }
    }
}
