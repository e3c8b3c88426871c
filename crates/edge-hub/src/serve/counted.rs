//! How much goes out of what is held, for the metrics and for `edge-hub status`.

use std::sync::Arc;

use axum::body::Body;
use http_body_util::BodyExt as _;

use crate::{hub::Hub, subscriptions::Subscription};

/// Counts the bytes of an answer as they go out.
pub(super) fn counted(body: Body, hub: &Hub, subscription: &Arc<Subscription>) -> Body {
    let count = counter(hub, subscription);
    Body::new(body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref() {
            count(data.len());
        }
        frame
    }))
}

/// Counts bytes that go out of what is held.
pub(super) fn counter(
    hub: &Hub,
    subscription: &Arc<Subscription>,
) -> impl Fn(usize) + Send + 'static + use<> {
    let (meters, subscription) = (hub.meters.clone(), subscription.clone());
    move |length| {
        meters.held(length);
        subscription.traffic().served(length);
    }
}
