//! `isthmus-manager crds`: the custom resource definitions, printed or applied.

use std::io::Write;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{Condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::controllers::node_pool::FIELD_MANAGER;

/// How long the API server may take until it serves a definition.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// How often it is looked.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Why the definitions could not be printed or applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Standard output is closed, or a definition is no YAML.
    #[error("cannot print: {0}")]
    Print(#[from] std::io::Error),
    /// A definition cannot be written as YAML.
    #[error("cannot write {name} as YAML: {reason}")]
    Encode {
        /// The definition.
        name: String,
        /// What the encoder says.
        reason: String,
    },
    /// The API server refused a definition, or was not reached.
    #[error("cannot apply {name}: {source}")]
    Apply {
        /// The definition.
        name: String,
        /// What the API server says.
        #[source]
        source: kube::Error,
    },
    /// The definition is there and not served.
    #[error("{name} was applied, but the API server does not serve it after {} s: kubectl describe crd {name}", ESTABLISHED_WITHIN.as_secs())]
    NotEstablished {
        /// The definition.
        name: String,
    },
}

/// Prints all definitions as one stream of YAML documents.
pub fn print(out: &mut impl Write) -> Result<(), Error> {
    for crd in api::crds() {
        let yaml = serde_saphyr::to_string(&crd)
            .map_err(|error| Error::Encode { name: crd.name_any(), reason: error.to_string() })?;
        write!(out, "---\n{yaml}")?;
    }
    Ok(())
}

/// Applies all definitions, those of other owners too, and waits until they are served.
///
/// Versions that the present definition has and ours has not are refused by the API server as long as objects may be
/// stored in them, so nothing is lost.
pub async fn apply(client: Client) -> Result<(), Error> {
    try_join_all(api::crds().into_iter().map(|crd| apply_one(client.clone(), crd))).await?;
    Ok(())
}

async fn apply_one(client: Client, crd: CustomResourceDefinition) -> Result<(), Error> {
    let crds = Api::<CustomResourceDefinition>::all(client);
    let name = crd.name_any();
    let failed = |source| Error::Apply { name: name.clone(), source };
    // A definition of a peer may name a conversion webhook that is gone. Server-side apply would merge its client
    // configuration with our strategy `None`, which the API server refuses.
    if let Some(present) = crds.get_opt(&name).await.map_err(failed)?
        && present.spec.conversion.is_some_and(|conversion| conversion.strategy != "None")
    {
        let patch = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
        crds.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(failed)?;
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    crds.patch(&name, &params, &Patch::Apply(&crd)).await.map_err(failed)?;
    // Asked again and again rather than watched: whoever applies may need no more rights than get and patch.
    let deadline = Instant::now() + ESTABLISHED_WITHIN;
    while Instant::now() < deadline {
        let present = crds.get_opt(&name).await.map_err(failed)?;
        if conditions::is_crd_established().matches_object(present.as_ref()) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Err(Error::NotEstablished { name: name.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_what_would_be_applied() {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        let printed: Vec<CustomResourceDefinition> =
            serde_saphyr::from_multiple(&String::from_utf8(out).unwrap()).unwrap();
        assert_eq!(printed, api::crds());
    }
}
