//! How much a stream may send before its receiver has read it. Pure.
//!
//! A window bounds throughput (window ÷ round trip) and what a receiver that does not read makes us hold. Few streams get wide
//! ones, many get narrow ones. The connection's window is so wide that it never counts: otherwise a stalled stream would
//! take it away from the others.
//!
//! Streams count from the 200 on. One that waits for it has the window of its link, too, and holds nothing: whoever sends before it has the stream is
//! refused ([`crate::link`]).

/// What all windows of a link come to, in bytes.
const BUDGET: u32 = 32 * 1024 * 1024;

/// The widest: 80 MB/s at 100 ms.
pub const WIDEST: u32 = 8 * 1024 * 1024;

/// The narrowest.
pub const NARROWEST: u32 = 64 * 1024;

/// The window of a connection.
pub const CONNECTION: u32 = 1 << 30;

/// The window of each stream where `streams` are open.
pub fn stream_window(streams: usize) -> u32 {
    // Powers of two, so that it changes seldom: each change is a SETTINGS frame.
    let streams = u32::try_from(streams.max(1).next_power_of_two()).unwrap_or(u32::MAX);
    (BUDGET / streams).clamp(NARROWEST, WIDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_stay_within_their_budget() {
        let windows = [0, 1, 4, 5, 9, 100, 512, 513, 1024, usize::MAX >> 1].map(stream_window);
        let k = 1024;
        assert_eq!(windows, [8192, 8192, 8192, 4096, 2048, 256, 64, 64, 64, 64].map(|window| window * k));
        for streams in 1..=512_usize {
            assert!(u64::from(stream_window(streams)) * streams as u64 <= u64::from(BUDGET));
        }
    }
}
