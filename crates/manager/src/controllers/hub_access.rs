//! Lets the hubs read the `ConfigMap` `leader-hub-<pool>` of every pool, and no other.
//!
//! RBAC knows names and no beginnings of names, so a Role lists those of the pools that there are. The chart makes that Role, without a
//! rule, and binds it to the hubs; we may write its rules and bind nothing, and can put no more into them than we may do ourselves.

use std::time::Duration;

use api::names;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::leader::{LeadershipGuard, NotLeading};
use crate::pools::Pools;

/// How long a write may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long further pools are waited for, so that many that come together are one write.
const SETTLE: Duration = Duration::from_millis(500);

/// After how long the Role is written again though no pool came or went: somebody may have changed it.
const AGAIN: Duration = Duration::from_mins(10);

/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(10);

/// Why the Role is not as it should be.
#[derive(Debug, Error)]
enum WriteError {
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    #[error("no answer within {DEADLINE:?}")]
    Deadline,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Keeps the Role.
pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) leadership: LeadershipGuard,
    pub(crate) pools: Pools,
    /// The namespace of the `ConfigMap`s and the Role.
    pub(crate) namespace: String,
}

impl Controller {
    /// Keeps the Role until `end`.
    pub(crate) async fn run(self, end: CancellationToken) {
        tokio::select! {
            () = end.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&self) {
        // The senders live as long as the index, of which this holds a clone.
        let _ = self.pools.ready().wait_for(|ready| *ready).await;
        let mut changes = self.pools.changes();
        let mut written = None;
        loop {
            changes.borrow_and_update();
            let mut pools = self.pools.names();
            pools.sort();
            let mut pause = AGAIN;
            if written.as_ref() != Some(&pools) {
                match self.write(&pools).await {
                    Ok(()) => {
                        info!(pools = pools.len(), "hubs may read who leads their pools");
                        written = Some(pools);
                    }
                    Err(error) => {
                        warn!(%error, role = names::HUB_POOLS_ROLE, "hubs may not read who leads their pools; it is tried again");
                        pause = RETRY;
                    }
                }
            }
            tokio::select! {
                _ = changes.changed() => sleep(SETTLE).await,
                () = sleep(pause) => written = None,
            }
        }
    }

    async fn write(&self, pools: &[String]) -> Result<(), WriteError> {
        self.leadership.check()?;
        let roles = Api::<Role>::namespaced(self.client.clone(), &self.namespace);
        let parameters = PatchParams::apply(names::MANAGER).force();
        let role = Patch::Apply(role(pools));
        let written = roles.patch(names::HUB_POOLS_ROLE, &parameters, &role);
        timeout(DEADLINE, written).await.map_err(|_| WriteError::Deadline)??;
        Ok(())
    }
}

/// The Role of those pools.
fn role(pools: &[String]) -> Role {
    let strings = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let rule = PolicyRule {
        api_groups: Some(strings(&[""])),
        resources: Some(strings(&["configmaps"])),
        resource_names: Some(pools.iter().map(|pool| names::leader_hub_config_map(pool)).collect()),
        verbs: strings(&["get", "list", "watch"]),
        ..PolicyRule::default()
    };
    Role {
        metadata: ObjectMeta { name: Some(names::HUB_POOLS_ROLE.to_owned()), ..ObjectMeta::default() },
        // A rule without names is about all names.
        rules: Some(if pools.is_empty() { Vec::new() } else { vec![rule] }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(pools: &[&str]) -> serde_json::Value {
        let pools: Vec<String> = pools.iter().map(|&pool| pool.to_owned()).collect();
        serde_json::to_value(role(&pools)).unwrap()["rules"].clone()
    }

    #[test]
    fn the_role_names_the_config_maps_of_all_pools_and_nothing_else() {
        let expected = json!([{
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["leader-hub-a", "leader-hub-b"],
            "verbs": ["get", "list", "watch"],
        }]);
        assert_eq!(rules(&["a", "b"]), expected);
    }

    #[test]
    fn without_pools_it_grants_nothing() {
        assert_eq!(rules(&[]), json!([]), "a rule without names would be about all ConfigMaps");
    }
}
