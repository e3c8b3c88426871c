//! What is known of a connection's path: how long a round trip takes, and whether what is sent is being acknowledged.
//!
//! A PING stands behind what was sent before it. On a thin line that can be seconds of an upload, in which the server says nothing though
//! all is well: as long as acknowledgements come for it the path is whole, and the answer has its time from then on.

use std::{net::SocketAddr, sync::OnceLock, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::sock_diag;

/// How often the kernel is asked at the most.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// With so many bytes on their way or waiting, acknowledgements are an upload's. Those of a PING alone say nothing: the kernel of a server
/// that stands still gives them, too.
const UPLOAD: u32 = 4096;

/// So many round trips an answer may take: one, and as long again for packets that were lost.
const ROUND_TRIPS: u32 = 3;

/// How long an answer may take at the most, however far away the server is.
const LONGEST: Duration = Duration::from_secs(10);

/// `INET_DIAG_INFO`, which is `struct tcp_info`, and where that has `tcpi_rtt` and `tcpi_bytes_acked`.
const INFO: u16 = 2;
const ROUND_TRIP: usize = 68;
const ACKNOWLEDGED: usize = 120;

/// The path of one connection.
#[derive(Debug)]
pub(super) struct Path {
    /// The addresses of both ends.
    ends: OnceLock<(SocketAddr, SocketAddr)>,
    seen: Mutex<Seen>,
}

/// What was seen of it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// When the kernel was asked last.
    looked: Instant,
    /// What it said.
    kernel: Kernel,
    /// When it was last seen that acknowledgements of an upload came.
    taken: Instant,
    /// When a sign of life was asked for that did not come yet.
    asked: Option<Instant>,
    /// How long they take.
    measured: Duration,
}

/// What the kernel says of a connection.
#[derive(Debug, Clone, Copy, Default)]
struct Kernel {
    round_trip: Duration,
    acknowledged: u64,
    /// On their way, or waiting.
    queued: u32,
}

impl Path {
    pub(super) fn new() -> Self {
        let (now, kernel) = (Instant::now(), Kernel::default());
        let seen = Seen { looked: now, kernel, taken: now, asked: None, measured: Duration::ZERO };
        Self { ends: OnceLock::new(), seen: Mutex::new(seen) }
    }

    /// The connection is there, and the kernel can be asked about it.
    pub(super) fn connected(&self, local: SocketAddr, remote: SocketAddr) {
        let _ = self.ends.set((local, remote));
        self.ask(Instant::now());
    }

    /// Asks the kernel, unless that was done a moment ago.
    pub(super) fn look(&self) {
        let now = Instant::now();
        if now >= self.seen.lock().looked + LOOK {
            self.ask(now);
        }
    }

    fn ask(&self, now: Instant) {
        let kernel = self.ends.get().and_then(|(local, remote)| kernel(*local, *remote));
        self.seen.lock().take(kernel, now);
    }

    /// The server is asked for a sign of life.
    pub(super) fn asked(&self) {
        self.seen.lock().asked = Some(Instant::now());
    }

    /// It gave one.
    pub(super) fn answered(&self) {
        let mut seen = self.seen.lock();
        if let Some(asked) = seen.asked.take() {
            seen.measured = (3 * seen.measured + asked.elapsed()) / 4;
        }
    }

    /// A round trip to the server itself took so long.
    pub(super) fn took(&self, round_trip: Duration) {
        self.seen.lock().measured = round_trip;
    }

    /// When it was last seen that an upload goes on.
    pub(super) fn taken(&self) -> Instant {
        self.seen.lock().taken
    }

    /// How long an answer may take: that long, or longer over a long way.
    pub(super) fn patience(&self, usual: Duration) -> Duration {
        let seen = self.seen.lock();
        // The kernel knows no further than to what ends TCP on the way.
        patience(seen.measured.max(seen.kernel.round_trip), usual)
    }
}

