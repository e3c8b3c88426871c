//! GET and LIST.

use std::time::Duration;

use axum::response::Response;
use kube_wire::{
    accept::Answer,
    continue_token,
    list_options::{ListRead, ListRequest},
    resource_version::ResourceVersion,
    status::Status,
};
use tokio::time::timeout;

use super::Call;
use crate::{
    answer::Form,
    options,
    storage::{Page, StorageError},
};

/// How long a version that is not there yet is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn get(call: &Call<'_>) -> Result<Response, Status> {
    let form = Form::negotiate(call.headers, call.query, Answer::Object)?;
    if let Some(version) = options::at_least(call.query)? {
        wait(call, version).await?;
    }
    let object = call.current().await?;
    Ok(form.object(call.served, &object))
}

/// Waits for a version to be there; status 504 if it does not come.
async fn wait(call: &Call<'_>, version: ResourceVersion) -> Result<(), Status> {
    if timeout(PATIENCE, call.served.storage.reached(version)).await.is_ok() {
        return Ok(());
    }
    // How far it has come is told by a list of nothing.
    let query = format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    let request = ListRequest::parse(&query, &call.served.fields)?;
    match call.served.storage.list(&call.scope(), &request).await {
        Err(StorageError::Behind { current }) => Err(Status::too_large(version, Some(current))),
        Err(error) => Err(call.status(error)),
        Ok(_) => Ok(()),
    }
}

pub(super) async fn list(call: &Call<'_>) -> Result<Response, Status> {
    let form = Form::acceptable(call.headers, call.query)?;
    let request = ListRequest::parse(call.query, &call.served.fields)?;
    let page = page(call, &request).await?;
    form.fit(call.query, Answer::List)?.list(call.served, page).map_err(|error| call.status(error))
}

/// A page, whose version is waited for if need be.
pub(super) async fn page(call: &Call<'_>, request: &ListRequest) -> Result<Page, Status> {
    let storage = &call.served.storage;
    let scope = call.scope();
    let mut again = false;
    loop {
        match storage.list(&scope, request).await {
            Ok(page) => return Ok(page),
            Err(StorageError::Behind { current }) => {
                let wanted = match &request.read {
                    ListRead::NotOlderThan(version) | ListRead::Exact(version) => Some(*version),
                    ListRead::Continue { at, .. } => *at,
                    ListRead::MostRecent | ListRead::Any => None,
                };
                let wanted = wanted.unwrap_or(current);
                if is_one_exactly(call, request) {
                    let mut status = Status::too_large(wanted, Some(current));
                    status.details.get_or_insert_default().retry_after_seconds = 0;
                    return Err(status);
                }
                if again || timeout(PATIENCE, storage.reached(wanted)).await.is_err() {
                    return Err(Status::too_large(wanted, Some(current)));
                }
                again = true;
            }
            Err(StorageError::Expired { .. }) => {
                return Err(match &request.read {
                    ListRead::Continue { after, .. } => {
                        Status::continue_expired(continue_token::reencode(after))
                    }
                    _ => Status::list_expired(),
                });
            }
            Err(error) => return Err(call.status(error)),
        }
    }
}

/// Whether a list is of one object at one version. The API server asks etcd about it, which neither waits for a version nor says when to
/// ask again (`ShouldDelegateExactRV` of k8s.io/apiserver 0.36).
fn is_one_exactly(call: &Call<'_>, request: &ListRequest) -> bool {
    let names = |label| request.fields.requires_exactly(label).is_some();
    let is_placed =
        !call.served.info.namespaced || call.path.namespace.is_some() || names("metadata.namespace");
    matches!(request.read, ListRead::Exact(_)) && names("metadata.name") && is_placed
}
