//! When to look again before the time: whenever one of the observed objects changes. Only that something changed is
//! taken from the watches, never what, so a late or repeated event does no harm.

use futures::{
    Stream, StreamExt,
    stream::{BoxStream, select_all},
};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::Secret,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::{Config, chain};

/// An item for every change of the Secrets and configurations of `config`. Each is watched by its name alone, so that
/// permissions can be given by name, and by its metadata alone, so that no key travels.
pub(super) fn changes(client: &Client, config: &Config) -> impl Stream<Item = ()> + Send + use<> {
    let mut streams = Vec::new();
    for secret in [&config.ca_secret, &config.serving_secret] {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &config.namespace);
        streams.push(changes_of(api, secret));
    }
    for name in &config.mutating_configurations {
        let api: Api<PartialObjectMeta<MutatingWebhookConfiguration>> = Api::all(client.clone());
        streams.push(changes_of(api, name));
    }
    for name in &config.validating_configurations {
        let api: Api<PartialObjectMeta<ValidatingWebhookConfiguration>> = Api::all(client.clone());
        streams.push(changes_of(api, name));
    }
    for name in &config.api_services {
        let api: Api<PartialObjectMeta<APIService>> = Api::all(client.clone());
        streams.push(changes_of(api, name));
    }
    select_all(streams)
}

fn changes_of<K>(api: Api<K>, name: &str) -> BoxStream<'static, ()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let name = name.to_owned();
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(api, config)
        .backoff(crate::watches::backoff())
        .filter_map(move |event| {
            let changed = match event {
                Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_) | watcher::Event::Delete(_)) => {
                    Some(())
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
                Err(error) => {
                    warn!(name, error = chain(&error), "watch failed; trying again");
                    None
                }
            };
            std::future::ready(changed)
        })
        .boxed()
}
