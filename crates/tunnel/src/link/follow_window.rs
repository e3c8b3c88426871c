//! A link's streams get the window that their number and what is held allow, while both change.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::LinkError;
use crate::{
    allowance::{Allowance, LOOKED_AT},
    socket::Traffic,
    window::{Open, change, first_stream_window},
};

/// How long a change waits for the acknowledgement of the one before. Streams may wait for it.
const AGAIN: Duration = Duration::from_millis(10);

/// How long streams have a narrower window than they might, so that one that comes soon after another has gone changes nothing.
const WIDER: Duration = Duration::from_secs(1);

/// How long a peer may take to acknowledge a change (RFC 9113, 6.5.3): over 64 kbit/s twice as long as what may be queued before it. Until then its streams have
/// windows for a number that they no longer are.
const ACKNOWLEDGED: Duration = Duration::from_mins(1);

/// Keeps the window of a link's streams to what their number and what is held allow.
pub(crate) struct Follower {
    allowance: Arc<Allowance>,
    window: u32,
    room: usize,
    /// Since when a change waits. That none is wanted for a moment acknowledges nothing.
    waits: Option<Instant>,
    next: Instant,
}

impl Follower {
    /// As a link begins that may hold so much.
    pub(crate) fn new(allowance: Arc<Allowance>) -> Self {
        let window = first_stream_window(allowance.bytes());
        Self { allowance, window, room: 1, waits: None, next: Instant::now() + LOOKED_AT }
    }

    /// Ends when the window should be looked at.
    pub(crate) async fn due(&self, traffic: &Traffic) {
        tokio::select! {
            () = traffic.room_wanted() => {}
            () = sleep_until(self.next) => {}
        }
    }

    /// The window of the link, if it may hold more than before.
    pub(crate) fn grow(&self) -> Option<u32> {
        self.allowance.grow()
    }

    /// Has `set` change the window of streams, if it is not as it should be: it fails while the change before is not acknowledged. Who waits for room has it
    /// then: what a peer is told comes to it in order. A peer that never acknowledges would keep wide windows, and others waiting, and loses its link.
    pub(crate) fn follow<E>(
        &mut self,
        traffic: &Traffic,
        set: impl FnOnce(u32) -> Result<(), E>,
    ) -> Result<(), LinkError> {
        let link = self.allowance.bytes();
        let held = traffic.held();
        let open = Open { streams: traffic.streams(), held: &held, window: self.window, room: self.room };
        let mut again = false;
        if let Some((room, window)) = change(link, open) {
            // Before it is wider nobody begins any more for whom it is too wide; who has done so just now is looked at again.
            traffic.make_room(room.min(self.room));
            if room < self.room && traffic.streams() > room {
                again = true;
            } else if set(window).is_ok() {
                (self.window, self.room, self.waits) = (window, room, None);
            } else if self.waits.get_or_insert_with(Instant::now).elapsed() >= ACKNOWLEDGED {
                return Err(LinkError::Unacknowledged);
            } else {
                again = true;
            }
        }
        // Those that wait look again, whatever has changed: others may be gone.
        traffic.make_room(self.room);
        let alone = Open { streams: 1, held: &[], window: self.window, room: self.room };
        let wait = if again {
            AGAIN
        } else if change(link, alone).is_some() {
            WIDER
        } else {
            LOOKED_AT
        };
        self.next = Instant::now() + wait;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};
    use tokio::{
        io::{DuplexStream, duplex},
        task::JoinSet,
        time::timeout,
    };
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        allowance::Allowances,
        ending::Ending,
        link::{
            answer,
            fixture::{deaf, introduced, keep, peer, terms},
        },
    };

    /// Asks for streams, so many that each is to have a narrower window, and keeps them.
    async fn ask_for_streams(theirs: DuplexStream) {
        let (mut send, connection) = introduced(theirs).await;
        let mut kept = Vec::new();
        for _ in 0..8 {
            let ask = Request::builder().method(Method::CONNECT).uri("a1:1").body(()).unwrap();
            let (response, body) = send.send_request(ask, false).unwrap();
            kept.push((response.await.unwrap().into_body(), body));
        }
        let _ = connection.await;
    }

    async fn held(carrier: DuplexStream) -> Result<(), LinkError> {
        let ending = Ending::at(CancellationToken::new());
        answer::run(carrier, peer("a1"), &terms(), &ending, || {}, keep).await
    }

    /// What is told and not acknowledged yet is in the way of what is to be told next, and of those who wait for that, until there is room again.
    #[tokio::test(start_paused = true)]
    async fn who_would_have_too_wide_a_window_waits_until_the_peer_is_told_or_others_are_gone() {
        let allowance = Allowances::default().take("a1", 1).unwrap();
        let traffic = Arc::new(Traffic::of(&allowance));
        let mut window = Follower::new(allowance);
        let has_room = async || timeout(Duration::from_millis(1), traffic.room()).await.is_ok();
        let wide = window.window;
        let first = traffic.open_stream();
        assert!(has_room().await);
        let second = traffic.open_stream();
        assert!(!has_room().await);
        window.due(&traffic).await;
        window.follow(&traffic, |_| Err(())).unwrap();
        assert!(!has_room().await);
        let mut waits = std::pin::pin!(traffic.room());
        assert!(timeout(Duration::from_millis(1), &mut waits).await.is_err());
        drop(first);
        window.follow(&traffic, |_| Err(())).unwrap();
        timeout(Duration::from_millis(1), waits).await.expect("it waits for nobody");

        let third = traffic.open_stream();
        window.due(&traffic).await;
        window.follow(&traffic, |size| if size < wide { Ok(()) } else { Err(()) }).unwrap();
        assert!(has_room().await && window.window < wide);
        drop((second, third));
        // The others are wide again, if nobody comes at once.
        let began = Instant::now();
        window.due(&traffic).await;
        assert_eq!(began.elapsed().as_millis() / 10, WIDER.as_millis() / 10);
        window.follow::<()>(&traffic, |_| Ok(())).unwrap();
        assert_eq!(window.window, wide);
    }

    /// Its PINGs are answered, so nothing else says that anything is amiss.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_acknowledges_no_window_loses_its_link() {
        let mut tasks = JoinSet::new();
        let (ours, theirs) = deaf(&mut tasks);
        tasks.spawn(ask_for_streams(theirs));
        let ended = timeout(ACKNOWLEDGED * 2, held(ours)).await.expect("it goes on");
        assert!(matches!(ended, Err(LinkError::Unacknowledged)), "{ended:?}");

        let (ours, theirs) = duplex(1 << 16);
        tasks.spawn(ask_for_streams(theirs));
        let ended = timeout(ACKNOWLEDGED * 2, held(ours)).await;
        assert!(ended.is_err(), "who acknowledges loses its link, too: {ended:?}");
    }
}
