//! What a command prints goes through here: whoever reads it may close it, and that is no failure.

use std::io::{self, ErrorKind, StdoutLock, Write};

/// A writer whose reader may have read enough, as `head` has: what comes after that is dropped, and the command ends as it would have. One
/// that changes something does not stop half-way for it.
#[derive(Debug)]
pub struct UntilClosed<W>(W);

/// Standard output.
pub fn stdout() -> UntilClosed<StdoutLock<'static>> {
    UntilClosed(io::stdout().lock())
}

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        unless_closed(self.0.write(text), text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(self.0.flush(), ())
    }
}

fn unless_closed<T>(done: io::Result<T>, dropped: T) -> io::Result<T> {
    match done {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(dropped),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails so.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_has_read_enough_is_no_failure_and_a_full_disk_is_one() {
        let print = |kind| {
            let mut out = UntilClosed(Failing(kind));
            writeln!(out, "a line").and_then(|()| out.flush()).map_err(|error| error.kind())
        };
        assert_eq!(print(ErrorKind::BrokenPipe), Ok(()));
        assert_eq!(print(ErrorKind::StorageFull), Err(ErrorKind::StorageFull));
    }
}
