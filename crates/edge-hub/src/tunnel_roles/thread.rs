//! A thread of its own for what passes through the tunnel: links, streams, and whoever comes for one. A stream's bytes go from the task of its link
//! to its own and back: on one thread that is a change of tasks, on two it wakes another processor each time (docs/performance.md has
//! what that cost). What waits for a disk stays on the hub's threads.

use std::{io, sync::mpsc, thread};

use tokio::{
    net::TcpListener,
    runtime::{Builder, Handle, Runtime},
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The thread. When this is dropped, what runs on it is ended.
pub struct TunnelThread {
    runtime: Handle,
    _end: DropGuard,
}

impl TunnelThread {
    /// Starts it. Should it die, it cancels `shutdown`: a hub that is started anew has a tunnel.
    pub fn start(shutdown: &CancellationToken) -> io::Result<Self> {
        let end = CancellationToken::new();
        let (ended, died) = (end.clone(), shutdown.clone().drop_guard());
        let (tell, told) = mpsc::sync_channel(1);
        let run = move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            // Nobody who asked is gone.
            let _ = tell.send(runtime.as_ref().map(Runtime::handle).cloned().map_err(io::Error::kind));
            if let Ok(runtime) = runtime {
                runtime.block_on(ended.cancelled());
            }
            died.disarm();
        };
        thread::Builder::new().name("tunnel".to_owned()).spawn(run)?;
        let runtime = told.recv().map_err(io::Error::other)??;
        Ok(Self { runtime, _end: end.drop_guard() })
    }

    /// What spawns onto it.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

/// A listener that another thread has bound, where that one is told of who comes.
pub(super) fn tcp_heard_on(runtime: &Handle, listener: TcpListener) -> io::Result<TcpListener> {
    let listener = listener.into_std()?;
    let _there = runtime.enter();
    TcpListener::from_std(listener)
}
