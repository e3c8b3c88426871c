//! Long lists: made while they are sent, the same bytes in whatever pieces, and never cut short without a word.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use aggregated_api::{
    AggregatedApi, Draft, Expected, Limits, MemoryStorage, Objects, Page, STILL, Storage, StorageError, User,
    Watcher,
};
use axum::{Router, response::Response};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::{StreamExt as _, future::ready};
use http::header;
use kube_wire::{
    list_options::{ListRequest, WatchRequest},
    object::Object,
    resource::ObjectKey,
    resource_version::ResourceVersion,
    status::Status,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use watch_cache::Scope;

use crate::api::{Everybody, GADGETS, gadgets, get};

/// How many objects there are, of about ten kilobytes each.
const COUNT: usize = 500;

/// Objects that are made when they are asked for, and counted; one may fail to be made.
struct Maker {
    made: AtomicUsize,
    fails_at: usize,
}

struct Made(Arc<Maker>);

fn object(index: usize) -> Arc<Object> {
    let text = json!({
        "apiVersion": "test.isthmus.dev/v1", "kind": "Gadget",
        "metadata": { "name": format!("g{index:04}"), "namespace": "n", "resourceVersion": (index + 1).to_string() },
        "spec": { "color": "red", "size": index % 10 }, "status": { "phase": "x".repeat(10_000) },
    });
    Arc::new(Object::from_json(text.to_string().into()).unwrap())
}

impl Objects for Made {
    fn count(&self) -> usize {
        COUNT
    }

    fn object(&self, index: usize) -> Result<Arc<Object>, StorageError> {
        if index == self.0.fails_at {
            return Err(StorageError::Refused(Box::new(Status::internal_error("it is broken"))));
        }
        self.0.made.fetch_add(1, Relaxed);
        Ok(object(index))
    }
}

/// Lists what a [`Maker`] makes, or all of it at once.
struct Lists {
    maker: Arc<Maker>,
    at_once: bool,
    rest: MemoryStorage,
}

impl Storage for Lists {
    fn get<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Option<Arc<Object>>, StorageError>> {
        self.rest.get(key)
    }

    fn list<'a>(&'a self, _: &'a Scope, _: &'a ListRequest) -> BoxFuture<'a, Result<Page, StorageError>> {
        let objects: Box<dyn Objects> = if self.at_once {
            Box::new((0..COUNT).map(object).collect::<Vec<_>>())
        } else {
            Box::new(Made(Arc::clone(&self.maker)))
        };
        let resource_version = ResourceVersion::new(COUNT as u64).unwrap();
        let page =
            Page { objects, resource_version, continue_token: Some("more".to_owned()), remaining: Some(7) };
        ready(Ok(page)).boxed()
    }

    fn watch<'a>(
        &'a self,
        user: &'a User,
        scope: &'a Scope,
        request: &'a WatchRequest,
    ) -> BoxFuture<'a, Result<Box<dyn Watcher>, StorageError>> {
        self.rest.watch(user, scope, request)
    }

    fn version(&self) -> watch::Receiver<u64> {
        self.rest.version()
    }

    fn write<'a>(
        &'a self,
        key: &'a ObjectKey,
        expected: Expected,
        object: Draft,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>> {
        self.rest.write(key, expected, object)
    }

    fn remove<'a>(
        &'a self,
        key: &'a ObjectKey,
        expected: ResourceVersion,
    ) -> BoxFuture<'a, Result<Arc<Object>, StorageError>> {
        self.rest.remove(key, expected)
    }
}

fn lists(fails_at: usize, at_once: bool) -> (Router, Arc<Maker>) {
    let maker = Arc::new(Maker { made: AtomicUsize::new(0), fails_at });
    (of_lists(Arc::clone(&maker), at_once).router(), maker)
}

fn of_lists(maker: Arc<Maker>, at_once: bool) -> AggregatedApi {
    let storage = Lists { maker, at_once, rest: MemoryStorage::new() };
    AggregatedApi::new().resource(gadgets(), Arc::new(storage)).authorizer(Arc::new(Everybody))
}

/// An API whose lists are long; a GET shows what was created.
pub(crate) fn long_lists() -> AggregatedApi {
    of_lists(Arc::new(Maker { made: AtomicUsize::new(0), fails_at: usize::MAX }), false)
}

