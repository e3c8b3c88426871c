//! stub
pub(crate) fn router(m: std::sync::Arc<daemon::metrics::Metrics>, _: kube::Client) -> axum::Router {
    daemon::metrics::router(m)
}
