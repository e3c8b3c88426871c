//! The two resources that are read from one store.

use std::sync::Arc;

use api::slo::freshness::FreshnessState;
use kube_wire::object::Object;
use parking_lot::Mutex;

use super::NodeMetrics;
use super::pages::Pages;
use crate::ledger::{Ledger, Selectable, Stored};
use crate::load::{self, LoadRecord};
use crate::record::{self, MalformedRecord, Record};
use crate::store::Store;

/// Which of the store's ledgers is read, and how its values become JSON.
pub(super) trait Kind: Send + Sync + 'static {
    type Value: Selectable<Head: Send + Sync> + std::fmt::Debug + Send + Sync + 'static;

    fn ledger(store: &Store) -> &Ledger<Self::Value>;

    fn pages(source: &NodeMetrics) -> &Mutex<Pages<Self::Value>>;

    /// The version as clients get it.
    fn object(source: &NodeMetrics, stored: &Stored<Self::Value>) -> Result<Arc<Object>, MalformedRecord>;

    /// An object of that name and version that has what selectors look at.
    fn head(
        source: &NodeMetrics,
        name: &str,
        head: &<Self::Value as Selectable>::Head,
        version: u64,
    ) -> Result<Object, MalformedRecord>;

    /// The last state under the version of its end.
    fn departed(
        last: &Stored<Self::Value>,
        version: u64,
        api_version: &str,
    ) -> Result<Arc<Object>, MalformedRecord>;
}

/// NodeMetrics.
pub(super) enum Metric {}

/// NodeLoads.
pub(super) enum Load {}

impl Kind for Metric {
    type Value = Record;

    fn ledger(store: &Store) -> &Ledger<Record> {
        store.ledger()
    }

    fn pages(source: &NodeMetrics) -> &Mutex<Pages<Record>> {
        &source.paged
    }

    fn object(source: &NodeMetrics, stored: &Stored<Record>) -> Result<Arc<Object>, MalformedRecord> {
        record::object(stored, source.api_version, |made| source.recent.hold(made))
    }

    fn head(
        source: &NodeMetrics,
        _: &str,
        head: &record::Head,
        version: u64,
    ) -> Result<Object, MalformedRecord> {
        record::head(head, version, source.api_version)
    }

    fn departed(
        last: &Stored<Record>,
        version: u64,
        api_version: &str,
    ) -> Result<Arc<Object>, MalformedRecord> {
        record::departed(last, version, api_version)
    }
}

impl Kind for Load {
    type Value = LoadRecord;

    fn ledger(store: &Store) -> &Ledger<LoadRecord> {
        store.loads()
    }

    fn pages(source: &NodeMetrics) -> &Mutex<Pages<LoadRecord>> {
        &source.paged_loads
    }

    fn object(source: &NodeMetrics, stored: &Stored<LoadRecord>) -> Result<Arc<Object>, MalformedRecord> {
        load::object(stored, source.api_version)
    }

    fn head(
        source: &NodeMetrics,
        name: &str,
        head: &FreshnessState,
        version: u64,
    ) -> Result<Object, MalformedRecord> {
        load::head(name, *head, version, source.api_version)
    }

    fn departed(
        last: &Stored<LoadRecord>,
        version: u64,
        api_version: &str,
    ) -> Result<Arc<Object>, MalformedRecord> {
        load::departed(last, version, api_version)
    }
}
