//! A thread of its own for what passes through the tunnel. A stream's bytes go from the task of its link to its own and back: on one thread
//! that is a change of tasks, on two it wakes another processor each time (docs/performance.md has what that cost). And what is
//! answered from the cache waits for no stream, nor a stream for a large answer.

use std::{io, thread};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The thread. When this is dropped, what runs on it is ended.
pub struct TunnelThread {
    runtime: Handle,
    _end: DropGuard,
}

impl TunnelThread {
    /// Starts it.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ended = end.clone();
        thread::Builder::new()
            .name("tunnel".to_owned())
            .spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok(Self { runtime: handle, _end: end.drop_guard() })
    }

    /// What spawns onto it.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }
}
