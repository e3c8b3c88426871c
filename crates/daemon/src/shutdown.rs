//! The end of a process: the first SIGTERM or SIGINT asks for it, the second does not ask.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Cancels the token at the first SIGTERM or SIGINT, so that everything can end in order; at the second the process
/// exits at once, with 128 and the signal's number as shells have it. To be called inside of the runtime, once.
pub fn signals() -> io::Result<CancellationToken> {
    let mut signals =
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    // It watches until the process ends, so nobody waits for it.
    tokio::spawn(async move {
        let (name, _) = signals.next().await;
        info!(signal = name, "shutting down");
        token.cancel();
        let (name, number) = signals.next().await;
        warn!(signal = name, "second signal: exiting at once");
        std::process::exit(128 + number);
    });
    Ok(shutdown)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }
}
