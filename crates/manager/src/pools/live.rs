//! Asking the API server for one pool.

use std::error::Error;

use api::NodePool;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::DeserializeGuard;
use kube::{Api, Client};

use super::PoolView;

/// What went wrong with a question.
pub type LiveError = Box<dyn Error + Send + Sync>;

/// Who knows for certain whether a pool exists.
pub trait Live: Send + Sync {
    /// The pool `name` as it is now; `None` when there is none.
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<PoolView>, LiveError>>;
}

impl Live for Client {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<PoolView>, LiveError>> {
        async move {
            let pools = Api::<DeserializeGuard<NodePool>>::all(self.clone());
            let pool = pools.get_opt(name).await?;
            Ok(pool.as_ref().map(PoolView::from))
        }
        .boxed()
    }
}
