//! What is said of a request that the API server did not answer: that it cannot be, or that nobody knows whether it was done.

use http::{Method, Uri};
use kube_wire::{request::RequestInfo, resource::GroupVersionResource, status::Status};

use super::written::tries;
use crate::{run::Sharing, upstream::UpstreamError};

/// The answer to what the API server did not answer; without `Retry-After`, or clients would block on it. Clients repeat after 503 what was
/// certainly not done; a write of which that is not certain is another matter, and is for its writer to look into.
pub(super) fn status(changes: bool, error: &UpstreamError) -> Status {
    match error {
        UpstreamError::Unanswered(why) if changes => Status::timeout(format!(
            "edge-hub: the connection to the API server broke after the request had been sent ({why}), so that it may or may not have been done: \
                 read the object before you try again"
        )),
        _ => Status::service_unavailable(format!(
            "edge-hub: {error}; this request cannot be answered without the API server"
        )),
    }
}

/// Whether a request changes something if it is done: a review stores nothing, and neither does a trial.
pub(super) fn changes(method: &Method, uri: &Uri) -> bool {
    let is_review = RequestInfo::parse(method, uri).resource().is_some_and(|path| {
        matches!(&*path.resource.group, "authentication.k8s.io" | "authorization.k8s.io")
    });
    !matches!(*method, Method::GET | Method::HEAD) && !is_review && !tries(uri)
}

/// Whether that answer says that the request may have been done.
pub(super) fn may_be_done(status: &Status) -> bool {
    status.code == 504
}

/// Whether it says that the API server does not have the request, or may not have it.
pub(super) fn is_undelivered(status: &Status) -> bool {
    status.code == 503 || may_be_done(status)
}

/// Adds to an answer why nothing is held of a resource from which it could be answered, if that never is.
pub(super) fn not_kept(sharing: &Sharing, resource: &GroupVersionResource, status: &mut Status) {
    if status.code == 503
        && let Some(why) = sharing.absence(resource)
    {
        status.message = format!("{}: {why}", status.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_may_have_been_done_is_not_said_to_be_undone() {
        let offline = || UpstreamError::Offline("https://cloud: no route".to_owned());
        let broken = || UpstreamError::Broken("the link ended".into());
        let unknown = || UpstreamError::Unanswered("it was reset".into());
        for (changes, error, code, reason) in [
            (false, offline(), 503, "ServiceUnavailable"),
            (false, broken(), 503, "ServiceUnavailable"),
            (false, unknown(), 503, "ServiceUnavailable"),
            (true, offline(), 503, "ServiceUnavailable"),
            (true, broken(), 503, "ServiceUnavailable"),
            (true, unknown(), 504, "Timeout"),
        ] {
            let status = status(changes, &error);
            let what = format!("{changes} {error:?}");
            assert_eq!((status.code, status.reason.as_str()), (code, reason), "{what}");
            assert_eq!(status.retry_after_seconds(), None, "{what}");
            assert_eq!(may_be_done(&status), code == 504, "{what}");
            assert!(is_undelivered(&status), "{what}");
            let says = status.message.contains("may or may not have been done: read the object before");
            assert_eq!(says, code == 504, "{what}: {}", status.message);
        }
        assert!(!is_undelivered(&Status::bad_request("no")));
    }

    #[test]
    fn reads_reviews_and_trials_change_nothing() {
        let pods = "/api/v1/namespaces/a/pods";
        for (method, path, expected) in [
            (Method::GET, pods.to_owned(), false),
            (Method::HEAD, pods.to_owned(), false),
            (Method::POST, pods.to_owned(), true),
            (Method::PUT, format!("{pods}/p"), true),
            (Method::PATCH, format!("{pods}/p?fieldManager=x"), true),
            (Method::DELETE, format!("{pods}/p"), true),
            (Method::POST, format!("{pods}?fieldManager=x&dryRun=All"), false),
            (Method::POST, format!("{pods}/p/eviction"), true),
            (Method::POST, "/api/v1/namespaces/a/serviceaccounts/s/token".to_owned(), true),
            (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews".to_owned(), false),
            (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(), false),
        ] {
            assert_eq!(changes(&method, &path.parse().unwrap()), expected, "{method} {path}");
        }
    }

    #[test]
    fn why_nothing_is_held_is_said() {
        let resource = GroupVersionResource::new;
        let widgets = resource("example.com", "v1", "widgets");
        let mut sharing = Sharing::standard();
        sharing.passed_through.insert(widgets.clone());
        let option = "(`passThroughResources` in the file of --config, --pass-through-resources, or `pass_through_resources` of ConfigMap yurt-hub-cfg)";
        for (resource, expected) in [
            (resource("", "v1", "services"), "no link".to_owned()),
            (resource("", "v1", "events"), "no link: events are never kept".to_owned()),
            (resource("coordination.k8s.io", "v1", "leases"), "no link: leases are never kept".to_owned()),
            (
                resource("metrics.k8s.io", "v1beta1", "nodes"),
                format!(
                    "no link: {} is made by the API server for each request, and never kept",
                    resource("metrics.k8s.io", "v1beta1", "nodes")
                ),
            ),
            (widgets.clone(), format!("no link: {widgets} is passed through {option}, and so never kept")),
        ] {
            let mut status = Status::service_unavailable("no link");
            not_kept(&sharing, &resource, &mut status);
            assert_eq!(status.message, expected);
            assert_eq!(sharing.absence(&resource).is_none(), sharing.keeps(&resource), "{resource}");
        }
        let mut other = Status::bad_request("no");
        not_kept(&sharing, &widgets, &mut other);
        assert_eq!(other.message, "no");
    }
}
