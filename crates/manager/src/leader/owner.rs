//! Whom the Lease belongs to: the Deployment of the replicas, so that it goes when they are uninstalled.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client};
use tracing::warn;

/// How long the question for the Deployment may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// The Deployment as an owner. `None` if it cannot be found: the Lease works without an owner, and stays behind.
pub async fn owner(client: Client, namespace: &str, deployment: &str) -> Option<OwnerReference> {
    let deployments = Api::<Deployment>::namespaced(client, namespace);
    let found = match tokio::time::timeout(DEADLINE, deployments.get_metadata(deployment)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            warn!(deployment, %error, "the lease gets no owner");
            return None;
        }
        Err(_) => {
            warn!(deployment, "the lease gets no owner: no answer within {DEADLINE:?}");
            return None;
        }
    };
    // Neither its controller nor in the way of its deletion: that would take further rights.
    Some(OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: deployment.to_owned(),
        uid: found.metadata.uid?,
        ..OwnerReference::default()
    })
}

/// Makes `owner` an owner of the Lease, in the place of an earlier one of that name, which is gone. Says whether it was
/// none.
pub(super) fn adopt(lease: &mut Lease, owner: &OwnerReference) -> bool {
    let owners = lease.metadata.owner_references.get_or_insert_default();
    if owners.iter().any(|present| present.uid == owner.uid) {
        return false;
    }
    owners.retain(|present| {
        (&present.api_version, &present.kind, &present.name) != (&owner.api_version, &owner.kind, &owner.name)
    });
    owners.push(owner.clone());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(name: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }
    }

    #[test]
    fn an_owner_is_added_once_and_takes_the_place_of_the_one_that_is_gone() {
        let mut lease = Lease::default();
        assert!(adopt(&mut lease, &deployment("manager", "1")));
        assert!(!adopt(&mut lease, &deployment("manager", "1")));
        lease.metadata.owner_references.as_mut().unwrap().push(deployment("another", "7"));
        assert!(adopt(&mut lease, &deployment("manager", "2")));
        let expected = vec![deployment("another", "7"), deployment("manager", "2")];
        assert_eq!(lease.metadata.owner_references, Some(expected));
    }
}
