//! The first list of a subscription, page by page. Pages that arrived are kept when the link breaks, and the next one is asked for
//! when it is back; nothing of it is shown before it is whole.

use std::{io::Write, sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use flate2::write::GzDecoder;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube_wire::{
    frame::read::{ITEM_MAX, ListEnd, ListReader},
    object::{Encoding, Object},
    resource::ObjectKey,
    resource_version::ResourceVersion,
    status::Status,
};

use tokio::time::Instant;

use super::Ended;
use crate::{
    subscriptions::{Key, Subscription},
    upstream::{Answer, Credential, USER_AGENT, Upstream, UpstreamError},
};

/// Objects a page: what a cut costs at most. Large enough that pages cost no round trips to speak of; and the least. An API server ends an answer that takes
/// longer than a minute, so that over a thin line one would never come as a whole: after each that broke off the next is half as long.
const PAGE: (usize, usize) = (2000, 10);

/// After a page that came so soon the next one may be twice as long again.
const QUICK: Duration = Duration::from_secs(10);

/// A list on its way.
pub(super) struct Listing {
    objects: Vec<Arc<Object>>,
    /// Objects of the next page.
    page: usize,
    /// How many pages have come.
    pages: usize,
    /// The token for the next page; `None` before the first.
    next: Option<String>,
    whole: Option<ResourceVersion>,
    /// When the first page was asked for, whose version all have.
    began: Option<Instant>,
}

impl Default for Listing {
    fn default() -> Self {
        Self { objects: Vec::new(), page: PAGE.0, pages: 0, next: None, whole: None, began: None }
    }
}

impl Listing {
    /// Fetches pages until the list is whole. After [`Ended::Link`] it may be called again and goes on.
    pub(super) async fn fetch(
        &mut self,
        upstream: &Upstream,
        subscription: &Subscription,
        credential: &Credential,
    ) -> Result<(), Ended> {
        while self.whole.is_none() {
            if self.next.is_none() {
                self.began = Some(Instant::now());
                subscription.list_begins();
            }
            let asked = Instant::now();
            let response = self.ask(upstream, subscription, credential).await?;
            subscription.is_answered();
            let (objects, end) = read(subscription, response).await?;
            self.pages += 1;
            if asked.elapsed() < QUICK {
                self.page = (self.page * 2).min(PAGE.0);
            }
            self.objects.extend(objects.into_iter().map(Arc::new));
            if let Some(kind) = end.kind.strip_suffix("List") {
                subscription.set_kind(kind);
            }
            if end.continue_token.is_empty() {
                self.whole = Some(end.resource_version);
            } else {
                self.next = Some(end.continue_token);
            }
        }
        Ok(())
    }

    /// A page broke off over a link that stayed.
    pub(super) fn broke_off(&mut self) {
        self.page = (self.page / 2).max(PAGE.1);
    }

    /// How many pages have come.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// Asks for the next page.
    async fn ask(
        &self,
        upstream: &Upstream,
        subscription: &Subscription,
        credential: &Credential,
    ) -> Result<Response<Answer>, Ended> {
        let mut path = subscription.key().path_with(&format!("limit={}", self.page));
        if let Some(next) = &self.next {
            path.push_str("&continue=");
            path.push_str(next);
        }
        let request = Request::get(path)
            .header(header::ACCEPT, accept(subscription, false))
            .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))
            .header(header::USER_AGENT, USER_AGENT)
            .body(Body::empty())
            .map_err(|error| Ended::Unreadable(error.to_string()))?;
        let response = upstream.send(credential, request).await?;
        if response.status() == StatusCode::OK { Ok(response) } else { Err(refused(response).await) }
    }

    /// Whether any page has come.
    pub(super) fn has_begun(&self) -> bool {
        self.next.is_some() || self.whole.is_some()
    }

    /// The objects, the version, and when it was asked for, if the list is whole.
    pub(super) fn finish(self) -> Option<(Vec<Arc<Object>>, ResourceVersion, Instant)> {
        Some((self.objects, self.whole?, self.began?))
    }
}

