//! A connection that a library is given for a while.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that the HTTP library has until it is dropped there. It is never used by two at once.
pub(super) struct Lent<Io>(Arc<Mutex<Io>>);

impl<Io> Clone for Lent<Io> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Io: Unpin> Lent<Io> {
    /// To be lent by cloning it.
    pub(super) fn new(io: Io) -> Self {
        Self(Arc::new(Mutex::new(io)))
    }

    /// The connection, if nobody has it any more.
    pub(super) fn give_back(self) -> Option<Io> {
        Arc::into_inner(self.0).map(Mutex::into_inner)
    }

    fn with<T>(&self, call: impl FnOnce(Pin<&mut Io>) -> T) -> T {
        call(Pin::new(&mut *self.0.lock()))
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Lent<Io> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_read(context, buffer))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Lent<Io> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|io| io.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|io| io.poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_shutdown(context))
    }
}
