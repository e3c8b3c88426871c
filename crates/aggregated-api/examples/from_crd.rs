//! Serves the resource of a custom resource definition (JSON, first argument) from memory, on a port of this machine (second argument), to everybody.

use std::sync::Arc;

use aggregated_api::{
    AggregatedApi, Attributes, Authorizer, Decision, MemoryStorage, ResourceInfo,
    authorize::AuthorizationError,
};
use futures::future::{self, BoxFuture, FutureExt};

/// For a machine of one's own only.
struct Everybody;

impl Authorizer for Everybody {
    fn authorize<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Result<Decision, AuthorizationError>> {
        future::ready(Ok(Decision::Allowed)).boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which file?")?;
    let port: u16 = arguments.next().ok_or("which port?")?.parse()?;
    let definition: serde_json::Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let info = ResourceInfo::from_crd(&definition, "v1")?;
    let api =
        AggregatedApi::new().resource(info, Arc::new(MemoryStorage::new())).authorizer(Arc::new(Everybody));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, api.router()).await?;
    Ok(())
}
