//! One question to the running hub's admin listener.

use std::{net::SocketAddr, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

/// How long the answer may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// How large the answer may be, in bytes.
const LIMIT: usize = 16 << 20;

/// GETs `path`; the error is for people.
pub(super) fn get(address: SocketAddr, path: &'static str) -> Result<Bytes, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        timeout(DEADLINE, exchange(address, path))
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {DEADLINE:?}")))
    })
}

async fn exchange(address: SocketAddr, path: &'static str) -> Result<Bytes, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let request = Request::get(path)
        .header(header::HOST, address.to_string())
        .body(Body::empty())
        .map_err(|error| error.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answers {}", response.status()));
        }
        let body = Limited::new(response.into_body(), LIMIT).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|error| error.to_string())
    };
    // The connection moves only while it is polled, and is done with the answer.
    tokio::pin!(connection);
    tokio::select! {
        answer = answer => answer,
        ended = &mut connection => Err(format!("it hung up: {ended:?}")),
    }
}
