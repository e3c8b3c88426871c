//! Makes the write that was decided on. Every write is conditional on the version observed, so that of two writers the
//! later one fails and looks again.

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    runtime::events::{Event, EventType},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tls::{
    certificate::Certificate,
    issue::{CertificateAuthority, IssueError, IssuedLeaf},
    rotation::{Action, Cause, Strangers},
};

use super::{
    AUTHORITY_VALIDITY, Config, FIELD_MANAGER, ROTATED,
    observe::{Configuration, Kind, Observed, StoredSecret},
    plan::{CA, NEXT, RETIRED, SERVING, SERVING_CA, State, published, published_in},
};

/// The name that authorities carry.
const AUTHORITY_NAME: &str = "isthmus webhook authority";

/// Why a write was not made, or not known to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("issue a certificate")]
    Issue(#[source] IssueError),
    #[error("patch Secret {name}")]
    Secret {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("patch {kind} {name}")]
    Configuration {
        kind: Kind,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("encode a patch")]
    Encode(#[source] serde_json::Error),
    #[error("planned without an authority to issue with")]
    NoAuthority,
}

impl ApplyError {
    /// Whether the object changed since it was observed.
    pub(super) fn is_race(&self) -> bool {
        match self {
            Self::Secret { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if status.is_conflict())
            }
            // A failed `test` of a JSON patch is answered with 422.
            Self::Configuration { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if status.is_conflict() || status.is_invalid())
            }
            Self::Issue(_) | Self::Encode(_) | Self::NoAuthority => false,
        }
    }
}

/// Does what was decided.
pub(super) async fn apply(
    client: &Client,
    config: &Config,
    observed: &Observed,
    state: &State,
    action: &Action,
    now: Timestamp,
) -> Result<(), ApplyError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &config.namespace);
    let authorities = &observed.authorities;
    match action {
        Action::Wait { .. } => Ok(()),
        Action::CreateCurrent => patch_secret(&secrets, authorities, create(CA, state, now)?).await,
        Action::CreateNext(_) => patch_secret(&secrets, authorities, create(NEXT, state, now)?).await,
        Action::Promote => patch_secret(&secrets, authorities, promote(state)?).await,
        Action::Retire => patch_secret(&secrets, authorities, json!({"data": {RETIRED: null}})).await,
        Action::IssueLeaf => {
            let authority = state.current.as_ref().ok_or(ApplyError::NoAuthority)?;
            let leaf = authority.issue(&config.dns_names, config.leaf_validity, now);
            let patch = serving(&leaf.map_err(ApplyError::Issue)?);
            patch_secret(&secrets, &observed.serving, patch).await
        }
        Action::PublishBundle { strangers } => {
            let trusted = published_in(&observed.serving);
            if let Some(wanted) = wanted(&trusted, &state.bundle(), *strangers) {
                let patch = json!({"data": {SERVING_CA: text(&pem(&wanted))}});
                patch_secret(&secrets, &observed.serving, patch).await?;
            }
            for configuration in &observed.configurations {
                if let Some(patch) = publish(configuration, &state.bundle(), *strangers) {
                    match configuration.kind {
                        Kind::Mutating => {
                            let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
                            patch_configuration(&api, configuration, patch).await?;
                        }
                        Kind::Validating => {
                            let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
                            patch_configuration(&api, configuration, patch).await?;
                        }
                        Kind::ApiService => {
                            let api: Api<APIService> = Api::all(client.clone());
                            patch_configuration(&api, configuration, patch).await?;
                        }
                    }
                }
            }
            Ok(())
        }
    }
}

/// What to tell people who look at the Secret; nothing of the steps in between.
pub(super) fn event(action: &Action) -> Option<Event> {
    let (reason, note) = match action {
        Action::CreateCurrent => ("AuthorityCreated", "a new authority issues the webhook's certificates"),
        Action::CreateNext(Cause::Forced) => ("RotationStarted", "a new authority was made, as asked for"),
        Action::CreateNext(_) => ("RotationStarted", "a new authority was made, the old one ages"),
        Action::Promote => {
            ("AuthorityPromoted", "the new authority is trusted everywhere and issues from now on")
        }
        Action::IssueLeaf => ("CertificateIssued", "the webhook has a new certificate"),
        Action::Retire => ("RotationFinished", "the old authority is no longer trusted"),
        Action::PublishBundle { .. } => {
            ("TrustPublished", "the webhook configurations trust the stored authorities")
        }
        Action::Wait { .. } => return None,
    };
    Some(Event {
        type_: EventType::Normal,
        reason: reason.to_owned(),
        note: Some(note.to_owned()),
        action: "Rotate".to_owned(),
        secondary: None,
    })
}

