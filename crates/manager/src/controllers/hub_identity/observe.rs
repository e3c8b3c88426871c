//! What is looked at before a decision: the request as the API server has it, its node as it is now, and requests that rival it.

use std::collections::BTreeSet;

use api::{
    Gateway,
    annotations::HUB_BOOTSTRAP_TOKEN,
    names::{GATEWAY_SIGNER, HUB_GROUP, HUB_SIGNER},
};
use k8s_openapi::api::{
    certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
    core::v1::{Node, ObjectReference},
};
use kube::{Api, Client, ResourceExt, api::ListParams, core::DeserializeGuard};
use tls::request::{CertificateRequest, RequestError, has_organization};

use super::gateway;
use super::plan::is_bootstrap;

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A hub shows it to the API server.
    Hub,
    /// A gateway shows it to those who dial it.
    Gateway,
}

impl Purpose {
    fn signer(self) -> &'static str {
        match self {
            Self::Hub => HUB_SIGNER,
            Self::Gateway => GATEWAY_SIGNER,
        }
    }

    /// Selects the requests to the signer.
    pub(super) fn selector(self) -> String {
        format!("spec.signerName={}", self.signer())
    }
}

/// A request on which nobody has decided. Who made it is what the API server wrote, not what the requester says.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) purpose: Purpose,
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) username: String,
    pub(super) groups: BTreeSet<String>,
    pub(super) usages: BTreeSet<String>,
    pub(super) expiration_seconds: Option<i32>,
    /// What it asks for, or why that cannot be read without doubt.
    pub(super) parsed: Result<CertificateRequest, RequestError>,
    /// Whether it is ours to decide on, also if it cannot be read: its subject has the group of hubs, or it holds the name that gateways
    /// serve under, be it where it may.
    pub(super) is_ours: bool,
    pub(super) conditions: Vec<CertificateSigningRequestCondition>,
}

impl Request {
    /// Reads an undecided request to the signer.
    pub(super) fn read(purpose: Purpose, object: &CertificateSigningRequest) -> Option<Self> {
        let spec = &object.spec;
        let status = object.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
        let decided =
            conditions.iter().any(|condition| ["Approved", "Denied", "Failed"].contains(&&*condition.type_));
        let issued = status.is_some_and(|status| status.certificate.is_some());
        if spec.signer_name != purpose.signer() || decided || issued {
            return None;
        }
        Some(Self {
            purpose,
            name: object.name_any(),
            uid: object.uid(),
            resource_version: object.resource_version(),
            username: spec.username.clone().unwrap_or_default(),
            groups: spec.groups.iter().flatten().cloned().collect(),
            usages: spec.usages.iter().flatten().cloned().collect(),
            expiration_seconds: spec.expiration_seconds,
            parsed: parse(object),
            is_ours: str::from_utf8(&spec.request.0).is_ok_and(|text| match purpose {
                Purpose::Hub => has_organization(text, HUB_GROUP),
                Purpose::Gateway => gateway::is_claimed(text),
            }),
            conditions,
        })
    }

    /// For events.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("certificates.k8s.io/v1".to_owned()),
            kind: Some("CertificateSigningRequest".to_owned()),
            name: Some(self.name.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

fn parse(object: &CertificateSigningRequest) -> Result<CertificateRequest, RequestError> {
    let text = str::from_utf8(&object.spec.request.0).map_err(|_| RequestError::Pem)?;
    CertificateRequest::from_pem(text)
}

/// What is known of the node whose hub a request is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// The Node, if there is one.
    pub(super) node: Option<NodeState>,
    /// A request for the same node with another key that was approved and is still there. Looked for only if there is no Node.
    pub(super) rival: Option<String>,
    /// Whose links the node accepts, of all Gateways the most. Looked for only if its gateway asks.
    pub(super) gateway: Option<gateway::DialledBy>,
}

/// A Node that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeState {
    pub(super) resource_version: Option<String>,
    /// The bootstrap token that an operator allows for it.
    pub(super) token: Option<String>,
}

/// Looks at the node as it is now: an index could not know of one that was made a moment ago. Without a name of a node there is nothing to
/// look at: the plan needs to know no more to deny the request.
pub(super) async fn observe(client: &Client, request: &Request, node: &str) -> kube::Result<Observed> {
    if node.is_empty() {
        return Ok(Observed::default());
    }
    let found = Api::<Node>::all(client.clone()).get_metadata_opt(node).await?;
    let state = found.map(|found| NodeState {
        resource_version: found.resource_version(),
        token: found.annotations().get(HUB_BOOTSTRAP_TOKEN).cloned(),
    });
    let rival = if state.is_none() && is_bootstrap(request) { rival(client, request).await? } else { None };
    let gateway = if request.purpose == Purpose::Gateway { dialled_by(client, node).await? } else { None };
    Ok(Observed { node: state, rival, gateway })
}

async fn dialled_by(client: &Client, node: &str) -> kube::Result<Option<gateway::DialledBy>> {
    let gateways = Api::<DeserializeGuard<Gateway>>::all(client.clone()).list(&ListParams::default()).await?;
    let readable = gateways.iter().filter_map(|gateway| gateway.0.as_ref().ok());
    Ok(readable.filter_map(|gateway| gateway::dialled_by(gateway, node)).max())
}

async fn rival(client: &Client, request: &Request) -> kube::Result<Option<String>> {
    let api = Api::<CertificateSigningRequest>::all(client.clone());
    let others = api.list(&ListParams::default().fields(&request.purpose.selector())).await?;
    Ok(others.into_iter().find(|other| rivals(request, other)).map(|other| other.name_any()))
}

/// Whether `other` was approved for the same name and another key.
fn rivals(request: &Request, other: &CertificateSigningRequest) -> bool {
    let Ok(own) = &request.parsed else { return false };
    let conditions = other.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut approved = conditions.filter(|condition| condition.type_ == "Approved");
    approved.next().is_some()
        && parse(other).is_ok_and(|parsed| {
            parsed.subject.common_name == own.subject.common_name && parsed.key_digest != own.key_digest
        })
}
