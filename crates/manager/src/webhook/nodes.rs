//! What the webhook asks the API server about nodes, which is the truth: no index of nodes is kept for rare questions.
//!
//! It must not write anything.

use std::error::Error;
use std::time::Duration;

use api::labels::NODE_POOL;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::node_pool::plan::PoolNodes;
use super::pod::plan::NamedNode;

/// How long an answer may take; the API server waits 3 s for the webhook.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);

/// How many nodes are listed at most: enough to say how many there are in all but huge pools.
const LIMIT: u32 = 500;

/// What went wrong with asking about nodes.
pub type NodesError = Box<dyn Error + Send + Sync>;

/// That there was no answer within [`DEADLINE`].
pub(super) fn late() -> NodesError {
    format!("no answer within {} s", DEADLINE.as_secs()).into()
}

/// Who knows for certain which nodes are in which pool.
pub trait Nodes: Send + Sync {
    /// The nodes of `pool` as they are now.
    fn of_pool<'a>(&'a self, pool: &'a str) -> BoxFuture<'a, Result<PoolNodes, NodesError>>;

    /// The pool of node `name` as it is now.
    fn membership<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<NamedNode, NodesError>>;
}

impl Nodes for Client {
    fn of_pool<'a>(&'a self, pool: &'a str) -> BoxFuture<'a, Result<PoolNodes, NodesError>> {
        async move {
            let params = ListParams::default().labels(&format!("{NODE_POOL}={pool}")).limit(LIMIT);
            let list = Api::<Node>::all(self.clone()).list_metadata(&params).await?;
            let more = list.metadata.continue_.is_some_and(|token| !token.is_empty());
            Ok(PoolNodes { names: list.items.iter().map(ResourceExt::name_any).collect(), more })
        }
        .boxed()
    }

    fn membership<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<NamedNode, NodesError>> {
        async move {
            // Webhooks come before validation: what is no name must not become another path.
            if !is_name(name) {
                return Ok(NamedNode::Missing);
            }
            let node = Api::<Node>::all(self.clone()).get_metadata_opt(name).await?;
            Ok(match node {
                None => NamedNode::Missing,
                Some(node) => match node.labels().get(NODE_POOL).filter(|pool| !pool.is_empty()) {
                    Some(pool) => NamedNode::InPool(pool.clone()),
                    None => NamedNode::InNoPool,
                },
            })
        }
        .boxed()
    }
}

/// Whether a node can have this name, as far as a URL is concerned.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_told_from_paths() {
        for name in ["n1", "shop-1.example", "0"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "-n", "a/b", "../pods", "n?x", "n%2f", "N", "n n"] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_nodes_pool_is_its_label() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let name = request.uri().path().strip_prefix("/api/v1/nodes/").unwrap();
            let (code, answer) = match name {
                "member" => (200, json!({ "metadata": { "name": name, "labels": { NODE_POOL: "p" } } })),
                "free" => (200, json!({ "metadata": { "name": name } })),
                "emptied" => (200, json!({ "metadata": { "name": name, "labels": { NODE_POOL: "" } } })),
                "broken" => {
                    (500, json!({ "kind": "Status", "status": "Failure", "code": 500, "message": "no" }))
                }
                _ => {
                    (404, json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" }))
                }
            };
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        });
        let client = Client::new(service, "default");
        for (name, expected) in [
            ("member", NamedNode::InPool("p".to_owned())),
            ("free", NamedNode::InNoPool),
            ("emptied", NamedNode::InNoPool),
            ("gone", NamedNode::Missing),
            ("member/status", NamedNode::Missing),
        ] {
            assert_eq!(client.membership(name).await.unwrap(), expected, "{name}");
        }
        assert!(client.membership("broken").await.is_err());
    }
}
