//! One list of all objects in one piece, as an informer of any age begins with: what it takes of the leader's memory while it is sent.

use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::link::{Kind, Link};
use super::replica::Replica;
use super::watchers::Way;

/// How long a list of ten thousand objects may take to begin.
const MAKING: Duration = Duration::from_secs(30);

/// What was seen of it.
pub(super) struct Listed {
    pub(super) megabytes: f64,
    pub(super) seconds: f64,
    /// The most that was resident in the leader meanwhile.
    pub(super) peak_mb: f64,
}

/// Lists once, at whichever version the leader has.
pub(super) async fn once(way: &Way, leader: &Replica) -> Result<Listed> {
    let mut link = Link::open(&way.server, &way.name, &way.tls, Kind::Reader).await?;
    leader.process.forget_peak()?;
    let began = Instant::now();
    let request = http::Request::get("/").header(http::header::ACCEPT, "application/json");
    let path = format!("{}?resourceVersion=0", way.path);
    let response = link.send_within(MAKING, request, &path, Bytes::new()).await?;
    ensure!(response.status() == 200, "a list: {}", response.status());
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(Listed { megabytes: super::float(bytes as u64) / 1e6, seconds, peak_mb: leader.process.peak_mb()? })
}
