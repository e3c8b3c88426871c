//! How a standby keeps warm: by the leader's own stream of what it holds ([`copy_stream`]), or, of a leader that has none, by an ordinary
//! watch, whose objects are kept as they come. It stops at the first thing that it does not understand; the caller begins again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube_wire::frame::INITIAL_EVENTS_END;
use kube_wire::object::MalformedObject;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::copy_stream::wire::{Frame, MalformedFrame};
use crate::copy_stream::{self, CONTENT_TYPE, RESELECTIONS_HEADER};
use crate::record::{MalformedRecord, Record};
use crate::storage::NodeMetrics;
use crate::store::Copied;
use crate::{GROUP, RESOURCE};

/// The longest line of a stream: an object is at most as long as a request of the API server.
const LINE_MAX: usize = 16 << 20;

/// A leader that says nothing for so long is cut off: it sends a bookmark each minute.
const SILENCE: Duration = Duration::from_secs(75);

/// Why a stream of the leader ended.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The request cannot be made.
    #[error("the request for the watch")]
    Request(#[from] http::Error),
    /// The leader cannot be reached, or broke off.
    #[error("the leader: {0}")]
    Leader(#[from] kube::Error),
    /// It answers otherwise.
    #[error("the leader answers {0}")]
    Status(http::StatusCode),
    /// It says that the watch cannot go on.
    #[error("the leader ended the watch: {0}")]
    Ended(String),
    /// What it sends is not a watch.
    #[error("what the leader sends")]
    Json(#[from] serde_json::Error),
    /// An object of it is none.
    #[error("an object of the leader")]
    Record(#[from] MalformedRecord),
    /// An object of it is none.
    #[error("an object of the leader")]
    Object(#[from] MalformedObject),
    /// It says nothing, not even that nothing happens.
    #[error("the leader has said nothing for {SILENCE:?}")]
    Silent(#[from] tokio::time::error::Elapsed),
    /// What it sends is not its own stream.
    #[error("what the leader sends")]
    Frame(#[from] MalformedFrame),
    /// A line is too long.
    #[error("the leader sends a line of more than {LINE_MAX} bytes")]
    Long,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    type_: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

/// What one stream told so far.
#[derive(Debug, Default)]
struct Copying {
    /// The initial state, until its end is told.
    initial: Initial,
}

/// Follows the leader that `client` reaches until the stream ends; its end is an error or `Ok` if the leader closed it in order.
/// `copied` is called once the copy is whole.
pub async fn follow(client: &Client, copy: &NodeMetrics, copied: impl FnOnce()) -> Result<(), FollowError> {
    let resume = copy.read(|store| store.is_copied().then(|| store.ledger().complete()));
    let query = resume.map(|version| format!("?after={version}")).unwrap_or_default();
    let request = http::Request::get(format!("{}{query}", copy_stream::PATH));
    let response = timeout(SILENCE, client.send(request.body(Body::empty())?)).await??;
    if is_copy(&response) {
        let tells_reselections = response.headers().contains_key(RESELECTIONS_HEADER);
        copy.change(|store, _| store.copy_begins(tells_reselections));
        let initial = resume.is_none().then(Vec::new);
        return take_copy(response.into_body(), initial, copy, copied).await;
    }
    match response.status() {
        http::StatusCode::GONE => {
            // The leader has no history back to this copy: the next stream begins with the whole state.
            copy.change(|store, _| store.forget_copy());
            return Err(FollowError::Status(http::StatusCode::GONE));
        }
        http::StatusCode::SERVICE_UNAVAILABLE => return Err(FollowError::Status(response.status())),
        // One of a version before: it knows no such path, or lets nobody ask for it.
        _ => drop(response),
    }
    watch(client, copy, copied).await
}

fn is_copy(response: &http::Response<Body>) -> bool {
    let kind = response.headers().get(http::header::CONTENT_TYPE);
    response.status() == http::StatusCode::OK && kind.is_some_and(|kind| kind == CONTENT_TYPE)
}

/// The leader's own stream, to its end.
async fn take_copy(
    mut body: Body,
    mut initial: Initial,
    copy: &NodeMetrics,
    copied: impl FnOnce(),
) -> Result<(), FollowError> {
    let mut copied = Some(copied);
    let mut buffer = BytesMut::new();
    loop {
        if initial.is_none()
            && let Some(copied) = copied.take()
        {
            copied();
        }
        let Some(frame) = timeout(SILENCE, body.frame()).await? else { return Ok(()) };
        let Ok(data) = frame?.into_data() else { continue };
        buffer.extend_from_slice(&data);
        while let Some(frame) = Frame::take(&mut buffer)? {
            take_frame(frame, &mut initial, copy)?;
        }
    }
}

/// The whole state so far, until its end is told.
type Initial = Option<Vec<Copied>>;

fn take_frame(frame: Frame, initial: &mut Initial, copy: &NodeMetrics) -> Result<(), FollowError> {
    let Frame { record, gone, whole, progress, reselected } = frame;
    if let Some(record) = record {
        let copied = record.into_record()?;
        match initial {
            Some(initial) => initial.push(copied),
            None => copy.change(|store, now| store.copy_record(now, copied)),
        }
    }
    if let Some(gone) = gone {
        copy.change(|store, now| store.copy_removal(now, &gone.name, gone.version));
    }
    if let Some(reselected) = reselected {
        let how = reselected.into_reselected()?;
        copy.change(|store, now| store.copy_reselection(now, how));
    }
    if let (Some(version), Some(records)) = (whole, initial.take_if(|_| whole.is_some())) {
        copy.change(|store, now| store.copy_list(now, records, version));
    }
    if let (Some(version), None) = (progress, &initial) {
        copy.change(|store, now| store.copy_progress(now, version));
    }
    Ok(())
}

/// An ordinary watch, to its end.
async fn watch(client: &Client, copy: &NodeMetrics, copied: impl FnOnce()) -> Result<(), FollowError> {
    let version = copy.api_version().rsplit('/').next().unwrap_or_default();
    let resume = copy.read(|store| store.is_copied().then(|| store.ledger().complete()));
    let (query, initial) = match resume {
        Some(version) => (format!("resourceVersion={version}"), None),
        None => ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(), Some(Vec::new())),
    };
    let path = format!("/apis/{GROUP}/{version}/{RESOURCE}?watch=1&allowWatchBookmarks=true&{query}");
    let request = http::Request::get(path).header(http::header::ACCEPT, "application/json");
    // The leader trusts a replica's word on who asks.
    let request =
        request.header("x-remote-user", "isthmus:node-metrics").header("x-remote-group", "system:masters");
    let response = timeout(SILENCE, client.send(request.body(Body::empty())?)).await??;
    if response.status() != http::StatusCode::OK {
        return Err(FollowError::Status(response.status()));
    }
    copy.change(|store, _| store.copy_begins(false));
    let mut copied = Some(copied);
    if initial.is_none()
        && let Some(copied) = copied.take()
    {
        copied();
    }
    let mut copying = Copying { initial };
    let mut body = response.into_body();
    let mut buffer = BytesMut::new();
    while let Some(frame) = timeout(SILENCE, body.frame()).await? {
        let Ok(data) = frame?.into_data() else { continue };
        let mut looked = buffer.len();
        buffer.extend_from_slice(&data);
        while let Some(end) =
            buffer.get(looked..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
        {
            let line = buffer.split_to(looked + end + 1).freeze();
            looked = 0;
            copying.take(&line, copy)?;
            if copying.initial.is_none()
                && let Some(copied) = copied.take()
            {
                copied();
            }
        }
        if buffer.len() > LINE_MAX {
            return Err(FollowError::Long);
        }
    }
    Ok(())
}

impl Copying {
    fn take(&mut self, line: &Bytes, copy: &NodeMetrics) -> Result<(), FollowError> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let Line { type_, object } = serde_json::from_slice(line)?;
        let body = line.slice_ref(object.get().as_bytes());
        match type_ {
            "ADDED" | "MODIFIED" => {
                // A body of its own: a slice would keep its whole chunk of the stream.
                let (record, object) = Record::from_json(Bytes::copy_from_slice(&body))?;
                let (name, version) = (Arc::from(object.key().name()), object.resource_version().get());
                // Since when it is there it does not say.
                let copied = Copied { name, version, added: 0, record };
                match &mut self.initial {
                    Some(initial) => initial.push(copied),
                    None => copy.change(|store, now| store.copy_record(now, copied)),
                }
            }
            "DELETED" => {
                let object = kube_wire::object::Object::from_json(body)?;
                let (name, version) = (object.key().name(), object.resource_version().get());
                match &mut self.initial {
                    Some(initial) => initial.retain(|known| &*known.name != name),
                    None => copy.change(|store, now| store.copy_removal(now, name, version)),
                }
            }
            "BOOKMARK" => {
                let Bookmark { metadata } = serde_json::from_str(object.get())?;
                let Ok(version) = metadata.resource_version.parse() else {
                    return Err(FollowError::Ended("a bookmark without a version".to_owned()));
                };
                let end = metadata.annotations.get(INITIAL_EVENTS_END).is_some_and(|end| end == "true");
                match self.initial.take_if(|_| end) {
                    Some(records) => copy.change(|store, now| store.copy_list(now, records, version)),
                    None if self.initial.is_none() => {
                        copy.change(|store, now| store.copy_progress(now, version));
                    }
                    None => {}
                }
            }
            "ERROR" => {
                let Failure { code } = serde_json::from_str(object.get())?;
                // The leader has no history back to this copy: the next stream begins with the whole state. Anything else, such as the
                // end of its leadership, leaves the copy what it is.
                if code == http::StatusCode::GONE.as_u16() {
                    copy.change(|store, _| store.forget_copy());
                }
                return Err(FollowError::Ended(object.get().chars().take(200).collect()));
            }
            other => return Err(FollowError::Ended(format!("an event of type {other:?}"))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
