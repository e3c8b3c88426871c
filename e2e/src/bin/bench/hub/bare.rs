//! What an event costs where nothing is done but to write it to each watcher's socket: less than that no cache takes, on this machine and in this hour.
//!
//! Most of what the hub needs for an event is the kernel's, for those writes, and differs between machines and hours by a factor of three. So a
//! figure of it says something about the hub only beside this one.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::client::find;
use super::load::{self, SENT, nanoseconds};
use super::node::Running;
use super::watchers::{self, Shared, Watchers};
use super::{JSON, WATCHERS, float, instrument};
use crate::report::{Figure, percentile};

/// As many sockets as there are watchers, each read as a watcher reads.
pub(super) struct Bare {
    sockets: Vec<TcpStream>,
    watchers: Watchers,
    event: Event,
}

/// A change of a Service, as the hub tells it.
struct Event {
    bytes: Vec<u8>,
    /// Where the digits of its time are.
    sent: std::ops::Range<usize>,
}

impl Bare {
    /// Of a hub that has told a change of the first Service.
    pub(super) async fn open(running: &Running) -> Result<Self> {
        let event = Event::of(&running.client.get(&load::path(0), JSON).await?.body())?;
        instrument::run(Self::open_here(event)).await
    }

    async fn open_here(event: Event) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (shared, mut sockets, mut readers) = (Arc::new(Shared::default()), Vec::new(), Vec::new());
        for _ in 0..WATCHERS {
            let reader = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
            // What is connected is in the listener's queue.
            let (socket, _) = listener.accept()?;
            socket.set_nodelay(true)?;
            sockets.push(socket);
            readers.push(watchers::follow(reader, shared.clone()));
        }
        Ok(Self { sockets, watchers: Watchers::run(readers, shared), event })
    }

    /// Writes `count` events to all of them, so many a second and so many of them at once, and says what that took: processor time of the thread that
    /// writes, and milliseconds until 99 of a hundred were read. The keys of the figures begin with `name`; `ours` is what the hub needed, µs for an event
    /// and watcher.
    pub(super) async fn tell(
        self,
        count: usize,
        pace: (f64, usize),
        name: &str,
        ours: f64,
    ) -> Result<Vec<Figure>> {
        let Self { mut sockets, watchers, mut event } = self;
        let cpu = instrument::thread(move || {
            write(&mut sockets, &mut event, count, pace).map(|cpu| (cpu, sockets))
        });
        let (cpu, sockets) = cpu.await??;
        watchers.told(count, Duration::from_mins(1)).await.context("bare sockets")?;
        drop(sockets);
        let each = cpu.as_secs_f64() * 1e6 / float((count * WATCHERS) as u64);
        let late = percentile(&mut watchers.events().delays(), 0.99);
        Ok(vec![
            Figure::new(format!("{name}bare_cpu_us_per_event_watcher"), each),
            Figure::new(format!("{name}cpu_ratio_to_bare_writes"), ours / each),
            Figure::new(format!("{name}bare_p99_delivery_ms"), late),
        ])
    }
}

impl Event {
    fn of(object: &[u8]) -> Result<Self> {
        let bytes = [br#"{"type":"MODIFIED","object":"#, object.trim_ascii(), b"}\n"].concat();
        let mark = watchers::json_mark();
        let start = find(&bytes, &mark).with_context(|| format!("no {SENT} in it"))? + mark.len();
        Ok(Self { sent: start..start + watchers::DIGITS, bytes })
    }

    fn sent_now(&mut self) -> &[u8] {
        self.bytes[self.sent.clone()].copy_from_slice(nanoseconds().to_string().as_bytes());
        &self.bytes
    }
}

/// Writes events at a pace and returns the processor time of the thread for it.
fn write(
    sockets: &mut [TcpStream],
    event: &mut Event,
    count: usize,
    (rate, bunch): (f64, usize),
) -> Result<Duration> {
    let (before, began) = (instrument::cpu_of_thread()?, Instant::now());
    for i in 0..count {
        if i % bunch == 0 {
            let due = Duration::from_secs_f64(float(i as u64) / rate);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
        let bytes = event.sent_now();
        for socket in &mut *sockets {
            socket.write_all(bytes)?;
        }
    }
    Ok(instrument::cpu_of_thread()?.saturating_sub(before))
}
