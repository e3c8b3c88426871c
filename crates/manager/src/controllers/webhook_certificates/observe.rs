//! Reads everything a turn looks at. The order is part of the contract with [`tls::rotation`]: the serving Secret
//! first, then the configurations, then the Secret of authorities.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        core::v1::{ObjectReference, Secret},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{Api, Client};

use super::Config;

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObserveError {
    #[error("Secret {0} does not exist; the chart creates it")]
    NoSecret(String),
    #[error("get Secret {name}")]
    Secret {
        name: String,
        #[source]
        source: kube::Error,
    },
    #[error("get {kind} {name}")]
    Configuration {
        kind: Kind,
        name: String,
        #[source]
        source: kube::Error,
    },
}

/// Everything, each part with the version that writes are conditional on.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) serving: StoredSecret,
    pub(super) configurations: Vec<Configuration>,
    pub(super) authorities: StoredSecret,
}

/// A Secret. Shows nothing of its values.
#[derive(Default)]
pub(super) struct StoredSecret {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) resource_version: String,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) data: BTreeMap<String, ByteString>,
}

/// By which kind of object the API server is told to trust us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mutating,
    Validating,
    /// Trusts as a webhook configuration of one webhook does.
    ApiService,
}

/// A webhook configuration or an `APIService`: the part of it that concerns trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Configuration {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) resource_version: String,
    pub(super) webhooks: Vec<Webhook>,
}

/// One webhook of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) ca_bundle: Vec<u8>,
}

/// Reads everything. A configuration that does not exist is left out: there is nobody to trust us by it.
pub(super) async fn observe(client: &Client, config: &Config) -> Result<Observed, ObserveError> {
    let serving = secret(client, config, &config.serving_secret).await?;
    let mut configurations = Vec::new();
    for name in &config.mutating_configurations {
        let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let found = get(api.get_opt(name), Kind::Mutating, name).await?;
        configurations.extend(found.map(|found| {
            let webhooks = found.webhooks.unwrap_or_default().into_iter();
            let webhooks = webhooks.map(|webhook| Webhook::new(webhook.name, webhook.client_config));
            Configuration::new(Kind::Mutating, found.metadata, webhooks.collect())
        }));
    }
    for name in &config.validating_configurations {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let found = get(api.get_opt(name), Kind::Validating, name).await?;
        configurations.extend(found.map(|found| {
            let webhooks = found.webhooks.unwrap_or_default().into_iter();
            let webhooks = webhooks.map(|webhook| Webhook::new(webhook.name, webhook.client_config));
            Configuration::new(Kind::Validating, found.metadata, webhooks.collect())
        }));
    }
    for name in &config.api_services {
        let api: Api<APIService> = Api::all(client.clone());
        let found = get(api.get_opt(name), Kind::ApiService, name).await?;
        configurations.extend(found.map(|found| {
            let ca_bundle = found.spec.and_then(|spec| spec.ca_bundle).unwrap_or_default().0;
            Configuration::new(
                Kind::ApiService,
                found.metadata,
                vec![Webhook { name: name.clone(), ca_bundle }],
            )
        }));
    }
    let authorities = secret(client, config, &config.ca_secret).await?;
    Ok(Observed { serving, configurations, authorities })
}

async fn get<K>(
    request: impl Future<Output = Result<Option<K>, kube::Error>>,
    kind: Kind,
    name: &str,
) -> Result<Option<K>, ObserveError> {
    request.await.map_err(|source| ObserveError::Configuration { kind, name: name.to_owned(), source })
}

async fn secret(client: &Client, config: &Config, name: &str) -> Result<StoredSecret, ObserveError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &config.namespace);
    let found = api.get_opt(name).await;
    let found = found.map_err(|source| ObserveError::Secret { name: name.to_owned(), source })?;
    found.map(StoredSecret::from).ok_or_else(|| ObserveError::NoSecret(name.to_owned()))
}

impl Configuration {
    fn new(kind: Kind, metadata: ObjectMeta, webhooks: Vec<Webhook>) -> Self {
        let name = metadata.name.unwrap_or_default();
        Self { kind, name, resource_version: metadata.resource_version.unwrap_or_default(), webhooks }
    }
}

impl Webhook {
    fn new(name: String, client: WebhookClientConfig) -> Self {
        Self { name, ca_bundle: client.ca_bundle.unwrap_or_default().0 }
    }
}

impl StoredSecret {
    /// The text of a key; `None` if it is absent, empty or no text.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let bytes = &self.data.get(key)?.0;
        std::str::from_utf8(bytes).ok().filter(|text| !text.trim().is_empty())
    }

    /// Whether a key holds anything at all.
    pub(super) fn holds(&self, key: &str) -> bool {
        self.data.get(key).is_some_and(|value| !value.0.is_empty())
    }

    /// What events are about.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

impl From<Secret> for StoredSecret {
    fn from(secret: Secret) -> Self {
        let ObjectMeta { namespace, name, uid, resource_version, annotations, .. } = secret.metadata;
        Self {
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or_default(),
            uid,
            resource_version: resource_version.unwrap_or_default(),
            annotations: annotations.unwrap_or_default(),
            data: secret.data.unwrap_or_default(),
        }
    }
}

impl fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSecret")
            .field("name", &self.name)
            .field("resource_version", &self.resource_version)
            .field("keys", &self.data.keys())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::ApiService => "APIService",
        })
    }
}
