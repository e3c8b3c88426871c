//! What one user may hold of what all use: nobody keeps the others out.

use std::sync::Arc;

use aggregated_api::{Limits, STILL};
use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use axum::response::Response;
use futures::StreamExt as _;
use serde_json::json;

use crate::api::{GADGETS, gadget, get, send};
use crate::limits::Believe;
use crate::lists::long_lists;

/// An API with long lists and one object, of everybody who says who they are.
async fn served(limits: Limits) -> Router {
    let router = long_lists().authenticator(Arc::new(Believe)).limits(limits).router();
    let create = Request::post(GADGETS).header("content-type", "application/json");
    let body = gadget("a", &json!({ "color": "red" })).to_string();
    assert_eq!(send(&router, create.body(body.into()).unwrap()).await.status(), 201);
    router
}

async fn of(router: &Router, user: &str, path: &str) -> Response {
    get(router, path, &[("x-remote-user", user)]).await
}

async fn status(router: &Router, user: &str, path: &str) -> u16 {
    of(router, user, path).await.status().as_u16()
}

/// Begins as many lists as there is room for, and takes a piece of each.
async fn slow_lists(router: &Router, user: &str) -> Vec<BodyDataStream> {
    let mut lists = Vec::new();
    loop {
        // Of what program it says to be, nothing depends.
        let agent = format!("program-{}", lists.len());
        let list = get(router, GADGETS, &[("x-remote-user", user), ("user-agent", &agent)]).await;
        if list.status() != 200 {
            assert_eq!(
                (list.status().as_u16(), &list.headers()["retry-after"]),
                (429, &"1".parse().unwrap())
            );
            return lists;
        }
        let mut body = list.into_body().into_data_stream();
        assert!(body.next().await.unwrap().is_ok());
        lists.push(body);
    }
}

#[tokio::test(start_paused = true)]
async fn who_holds_as_many_slow_lists_as_it_may_keeps_nobody_out() {
    let router = served(Limits::default()).await;
    let object = format!("{GADGETS}/a");
    let mut slow = slow_lists(&router, "slow").await;
    assert_eq!(slow.len(), 100, "a quarter of the places for lists");
    // For as long as it likes.
    for _ in 0..5 {
        tokio::time::sleep(STILL * 59 / 60).await;
        for body in &mut slow {
            assert!(body.next().await.unwrap().is_ok());
        }
        let list = of(&router, "scheduler", GADGETS).await;
        assert_eq!(list.status(), 200);
        assert!(axum::body::to_bytes(list.into_body(), 64 << 20).await.is_ok());
        assert_eq!(status(&router, "scheduler", &object).await, 200);
        assert_eq!(
            status(&router, "slow", &object).await,
            200,
            "a list that is sent takes no place of others"
        );
        assert_eq!(status(&router, "slow", GADGETS).await, 429);
    }
    slow.pop();
    assert_eq!(status(&router, "slow", GADGETS).await, 200);
}

#[tokio::test]
async fn lists_that_are_sent_leave_all_places_to_other_requests() {
    let router = served(Limits { reading: 1, sending: 1, ..Limits::default() }).await;
    let slow = slow_lists(&router, "slow").await;
    assert_eq!(
        (slow.len(), status(&router, "scheduler", GADGETS).await),
        (1, 429),
        "there is one place for lists"
    );
    assert_eq!(status(&router, "scheduler", &format!("{GADGETS}/a")).await, 200);
}

#[tokio::test]
async fn a_few_who_take_all_that_they_get_leave_some() {
    let router = served(Limits::default()).await;
    let mut held = Vec::new();
    for number in 0..10 {
        held.push(slow_lists(&router, &format!("slow-{number}")).await);
    }
    assert_eq!(status(&router, "scheduler", GADGETS).await, 200);
    // Who shows no credential is one with all others who show none.
    let strangers = slow_lists(&router, "system:anonymous").await;
    assert!(!strangers.is_empty());
    assert_eq!(get(&router, GADGETS, &[]).await.status(), 429);
    assert_eq!(status(&router, "scheduler", GADGETS).await, 200);
}

#[tokio::test]
async fn nothing_is_deleted_for_whose_answer_there_is_no_room() {
    let router = served(Limits { sending: 1, ..Limits::default() }).await;
    let slow = slow_lists(&router, "slow").await;
    let all = Request::delete(GADGETS).header("x-remote-user", "admin").body(Body::empty()).unwrap();
    assert_eq!(send(&router, all).await.status(), 429);
    assert_eq!(status(&router, "admin", &format!("{GADGETS}/a")).await, 200);
    drop(slow);
}
