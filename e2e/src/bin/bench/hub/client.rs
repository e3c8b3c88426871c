//! A client of the hub's loopback listener that costs next to nothing itself: one request a connection, read to its end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube_wire::frame::read::{ITEM_MAX, ListReader};
use kube_wire::object::Encoding;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Talks to the hub on this port of the loopback.
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) port: u16,
}

/// An answer, read whole.
pub(super) struct Answer {
    pub(super) status: u16,
    /// The body as it came, with the frames of chunked encoding if it has them.
    pub(super) raw: Vec<u8>,
    chunked: bool,
}

/// What stands once in each object that the benchmark loads.
const VERSION: &[u8] = b"\"resourceVersion\":\"";

impl Client {
    /// GETs a path.
    pub(super) async fn get(&self, path: &str, accept: &str) -> Result<Answer> {
        self.get_as(path, accept, None).await
    }

    /// GETs a path with a token, if there is one.
    pub(super) async fn get_as(&self, path: &str, accept: &str, token: Option<&str>) -> Result<Answer> {
        let mut stream = self.request(path, accept, token).await?;
        let mut raw = Vec::new();
        stream.read_to_end(&mut raw).await?;
        let head = find(&raw, b"\r\n\r\n").context("no head")?;
        let text = String::from_utf8_lossy(&raw[..head]).to_ascii_lowercase();
        let status = text.split_whitespace().nth(1).context("no status")?.parse()?;
        let chunked = text.contains("transfer-encoding: chunked");
        raw.drain(..head + 4);
        Ok(Answer { status, raw, chunked })
    }

    /// GETs a path and says how long the answer was and how long it took. Nothing of it is kept: pages for it would be asked of the
    /// system while the hub is measured.
    pub(super) async fn drain(&self, path: &str, accept: &str) -> Result<(u64, Duration)> {
        let mut buffer = vec![0; 256 << 10];
        let began = Instant::now();
        let mut stream = self.request(path, accept, None).await?;
        let first = stream.read(&mut buffer).await?;
        ensure!(buffer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer[..first]));
        let mut length = first as u64;
        while let read @ 1.. = stream.read(&mut buffer).await? {
            length += read as u64;
        }
        Ok((length, began.elapsed()))
    }

    /// Opens a watch; the stream is at the start of the body.
    pub(super) async fn watch(&self, path: &str) -> Result<TcpStream> {
        self.watch_as(path, None).await
    }

    /// The same with a token, if there is one.
    pub(super) async fn watch_as(&self, path: &str, token: Option<&str>) -> Result<TcpStream> {
        let mut stream = self.request(path, "application/json", token).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        ensure!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        Ok(stream)
    }

    async fn request(&self, path: &str, accept: &str, token: Option<&str>) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n{token}Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        Ok(stream)
    }
}

impl Answer {
    /// The number of objects in a JSON list.
    pub(super) fn objects(&self) -> usize {
        count(&self.body(), VERSION).saturating_sub(1)
    }

    /// The number of objects in a protobuf list; 0 if it is not one to its end.
    pub(super) fn protobuf_objects(&self) -> usize {
        let (mut reader, mut objects) = (ListReader::new(Encoding::Protobuf, ITEM_MAX), Vec::new());
        let read = reader.push(&self.body(), &mut objects).is_ok() && reader.finish().is_ok();
        if read { objects.len() } else { 0 }
    }

    /// The body without the frames of chunked encoding.
    pub(super) fn body(&self) -> Vec<u8> {
        if !self.chunked {
            return self.raw.clone();
        }
        let (mut body, mut rest) = (Vec::with_capacity(self.raw.len()), self.raw.as_slice());
        while let Some(end) = find(rest, b"\r\n") {
            let length =
                std::str::from_utf8(&rest[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
            let Some(chunk) = length.and_then(|length| rest.get(end + 2..end + 2 + length)) else { break };
            body.extend_from_slice(chunk);
            rest = rest.get(end + 4 + chunk.len()..).unwrap_or_default();
        }
        body
    }
}

/// Where `pattern` first is.
pub(super) fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len()).position(|window| window == pattern)
}

/// How often `pattern` is there.
fn count(text: &[u8], pattern: &[u8]) -> usize {
    let (mut count, mut rest) = (0, text);
    while let Some(at) = find(rest, pattern) {
        count += 1;
        rest = &rest[at + pattern.len()..];
    }
    count
}