/// A new authority under these keys, with the request that it answers.
fn create((certificate, key): (&str, &str), state: &State, now: Timestamp) -> Result<Value, ApplyError> {
    let made = CertificateAuthority::generate(AUTHORITY_NAME, AUTHORITY_VALIDITY, now);
    let made = made.map_err(ApplyError::Issue)?;
    let mut patch = json!({"data": {
        certificate: text(&made.certificate().to_pem()),
        key: text(made.key_pem().expose()),
    }});
    if let Some(requested) = &state.requested {
        patch["metadata"] = json!({"annotations": {ROTATED: requested}});
    }
    Ok(patch)
}

/// The next authority becomes the one that issues; of the one that was, only the certificate remains.
fn promote(state: &State) -> Result<Value, ApplyError> {
    let next = state.next.as_ref().ok_or(ApplyError::NoAuthority)?;
    let current = state.current.iter().map(CertificateAuthority::certificate);
    let retired: Vec<&Certificate> = current.chain(&state.retired).collect();
    let (ca, ca_key) = CA;
    let (next_ca, next_key) = NEXT;
    Ok(json!({"data": {
        ca: text(&next.certificate().to_pem()),
        ca_key: text(next.key_pem().expose()),
        next_ca: null,
        next_key: null,
        RETIRED: text(&pem(&retired)),
    }}))
}

fn serving(leaf: &IssuedLeaf) -> Value {
    let (certificate, key) = SERVING;
    json!({"data": {certificate: text(&leaf.certificate.to_pem()), key: text(leaf.key.expose())}})
}

/// What a place is to trust that trusts `trusted`; `None` if that is what it should.
fn wanted<'a>(
    trusted: &'a [Certificate],
    bundle: &[&'a Certificate],
    strangers: Strangers,
) -> Option<Vec<&'a Certificate>> {
    let mut wanted = bundle.to_vec();
    if strangers == Strangers::Keep {
        wanted.extend(trusted.iter().filter(|trusted| !bundle.contains(trusted)));
    }
    let is_so = trusted.len() == wanted.len() && wanted.iter().all(|wanted| trusted.contains(wanted));
    (!is_so).then_some(wanted)
}

/// A JSON patch that changes nothing but the bundles that need it, and applies only to what was observed.
fn publish(configuration: &Configuration, bundle: &[&Certificate], strangers: Strangers) -> Option<Value> {
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": configuration.resource_version}),
    ];
    for (index, webhook) in configuration.webhooks.iter().enumerate() {
        let trusted = published(webhook);
        let Some(wanted) = wanted(&trusted, bundle, strangers) else { continue };
        let path = if configuration.kind == Kind::ApiService {
            "/spec/caBundle".to_owned()
        } else {
            let name = format!("/webhooks/{index}/name");
            operations.push(json!({"op": "test", "path": name, "value": webhook.name}));
            format!("/webhooks/{index}/clientConfig/caBundle")
        };
        operations.push(json!({"op": "add", "path": path, "value": text(&pem(&wanted))}));
    }
    (operations.len() > 1).then_some(Value::Array(operations))
}

fn pem(certificates: &[&Certificate]) -> String {
    certificates.iter().map(|certificate| certificate.to_pem()).collect()
}

/// As the API writes bytes.
fn text(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

async fn patch_secret(
    api: &Api<Secret>,
    observed: &StoredSecret,
    mut patch: Value,
) -> Result<(), ApplyError> {
    patch["metadata"]["resourceVersion"] = json!(observed.resource_version);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patched = api.patch(&observed.name, &params, &Patch::Merge(patch)).await;
    let failed = |source| ApplyError::Secret { name: observed.name.clone(), source: Box::new(source) };
    patched.map(drop).map_err(failed)
}

async fn patch_configuration<K>(
    api: &Api<K>,
    observed: &Configuration,
    operations: Value,
) -> Result<(), ApplyError>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let patch = Patch::<()>::Json(serde_json::from_value(operations).map_err(ApplyError::Encode)?);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patched = api.patch(&observed.name, &params, &patch).await;
    patched.map(drop).map_err(|source| ApplyError::Configuration {
        kind: observed.kind,
        name: observed.name.clone(),
        source: Box::new(source),
    })
}
