//! The same requests without a hub, for comparison.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::AsyncReadExt;
use http::{Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};
use tokio::time::Instant;

use super::instrument;
use super::relay::Relay;
use super::watchers::{Marks, Shared, Watchers};

/// Bytes that one client costs the link when it lists everything, in two forms.
pub(super) struct OneClient {
    /// As client-go asks for built-in kinds: protobuf, compressed.
    pub(super) compressed: u64,
    /// As JSON, plain.
    pub(super) json: u64,
}

/// Lists `paths` from the API server over the relay.
pub(super) async fn one_client(relay: &Relay, paths: [&str; 2]) -> Result<OneClient> {
    let forms = [("application/vnd.kubernetes.protobuf", "gzip"), ("application/json", "identity")];
    let mut bytes = [0; 2];
    for ((accept, encoding), bytes) in forms.into_iter().zip(&mut bytes) {
        let mut config = Config::infer().await?;
        config.cluster_url = format!("https://{}", relay.address()).parse()?;
        let client = Client::try_from(config)?;
        let before = relay.bytes();
        for path in paths {
            drain(&client, &format!("{path}?resourceVersion=0"), accept, encoding).await?;
        }
        *bytes = relay.bytes() - before;
    }
    let [compressed, json] = bytes;
    Ok(OneClient { compressed, json })
}

/// Milliseconds in which 16 MB of a list come from the API server, in proportion.
pub(super) async fn list(client: &Client, path: &str) -> Result<f64> {
    let mut times = [0.0; 3];
    for time in &mut times {
        let began = Instant::now();
        let length = drain(client, path, "application/vnd.kubernetes.protobuf", "identity").await?;
        *time = began.elapsed().as_secs_f64() * 1e3 * 16e6 / super::float(length);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[1])
}

/// Reads an answer to its end and says how long its body was.
async fn drain(client: &Client, path: &str, accept: &str, encoding: &str) -> Result<u64> {
    let request = Request::get(path)
        .header(header::ACCEPT, accept)
        .header(header::ACCEPT_ENCODING, encoding)
        .body(Body::empty())?;
    let response = client.send(request).await?;
    ensure!(response.status().is_success(), "{path}: {}", response.status());
    let (mut body, mut length) = (response.into_body(), 0);
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(length)
}

/// Opens `count` watches of `path` on the API server, each over a connection of its own, as clients of their own have.
pub(super) async fn watchers(path: &str, count: usize) -> Result<Watchers> {
    watchers_of(Config::infer().await?, path, count).await
}

/// The same of another server.
pub(super) async fn watchers_of(config: Config, path: &str, count: usize) -> Result<Watchers> {
    instrument::run(watchers_here(config, path.to_owned(), count)).await
}

async fn watchers_here(config: Config, path: String, count: usize) -> Result<Watchers> {
    let shared = Arc::new(Shared::default());
    let mut all = Vec::new();
    for _ in 0..count {
        let client = Client::try_from(config.clone())?;
        let mut stream = Box::pin(client.request_stream(Request::get(&path).body(Vec::new())?).await?);
        let mut marks = Marks::new(shared.clone());
        all.push(async move {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                marks.read(&buffer[..length]);
            }
            drop(client);
        });
    }
    Ok(Watchers::run(all, shared))
}
