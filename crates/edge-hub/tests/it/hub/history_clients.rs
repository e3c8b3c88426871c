//! The clients of a random history: informers of a built-in and of a custom resource, in the ways that informers have.

use std::time::Duration;

use testkit::client::{ClientOptions, Recorder, TestClient, connection::Endpoint};

use super::site::{SERVICES, WIDGETS};

/// What the test kit calls the custom resource.
pub(super) const WIDGET_ID: &str = "widgets.example.com";

/// Starts them; each is with the resource that it is of.
pub(super) fn start(
    endpoint: impl Fn() -> Endpoint,
    generation: usize,
    backoff: Duration,
    recorder: &Recorder,
) -> Vec<(&'static str, TestClient)> {
    let variants = [
        ("services", "plain", SERVICES, "", None, false),
        ("services", "odd", SERVICES, "n=odd", Some(2), false),
        ("services", "streaming", "/api/v1/namespaces/a/services", "n=even", None, true),
        (WIDGET_ID, "widgets", WIDGETS, "", Some(2), false),
        (WIDGET_ID, "streaming", WIDGETS, "n!=even", None, true),
    ];
    variants
        .into_iter()
        .map(|(id, name, path, labels, page_size, watch_list)| {
            let mut options = ClientOptions::new(&format!("{name} {generation}"), path);
            labels.clone_into(&mut options.labels);
            options.page_size = page_size;
            options.watch_list = watch_list;
            options.backoff = backoff;
            (id, TestClient::start(endpoint(), options, recorder).unwrap())
        })
        .collect()
}