impl Seen {
    /// What the kernel says at `now`. If it says nothing what it said before holds.
    fn take(&mut self, kernel: Option<Kernel>, now: Instant) {
        let followed = now <= self.looked + 3 * LOOK;
        self.looked = now;
        let Some(kernel) = kernel else { return };
        if followed && kernel.queued >= UPLOAD && kernel.acknowledged > self.kernel.acknowledged {
            self.taken = now;
        }
        self.kernel = kernel;
    }
}

/// How long an answer may take that is `usual`ly given so long.
pub(super) fn patience(round_trip: Duration, usual: Duration) -> Duration {
    usual.max((ROUND_TRIPS * round_trip).min(LONGEST))
}

fn kernel(local: SocketAddr, remote: SocketAddr) -> Option<Kernel> {
    let told = sock_diag::ask(local, remote, 1 << (INFO - 1)).ok()?;
    let info = told.attribute(INFO)?;
    let micros = u32::from_ne_bytes(info.get(ROUND_TRIP..ROUND_TRIP + 4)?.try_into().ok()?);
    Some(Kernel {
        round_trip: Duration::from_micros(micros.into()),
        acknowledged: u64::from_ne_bytes(info.get(ACKNOWLEDGED..ACKNOWLEDGED + 8)?.try_into().ok()?),
        queued: told.queued()?,
    })
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    const USUAL: Duration = Duration::from_millis(1800);

    #[test]
    fn who_is_far_away_has_three_round_trips() {
        let millis = Duration::from_millis;
        for (round_trip, expected) in [(0, 1800), (600, 1800), (1000, 3000), (2500, 7500), (60_000, 10_000)] {
            assert_eq!(patience(millis(round_trip), USUAL), millis(expected), "{round_trip}");
        }
    }

    #[test]
    fn only_acknowledgements_of_an_upload_say_that_it_goes_on() {
        let mut seen = *Path::new().seen.lock();
        let began = seen.looked;
        // After so many looks; acknowledged, queued, after how many it was last seen to go on.
        let cases = [
            (10, 1_000, 100_000, 0, "the first look for long"),
            (11, 1_000, 100_000, 0, "nothing since"),
            (12, 2_000, 99_000, 12, "goes on"),
            (13, 101_000, 0, 12, "done"),
            (14, 101_039, 0, 12, "a PING"),
            (15, 101_078, 200, 12, "a small request"),
            (30, 150_000, 50_000, 12, "another upload, of which nobody knows when it was taken"),
            (31, 150_001, 50_000, 31, "it goes on"),
        ];
        for (look, acknowledged, queued, taken, case) in cases {
            let kernel = Kernel { round_trip: Duration::ZERO, acknowledged, queued };
            seen.take(Some(kernel), began + look * LOOK);
            assert_eq!(seen.taken, began + taken * LOOK, "{case}");
        }
    }

    #[tokio::test]
    async fn the_kernel_knows_what_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let (local, remote) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        near.write_all(&[0; 1000]).await.unwrap();
        far.read_exact(&mut [0; 1000]).await.unwrap();
        // An acknowledgement may be put off.
        tokio::time::sleep(LOOK).await;
        let told = kernel(local, remote).unwrap();
        assert!((1000..=1001).contains(&told.acknowledged) && told.queued == 0, "{told:?}");
        assert!(told.round_trip > Duration::ZERO && told.round_trip < USUAL, "{told:?}");
        // Until nobody takes any more.
        while tokio::time::timeout(LOOK, near.write_all(&[0; 1 << 14])).await.is_ok() {}
        let told = kernel(local, remote).unwrap();
        assert!(told.queued >= UPLOAD && told.acknowledged > 1001, "{told:?}");
        assert_eq!(kernel(local, remote).unwrap().acknowledged, told.acknowledged);
    }

    #[test]
    fn signs_of_life_are_measured() {
        let path = Path::new();
        path.took(Duration::from_secs(4));
        assert_eq!(path.patience(USUAL), LONGEST);
        for _ in 0..20 {
            path.asked();
            path.answered();
            path.answered();
        }
        assert_eq!(path.patience(USUAL), USUAL, "a handshake with a busy server is soon forgotten");
    }
}