/// Reads an answer piece by piece; `look` sees how many bytes have come after each.
async fn read(response: Response, mut look: impl FnMut(usize)) -> Result<Vec<u8>, String> {
    let mut body = response.into_body().into_data_stream();
    let mut whole = Vec::new();
    while let Some(piece) = body.next().await {
        let piece: Bytes = piece.map_err(|error| error.to_string())?;
        whole.extend_from_slice(&piece);
        look(whole.len());
    }
    Ok(whole)
}

const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn a_list_is_not_held_whole_and_says_the_same() {
    for (accept, include) in [
        ("application/json", ""),
        (METADATA, ""),
        (TABLE, "?includeObject=Object"),
        (TABLE, "?includeObject=None"),
    ] {
        let path = format!("{GADGETS}{include}");
        let (router, maker) = lists(COUNT, false);
        let response = get(&router, &path, &[("accept", accept)]).await;
        assert_eq!(response.status(), 200);
        let told = response.headers().contains_key(header::CONTENT_LENGTH);
        let mut ahead = 0;
        let whole = read(response, |read| {
            let is_of_wholes = include != "?includeObject=None" && accept != METADATA;
            if is_of_wholes {
                ahead = ahead.max(maker.made.load(Relaxed).saturating_sub(read / 10_000));
            }
        })
        .await
        .unwrap();
        assert_eq!(maker.made.load(Relaxed), COUNT, "each is made once");
        // What is looked at before the answer begins, and one.
        assert!(ahead <= 15, "{accept}{include}: {ahead} were made and not sent");
        let (router, _) = lists(COUNT, true);
        let expected = read(get(&router, &path, &[("accept", accept)]).await, |_| {}).await.unwrap();
        assert!(whole == expected, "{accept}{include}");
        let is_long = whole.len() > 128 << 10;
        assert_ne!(told, is_long, "the length of what is long is not known when it begins");
        let value: Value = serde_json::from_slice(&whole).unwrap();
        let items = value["items"].as_array().or(value["rows"].as_array()).unwrap();
        assert_eq!(items.len(), COUNT);
        assert_eq!(
            value["metadata"],
            json!({"continue": "more", "remainingItemCount": 7, "resourceVersion": "500"})
        );
        assert!(whole.ends_with(b"}\n"));
        // Compressed it is the same.
        let compressed = [("accept", accept), ("accept-encoding", "gzip")];
        let response = get(&router, &path, &compressed).await;
        assert_eq!(response.headers().contains_key(header::CONTENT_ENCODING), is_long, "{accept}{include}");
        if is_long {
            let packed = read(response, |_| {}).await.unwrap();
            let mut unpacked = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked)
                .unwrap();
            assert!(unpacked == whole, "{accept}{include}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_made_is_an_error_before_the_answer_begins_and_ends_it_after() {
    for accept in ["application/json", TABLE] {
        let path = format!("{GADGETS}?includeObject=Object");
        let (router, _) = lists(3, false);
        let response = get(&router, &path, &[("accept", accept)]).await;
        assert_eq!(response.status(), 500, "{accept}");
        let status: Value = serde_json::from_slice(&read(response, |_| {}).await.unwrap()).unwrap();
        assert!(status["message"].as_str().unwrap().contains("it is broken"), "{status}");
        for encoding in ["identity", "gzip"] {
            let (router, maker) = lists(300, false);
            let response = get(&router, &path, &[("accept", accept), ("accept-encoding", encoding)]).await;
            assert_eq!(response.status(), 200, "{accept}");
            assert!(
                read(response, |_| {}).await.is_err(),
                "{accept}, {encoding}: it ends as if it were whole"
            );
            assert_eq!(maker.made.load(Relaxed), 300);
        }
    }
}

#[tokio::test]
async fn what_is_short_is_indented_for_people() {
    let router = crate::api::api().router();
    let gadget = crate::api::gadget("a", &json!({ "color": "red" }));
    crate::api::ask(&router, "POST", GADGETS, &gadget).await;
    let object = format!("{GADGETS}/a");
    for (path, headers, is_indented) in [
        (object.clone(), ("user-agent", "kubectl/v1.36.3"), false),
        (object.clone(), ("user-agent", "curl/8.5.0"), true),
        (format!("{object}?pretty=false"), ("user-agent", "curl/8.5.0"), false),
        (format!("{object}?pretty=1"), ("accept", "application/json"), true),
        (format!("{object}?pretty=yes"), ("accept", "application/json"), false),
        (object, ("accept", "application/json;pretty=1"), true),
        (format!("{GADGETS}?pretty=true"), ("accept", "application/json"), true),
        (format!("{GADGETS}?pretty=true"), ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"), true),
    ] {
        let response = get(&router, &path, &[headers]).await;
        let length = response.headers()[header::CONTENT_LENGTH].to_str().unwrap().to_owned();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(
            (text.starts_with("{\n  \""), text.ends_with('\n')),
            (is_indented, !is_indented),
            "{path} {headers:?}"
        );
        assert_eq!(length, text.len().to_string());
        assert!(serde_json::from_str::<Value>(&text).unwrap().is_object());
    }
}

#[tokio::test]
async fn a_refusal_is_written_as_the_client_likes_it() {
    let router = crate::api::api().router();
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, query, media_type, status) in [
        ("application/yaml", "/none", "application/yaml", 404),
        ("application/yaml", "?labelSelector=(", "application/yaml", 400),
        ("application/yaml", "?watch=1", "application/yaml", 406),
        ("application/json", "/none", "application/json", 404),
        // It is no table, nor anything else that nobody can write.
        (table, "/none", "application/json", 404),
        (&format!("{table},application/yaml"), "/none", "application/yaml", 404),
        ("text/plain", "/none", "application/json", 406),
    ] {
        let response = get(&router, &format!("{GADGETS}{query}"), &[("accept", accept)]).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], media_type, "{accept} {query}");
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let said: Value = serde_saphyr::from_slice(&body).unwrap();
        assert_eq!((&said["kind"], &said["code"]), (&json!("Status"), &json!(status)), "{accept} {query}");
    }
}

