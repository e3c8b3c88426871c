//! Which paths are those of documents about the API, and of which.

/// The first segment of a path, with a query or without.
fn first(path: &str) -> &str {
    path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default()
}

/// Whether the path names such a document.
pub fn is_document(path: &str) -> bool {
    match first(path) {
        "version" | "healthz" | "livez" | "readyz" | "openapi" | "openid" | ".well-known" => true,
        // /api, /api/v1; /apis, /apis/group, /apis/group/version: anything longer is about objects.
        "api" => path.trim_matches('/').split('/').count() <= 2,
        "apis" => path.trim_matches('/').split('/').count() <= 3,
        _ => false,
    }
}

/// Whether the document says how the API server is.
pub fn is_of_health(path: &str) -> bool {
    matches!(first(path), "healthz" | "livez" | "readyz")
}

/// Whether the document is one of `OpenAPI`.
pub(super) fn is_of_openapi(path: &str) -> bool {
    first(path) == "openapi"
}

/// What such a document is, as a warning says it.
pub(super) fn subject(path: &str) -> &'static str {
    match first(path) {
        "api" | "apis" => "discovery",
        "openapi" => "OpenAPI",
        "version" => "version",
        "openid" | ".well-known" => "OpenID",
        _ => "health",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_about_the_api_and_not_about_objects() {
        for path in [
            "/version",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/openapi/v3/apis/apps/v1",
            "/readyz",
            "/openid/v1/jwks",
        ] {
            assert!(is_document(path), "{path}");
        }
        for path in ["/api/v1/pods", "/apis/apps/v1/deployments", "/metrics", "/", "/logs/x", "/apix"] {
            assert!(!is_document(path), "{path}");
        }
    }
}
