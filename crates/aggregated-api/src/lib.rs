//! An aggregated Kubernetes API over any storage: what the API server's own library does for extensions, without a word of any kind.
//!
//! A resource is a [`ResourceInfo`] (names, scope, columns, schema: data) and a [`Storage`] (where its objects are). From those
//! [`AggregatedApi`] makes an `axum::Router` that answers as the API server answers for a custom resource of the same schema:
//!
//! - the verbs, `/status`, dry run, field validation, preconditions, generations, validation by the schema, limits;
//! - lists and watches with the API server's resource version semantics, Table, `PartialObjectMetadata`, YAML, gzip;
//! - discovery (aggregated and legacy), `OpenAPI` v2 and v3, `/version`, `/healthz`, `/livez`, `/readyz`.
//!
//! Who calls is found by an [`Authenticator`], what they may do by an [`Authorizer`]; [`authenticate`] and [`authorize`] hold those that
//! delegate to the API server. A connection's client certificate reaches them as [`Peer`].
//!
//! ```no_run
//! # async fn f(crd: serde_json::Value, listener: tls::listener::TlsListener) -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use aggregated_api::{AggregatedApi, MemoryStorage, Peer, ResourceInfo};
//!
//! let widgets = ResourceInfo::from_crd(&crd, "v1")?;
//! let api = AggregatedApi::new().resource(widgets, Arc::new(MemoryStorage::new()));
//! axum::serve(listener, api.router().into_make_service_with_connect_info::<Peer>()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What a storage must do
//! It holds objects as JSON bytes with a resource version each ([`kube_wire::object::Object`]), answers [`Storage::list`] at the
//! version that is asked for, and gives a [`Watcher`] that is polled: who reads slowly holds up nobody. Writes come with the version that they
//! were computed from; everything else about a write (admission by the schema, metadata, patches, retries) is done before.
//! [`MemoryStorage`] is a whole one, with a ring of history for watches and exact lists.

mod answer;
mod api;
pub mod authenticate;
pub mod authorize;
pub mod body;
mod decode;
mod delegated;
mod discovery;
mod field_error;
mod go_json;
mod go_print;
mod health;
mod managed_fields;
mod memory;
mod metadata;
mod openapi;
mod options;
mod places;
mod remembered;
mod resource;
mod reviews;
mod room;
mod schema;
mod serve;
mod served;
mod storage;
mod table;
mod verbs;

pub use answer::failure;
pub use api::{AggregatedApi, HealthCheck, HealthNote, Intercept, Limits, VersionInfo};
pub use authenticate::{Authenticator, Peer, User};
pub use authorize::{Attributes, Authorizer, Decision};
pub use memory::MemoryStorage;
pub use places::{Place, Places};
pub use resource::{Cell, CellFn, Column, MalformedResource, ResourceInfo};
pub use reviews::KubernetesReviews;
pub use room::STILL;
pub use storage::{Draft, Expected, Intent, Objects, Page, Storage, StorageError, Watcher};
