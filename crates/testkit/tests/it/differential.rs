//! The comparer finds what differs and only that.

use futures::future::join_all;
use serde_json::json;
use testkit::api_server::FakeApiServer;
use testkit::client::connection::Endpoint;
use testkit::differential::{Case, Common, Landmarks, Subject, compare, populate};

use crate::support::{config_map, server};

async fn populated(shift: u64) -> (FakeApiServer, Endpoint, Landmarks, Subject) {
    let server = server().await;
    // So that versions differ.
    for n in 0..shift {
        server.cluster().create("secrets", config_map("z", &format!("s-{n}"), 0)).unwrap();
    }
    let subject = Subject {
        root: "/api/v1".to_owned(),
        resource: "configmaps".to_owned(),
        namespaced: true,
        template: json!({"data": {"a": "b"}}),
    };
    let endpoint = Endpoint::plain(server.address());
    let landmarks = populate(&endpoint, &subject).await.unwrap();
    server.compact(landmarks.old - 6);
    (server, endpoint, landmarks, subject)
}

#[tokio::test]
async fn servers_of_the_same_writes_agree_and_others_do_not() {
    let (_one, left, ours, subject) = populated(0).await;
    let (other, right, theirs, _) = populated(3).await;
    let corners =
        Case::corners(false, &["resourceVersion", "resourceVersionMatch", "limit", "continue", "$accept"]);
    let pairs = Case::pairs(false, 1).into_iter().chain(Case::pairs(true, 1));
    let cases: Vec<Case> = corners.into_iter().step_by(7).chain(pairs).collect();
    let compared =
        cases.iter().map(|case| compare(case, &subject, (&left, &ours), (&right, &theirs), Common::Writes));
    for difference in join_all(compared).await {
        let difference = difference.unwrap();
        assert!(difference.is_none(), "{}", difference.unwrap());
    }
    other.cluster().merge_patch("configmaps", "dt-a/o-0", &json!({"data": {"a": "c"}})).unwrap();
    let case = Case::nth(false, 0);
    assert!(
        compare(&case, &subject, (&left, &ours), (&right, &theirs), Common::Writes).await.unwrap().is_some()
    );
}
