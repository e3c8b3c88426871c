//! The process's metrics: a registry, what every process reports of itself, and the `OpenMetrics` text.

use std::{fmt, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, metrics::info::Info, registry::Registry};

use crate::{build_info::BUILD, process_metrics::ProcessMetrics};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The prefix of our own metrics.
const PREFIX: &str = "isthmus";

/// The metrics of this process. Filled while it starts, read afterwards.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with `isthmus_build_info` and the `process_…` metrics that Prometheus' clients report everywhere.
    pub fn new() -> Self {
        let mut metrics = Self { registry: Registry::default() };
        metrics.registry.register_collector(Box::new(ProcessMetrics));
        metrics.registry().register(
            "build",
            "The build that is running",
            Info::new(vec![("version", BUILD.version), ("commit", BUILD.commit)]),
        );
        metrics
    }

    /// Where parts register their metrics: names get the prefix `isthmus_`.
    pub fn registry(&mut self) -> &mut Registry {
        self.registry.sub_registry_with_prefix(PREFIX)
    }

    /// Every metric as `OpenMetrics` text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Serves `/metrics` to whoever can reach it: put it behind authorization, or on loopback.
pub fn router(metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(metrics)
}

async fn scrape(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot encode metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn reports_the_build_the_process_and_what_is_registered() {
        let mut metrics = Metrics::new();
        let turns: Counter = Counter::default();
        metrics.registry().register("turns", "Turns", turns.clone());
        turns.inc();
        let text = metrics.encode().unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.split([' ', '{']).next() == Some(name));
            line.and_then(|line| line.rsplit(' ').next())
                .unwrap_or_else(|| panic!("no {name} in {text}"))
                .parse()
                .unwrap()
        };
        assert!((value("isthmus_turns_total") - 1.0).abs() < f64::EPSILON);
        assert!((value("isthmus_build_info") - 1.0).abs() < f64::EPSILON);
        assert!(text.contains(&format!("version=\"{}\"", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_start_time_seconds") > 1.7e9);
        assert!(value("process_open_fds") > 0.0);
        assert!(text.ends_with("# EOF\n"));
    }
}
