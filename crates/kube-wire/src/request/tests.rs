use http::{Method, Uri};
use proptest::prelude::*;

use super::{ApiPath, RequestInfo, ResourcePath};

/// `verb group/version/resource namespace name subresource`, with `-` for what is not there.
fn told(method: &str, url: &str) -> String {
    let info = RequestInfo::parse(&method.parse().unwrap(), &url.parse().unwrap());
    match info.path {
        ApiPath::NonResource(path) => format!("{:?} {path}", info.verb),
        ApiPath::Resource(ResourcePath { resource, namespace, name, subresource, verb_in_path: _ }) => {
            let or = |text: Option<Box<str>>| text.unwrap_or_else(|| "-".into());
            format!("{:?} {resource} {} {} {}", info.verb, or(namespace), or(name), or(subresource))
        }
    }
}

#[test]
fn requests_are_read_as_the_api_server_reads_them() {
    for (method, url, expected) in [
        ("GET", "/api/v1/namespaces", "List /v1/namespaces - - -"),
        ("GET", "/api/v1/namespaces/other", "Get /v1/namespaces other other -"),
        ("GET", "/api/v1/namespaces/other/pods", "List /v1/pods other - -"),
        ("GET", "/api/v1/namespaces/other/pods/foo", "Get /v1/pods other foo -"),
        ("HEAD", "/api/v1/namespaces/other/pods/foo", "Get /v1/pods other foo -"),
        ("GET", "/api/v1/pods/", "List /v1/pods - - -"),
        ("HEAD", "/api/v1/pods", "List /v1/pods - - -"),
        ("GET", "/api/v1/proxy/namespaces/other/pods/foo/sub/path", "Other /v1/pods other foo -"),
        ("GET", "/api/v1/watch/pods", "Watch /v1/pods - - -"),
        ("GET", "/api/v1/watch/namespaces/other/pods/foo", "Watch /v1/pods other foo -"),
        ("GET", "/api/v1/pods?watch=true", "Watch /v1/pods - - -"),
        ("GET", "/api/v1/pods?watch=false", "List /v1/pods - - -"),
        ("GET", "/api/v1/pods?watch=", "Watch /v1/pods - - -"),
        ("GET", "/api/v1/namespaces/other/pods?watch=1", "Watch /v1/pods other - -"),
        ("GET", "/api/v1/namespaces/other/pods?watch=0", "List /v1/pods other - -"),
        ("GET", "/api/v1/namespaces/other/pods/foo/status", "Get /v1/pods other foo status"),
        ("GET", "/api/v1/namespaces/other/pods/foo/proxy/subpath", "Get /v1/pods other foo proxy"),
        ("PUT", "/api/v1/namespaces/other/finalize", "Update /v1/namespaces other other finalize"),
        ("PUT", "/api/v1/namespaces/other/status", "Update /v1/namespaces other other status"),
        ("PATCH", "/api/v1/namespaces/other/pods/foo", "Patch /v1/pods other foo -"),
        ("DELETE", "/api/v1/namespaces/other/pods/foo", "Delete /v1/pods other foo -"),
        ("POST", "/api/v1/namespaces/other/pods", "Create /v1/pods other - -"),
        ("DELETE", "/api/v1/nodes", "DeleteCollection /v1/nodes - - -"),
        (
            "DELETE",
            "/apis/extensions/v1/namespaces/other/pods",
            "DeleteCollection extensions/v1/pods other - -",
        ),
        (
            "POST",
            "/apis/extensions/v1beta3/namespaces/other/pods",
            "Create extensions/v1beta3/pods other - -",
        ),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dfoo", "List /v1/pods - foo -"),
        (
            "GET",
            "/api/v1/pods?watch=1&fieldSelector=metadata.name=foo,spec.nodeName=b",
            "Watch /v1/pods - foo -",
        ),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name!%3Dfoo", "List /v1/pods - - -"),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name=..", "List /v1/pods - - -"),
        ("GET", "/api/v1/pods?watch=1&limit=x&fieldSelector=metadata.name=foo", "Watch /v1/pods - - -"),
        ("GET", "/api/v1/namespaces/a%2Bb/pods/c+d", "Get /v1/pods a+b c+d -"),
        ("GET", "/api/v1", "Get /api/v1"),
        ("GET", "/apis/apps/v1", "Get /apis/apps/v1"),
        ("GET", "/", "Get /"),
        ("POST", "/healthz", "Other /healthz"),
        ("GET", "/foo/v1/pods", "Get /foo/v1/pods"),
        ("GET", "/api/v1/watch", "Get /api/v1/watch"),
        ("GET", "/api/v1/pods//", "List /v1/pods - - -"),
        ("GET", "//api/v1/pods", "Get //api/v1/pods"),
        ("DELETE", "/api//v1/pods", "Other /api//v1/pods"),
        ("GET", "/api/v1//pods", "Get /api/v1//pods"),
        ("GET", "/apis//v1/pods", "Get /apis//v1/pods"),
        ("GET", "/api/v1/namespaces//pods", "Get /api/v1/namespaces//pods"),
        ("GET", "/api/v1/namespaces/a//pods", "Get /api/v1/namespaces/a//pods"),
        ("GET", "/api/v1/namespaces/a/pods//status", "Get /api/v1/namespaces/a/pods//status"),
        ("GET", "/api/v1/watch//pods", "Get /api/v1/watch//pods"),
        ("GET", "/api/v1/./pods", "Get /api/v1/./pods"),
        ("GET", "/api/v1/namespaces/a/../pods", "Get /api/v1/namespaces/a/../pods"),
        ("GET", "/api/v1/%2e%2e/pods", "Get /api/v1/../pods"),
        ("GET", "/api/v1/namespaces/a/pods/..", "Get /api/v1/namespaces/a/pods/.."),
        ("GET", "/api/v1/namespaces/a/pods/foo/proxy//x/../y", "Get /v1/pods a foo proxy"),
        ("GET", "/api/v1/proxy/nodes/n//x/..", "Other /v1/nodes - n -"),
    ] {
        assert_eq!(told(method, url), expected, "{method} {url}");
    }
}

proptest! {
    #[test]
    fn arbitrary_paths_are_read(path in "(/|api|apis|v1|watch|namespaces|%2F|%zz|[a-z]){0,9}", query in "[a-z=&%]{0,20}") {
        if let Ok(uri) = format!("/{path}?{query}").parse::<Uri>() {
            let _ = RequestInfo::parse(&Method::GET, &uri);
            let _ = RequestInfo::parse(&Method::DELETE, &uri).resource();
        }
    }
}
