//! What befell a request that got no answer, in words that say it, and whether the API server may have begun with it.

use std::{error::Error, io};

use super::UpstreamError;

/// How a connection, or the stream of one request, ended before the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Cut {
    /// Nothing came any more, or nothing was acknowledged.
    #[error("it timed out")]
    TimedOut,
    /// By the other end, or by something between.
    #[error("it was reset")]
    Reset,
    /// It came to its end.
    #[error("it was closed")]
    Closed,
    /// The server will not have looked at the request (`REFUSED_STREAM`).
    #[error("the API server refused the request before it began with it")]
    Refused,
    /// The server said that it will not look at the request (GOAWAY that names an earlier one as the last).
    #[error("the API server said good-bye before it began with the request")]
    GoodBye,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Cut {
    pub(super) fn of(error: &hyper::Error) -> Self {
        if error.is_timeout() {
            return Self::TimedOut;
        }
        if error.is_closed() {
            return Self::Closed;
        }
        let mut cause: &(dyn Error + 'static) = error;
        loop {
            if let Some(error) = cause.downcast_ref::<h2::Error>() {
                return Self::of_http2(error);
            }
            if let Some(error) = cause.downcast_ref::<io::Error>() {
                return Self::of_transport(error);
            }
            match cause.source() {
                Some(source) => cause = source,
                None => return Self::Other(cause.to_string()),
            }
        }
    }

    fn of_http2(error: &h2::Error) -> Self {
        if let Some(error) = error.get_io() {
            return Self::of_transport(error);
        }
        match error.reason() {
            // h2 ends so what has a higher number than the last that the server names; the rest goes on.
            _ if error.is_remote() && error.is_go_away() => Self::GoodBye,
            Some(h2::Reason::REFUSED_STREAM) if error.is_remote() => Self::Refused,
            _ if error.is_remote() => Self::Reset,
            _ => Self::Other(error.to_string()),
        }
    }

    fn of_transport(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Self::Reset,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof | io::ErrorKind::NotConnected => {
                Self::Closed
            }
            _ => Self::Other(error.to_string()),
        }
    }

    /// Whether the server may have done what was asked for, if it was under way. Only what the server says of that itself is certain.
    fn may_have_begun(&self) -> bool {
        !matches!(self, Self::Refused | Self::GoodBye)
    }

    /// The error of a request that may have been sent.
    pub(super) fn under_way(self) -> UpstreamError {
        if self.may_have_begun() {
            UpstreamError::Unanswered(Box::new(self))
        } else {
            UpstreamError::Broken(Box::new(self))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use hyper::client::conn::http2;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const PREFACE: usize = 24;
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;

    /// Reads frames until the request has come.
    async fn take_request(server: &mut DuplexStream) {
        server.read_exact(&mut [0; PREFACE]).await.unwrap();
        server.write_all(&frame(SETTINGS, 0, &[])).await.unwrap();
        loop {
            let mut head = [0; 9];
            server.read_exact(&mut head).await.unwrap();
            let [first, second, third, kind, ..] = head;
            let length = u32::from_be_bytes([0, first, second, third]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            server.read_exact(&mut payload).await.unwrap();
            if kind == HEADERS {
                return;
            }
        }
    }

    fn frame(kind: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, 0, 0, 0, 0, stream][..], payload].concat()
    }

    fn reset(reason: u8) -> Vec<u8> {
        frame(3, 1, &[0, 0, 0, reason])
    }

    fn good_bye(last: u8, reason: u8) -> Vec<u8> {
        frame(7, 0, &[0, 0, 0, last, 0, 0, 0, reason])
    }

    #[tokio::test]
    async fn only_what_the_server_says_that_it_did_not_begin_with_is_certain() {
        for (what, said, expected, may_have_begun) in [
            ("the connection ends", Vec::new(), Cut::Closed, true),
            ("the stream is refused", reset(7), Cut::Refused, false),
            ("the stream is cancelled", reset(8), Cut::Reset, true),
            ("the stream met an error", reset(2), Cut::Reset, true),
            ("good-bye, nothing was looked at", good_bye(0, 0), Cut::GoodBye, false),
            ("good-bye for an error, nothing was looked at", good_bye(0, 2), Cut::GoodBye, false),
            ("good-bye, and the end before the answer", good_bye(1, 0), Cut::Closed, true),
        ] {
            let (client, mut server) = duplex(64 << 10);
            let (mut sender, connection): (http2::SendRequest<Body>, _) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
            let driver = tokio::spawn(connection);
            let serve = async {
                take_request(&mut server).await;
                server.write_all(&said).await.unwrap();
                // Else the connection is there until the answer.
                (expected != Cut::Closed).then_some(server)
            };
            let request = Request::post("https://server/").body(Body::empty()).unwrap();
            let (answer, _server) = tokio::join!(sender.try_send_request(request), serve);
            let mut error = answer.expect_err(what);
            assert!(error.take_message().is_none(), "{what}: it was sent");
            let cut = Cut::of(&error.into_error());
            assert_eq!(cut, expected, "{what}");
            assert!(!cut.to_string().contains("http2 error"), "{what}");
            let is_unknown = matches!(cut.under_way(), UpstreamError::Unanswered(_));
            assert_eq!(is_unknown, may_have_begun, "{what}");
            driver.abort();
        }
    }

    #[test]
    fn what_the_network_says_has_words() {
        for (kind, expected) in [
            (io::ErrorKind::TimedOut, "it timed out"),
            (io::ErrorKind::ConnectionReset, "it was reset"),
            (io::ErrorKind::ConnectionAborted, "it was reset"),
            (io::ErrorKind::BrokenPipe, "it was closed"),
            (io::ErrorKind::UnexpectedEof, "it was closed"),
            (io::ErrorKind::HostUnreachable, "host unreachable"),
        ] {
            let cut = Cut::of_transport(&kind.into());
            assert_eq!(cut.to_string(), expected);
            assert!(cut.may_have_begun(), "{kind}");
        }
    }
}