#[tokio::test]
async fn the_rest_of_a_list_comes_whole_where_any_version_will_do() {
    let router = crate::api::api().router();
    for name in ["a", "b", "c"] {
        crate::api::ask(&router, "POST", GADGETS, &crate::api::gadget(name, &json!({}))).await;
    }
    let (_, first) = crate::api::ask(&router, "GET", &format!("{GADGETS}?limit=1"), &Value::Null).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    for (query, status, names) in [
        ("", 200, &["b"][..]),
        ("&resourceVersion=0", 200, &["b", "c"]),
        ("&resourceVersion=7", 400, &[]),
        ("&resourceVersion=x", 400, &[]),
        ("&resourceVersion=0&resourceVersionMatch=NotOlderThan", 422, &[]),
    ] {
        let path = format!("{GADGETS}?limit=1&continue={token}{query}");
        let (code, body) = crate::api::ask(&router, "GET", &path, &Value::Null).await;
        let items = body["items"].as_array().into_iter().flatten();
        let found: Vec<_> = items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!((code, &found[..]), (status, names), "{query}: {body}");
        let goes_on = body["metadata"]["continue"].as_str().is_some_and(|token| !token.is_empty());
        assert_eq!(goes_on, query.is_empty(), "{query}");
    }
}

/// A list holds what it shows: it counts until it is sent, and no longer than its reader goes on.
#[tokio::test(start_paused = true)]
async fn a_list_has_its_room_until_it_is_sent() {
    let router = long_lists().limits(Limits { sending: 1, ..Limits::default() }).router();
    let list = || get(&router, GADGETS, &[]);
    for accept in ["application/json", "application/yaml", TABLE] {
        let first = get(&router, GADGETS, &[("accept", accept)]).await;
        assert_eq!((first.status().as_u16(), list().await.status().as_u16()), (200, 429), "{accept}");
        assert!(read(first, |_| {}).await.is_ok());
        // One that is given up.
        drop(list().await);
    }
    // Slowly, and on.
    let slow = list().await;
    let mut body = slow.into_body().into_data_stream();
    for _ in 0..10 {
        tokio::time::sleep(STILL / 2).await;
        assert!(body.next().await.unwrap().is_ok());
        assert_eq!(list().await.status(), 429);
    }
    tokio::time::sleep(STILL + Duration::from_secs(1)).await;
    assert!(read(list().await, |_| {}).await.is_ok(), "the other one stands still");
    assert!(body.next().await.unwrap().is_err(), "what is cut off does not end as if it was whole");
    assert!(body.next().await.is_none());
}