/// The object of this name, of those that the subscription selects.
pub(super) fn by_name(key: &Key, object: &ObjectKey) -> String {
    let name = format!("metadata.name={}", object.name());
    let fields = if key.fields.is_empty() { name } else { format!("{},{name}", key.fields) };
    let namespace = if key.namespace.is_empty() { object.namespace() } else { &key.namespace };
    Key { namespace: namespace.into(), fields: fields.into(), ..key.clone() }.path_with("limit=1")
}

/// Reads a page.
async fn read(
    subscription: &Subscription,
    response: Response<Answer>,
) -> Result<(Vec<Object>, ListEnd), Ended> {
    let encoding = encoding(response.headers().get(header::CONTENT_TYPE));
    let gzip = response.headers().get(header::CONTENT_ENCODING).is_some_and(|value| value == "gzip");
    let mut inflate = gzip.then(|| GzDecoder::new(Vec::new()));
    let mut reader = ListReader::new(encoding, ITEM_MAX);
    let mut objects = Vec::new();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Ended::Link(UpstreamError::Broken(Box::new(error))))?;
        let Ok(data) = frame.into_data() else { continue };
        subscription.traffic().fetched(data.len());
        let push = match &mut inflate {
            None => reader.push(&data, &mut objects),
            Some(inflate) => {
                inflate.write_all(&data).map_err(|error| Ended::Unreadable(error.to_string()))?;
                let plain = std::mem::take(inflate.get_mut());
                reader.push(&plain, &mut objects)
            }
        };
        push.map_err(|error| Ended::Unreadable(error.to_string()))?;
    }
    if let Some(inflate) = inflate {
        let rest = inflate.finish().map_err(|error| Ended::Unreadable(error.to_string()))?;
        reader.push(&rest, &mut objects).map_err(|error| Ended::Unreadable(error.to_string()))?;
    }
    let end = reader.finish().map_err(|error| Ended::Unreadable(error.to_string()))?;
    Ok((objects, end))
}

/// The cheapest encoding in which the objects can be held.
pub(super) fn accept(subscription: &Subscription, watch: bool) -> HeaderValue {
    HeaderValue::from_static(match (subscription.is_protobuf(), watch) {
        (true, false) => "application/vnd.kubernetes.protobuf",
        (true, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        (false, _) => "application/json",
    })
}

/// The encoding of an answer.
pub(super) fn encoding(content_type: Option<&HeaderValue>) -> Encoding {
    let protobuf = content_type
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("application/vnd.kubernetes.protobuf"));
    if protobuf { Encoding::Protobuf } else { Encoding::Json }
}

/// Why the server refused.
pub(super) async fn refused(response: Response<Answer>) -> Ended {
    let code = response.status();
    let encoding = encoding(response.headers().get(header::CONTENT_TYPE));
    let body = match Limited::new(response.into_body(), 1 << 20).collect().await {
        Ok(body) => body.to_bytes(),
        // Its code says enough.
        Err(error) if error.is::<LengthLimitError>() => Bytes::new(),
        // That says nothing of what is held.
        Err(error) => return Ended::Link(UpstreamError::Broken(error)),
    };
    let status = match encoding {
        Encoding::Json => Status::from_json(&body),
        Encoding::Protobuf => Status::from_protobuf(&body),
    };
    match status {
        Some(status) if status.is_expired() => Ended::Expired,
        Some(status) => Ended::Refused(Box::new(status)),
        None if code == StatusCode::GONE => Ended::Expired,
        // Of a group that it does not have the server says so in plain text.
        None if code == StatusCode::NOT_FOUND => Ended::Refused(Box::new(Status::no_such_path())),
        None => Ended::Refused(Box::new(Status::internal_error(&format!("the API server answered {code}")))),
    }
}
