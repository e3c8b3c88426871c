//! Reading and patching `DaemonSets` and Deployments as raw JSON, through the API server, and reading `NodePools`.
//!
//! It must not decide what a patch says.

use std::time::Duration;

use api::NodePool;
use api::annotations::HOSTNET_ADDED;
use kube::api::{GetParams, ListParams, Patch, PatchParams, Request};
use kube::{Client, Resource};
use serde_json::Value;

use super::components::{Component, Kind, NAMESPACES, ObjectName};
use super::landing::{HostNetworkNodes, lands};
use super::plan::{Goal, Plan, PlanError, plan};

/// By this name the API server's `managedFields` say who added the requirement.
const FIELD_MANAGER: &str = "isthmus-manager-hostnet";

/// How often a change is planned anew when others change the object meanwhile.
const ATTEMPTS: u32 = 6;

/// How long to leave the object to the others between attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// An object that shall keep off host-network nodes.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// What it is, unless only a flag named it.
    pub(super) component: Option<Component>,
    /// Its kind.
    pub(super) kind: Kind,
    /// Where it is.
    pub(super) at: ObjectName,
    /// All of it.
    pub(super) object: Value,
}

impl Found {
    fn is(&self, other: &Self) -> bool {
        self.kind == other.kind && self.at == other.at
    }
}

/// Why the cluster could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClusterError {
    /// The API server refused or was not reached.
    #[error("cannot {verb} {what}: {}", words(source))]
    Call {
        /// What was tried.
        verb: &'static str,
        /// With which object.
        what: String,
        /// What the API server says.
        #[source]
        source: kube::Error,
    },
    /// A flag names an object that is not there.
    #[error("{flag} {at}: there is no such {kind}")]
    NoSuchObject {
        /// The flag.
        flag: &'static str,
        /// What it names.
        at: ObjectName,
        /// The kind it stands for.
        kind: Kind,
    },
    /// The object is not as the API has it.
    #[error("{what}: {source}")]
    Plan {
        /// The object.
        what: String,
        /// What is wrong with it.
        #[source]
        source: PlanError,
    },
    /// Others kept changing the object.
    #[error("{what} was changed by others {ATTEMPTS} times in a row: try again")]
    Busy {
        /// The object.
        what: String,
    },
}

/// What the API server says, without the structure around it.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// What shall be looked for beside the components.
#[derive(Debug)]
pub(super) struct Selection {
    /// What flags name.
    pub(super) named: Vec<(Kind, ObjectName)>,
    /// Whether all `DaemonSets` that the goal concerns are meant.
    pub(super) all_daemon_sets: bool,
    /// What shall become of them.
    pub(super) goal: Goal,
}

/// What there is.
#[derive(Debug)]
pub(super) struct Inventory {
    /// All components, then what was selected, none twice.
    pub(super) found: Vec<Found>,
    /// Other `DaemonSets` that the goal concerns and nobody selected; or why they could not be looked for.
    pub(super) others: Result<Vec<ObjectName>, String>,
}

/// Looks for components, for what is selected, and for what might have been.
pub(super) async fn find(client: &Client, selection: &Selection) -> Result<Inventory, ClusterError> {
    let Selection { named, all_daemon_sets, goal } = selection;
    let mut found: Vec<Found> = Vec::new();
    for (kind, at) in named {
        match get(client, *kind, at).await {
            Ok(object) => found.push(Found { component: None, kind: *kind, at: at.clone(), object }),
            Err(ClusterError::Call { source: kube::Error::Api(status), .. }) if status.code == 404 => {
                return Err(ClusterError::NoSuchObject { flag: kind.flag(), at: at.clone(), kind: *kind });
            }
            Err(error) => return Err(error),
        }
    }
    for namespace in NAMESPACES {
        for kind in Kind::ALL {
            found.extend(list(client, kind, namespace).await?);
        }
    }
    let mut others = match concerned(client, *goal).await {
        Ok(others) => Ok(others),
        // Who may not look everywhere can still change what flags name.
        Err(ClusterError::Call { source: kube::Error::Api(status), .. })
            if status.code == 403 && !*all_daemon_sets =>
        {
            Err(status.message.clone())
        }
        Err(error) => return Err(error),
    };
    if *all_daemon_sets && let Ok(others) = &mut others {
        found.append(others);
    }
    // An object that a flag names too is there once, as the component that it is.
    found.sort_by_key(|found| found.component.map_or(Component::ALL.len(), |component| component as usize));
    let mut once: Vec<Found> = Vec::new();
    for object in found {
        if !once.iter().any(|other| other.is(&object)) {
            once.push(object);
        }
    }
    let others = others.map(|others| {
        others
            .into_iter()
            .filter(|other| !once.iter().any(|found| found.is(other)))
            .map(|other| other.at)
            .collect()
    });
    Ok(Inventory { found: once, others })
}

/// The `DaemonSets` that the goal concerns: whose pods would land on host-network nodes without having host network, or that
/// have what `apply` added.
async fn concerned(client: &Client, goal: Goal) -> Result<Vec<Found>, ClusterError> {
    let items = items(client, "/apis/apps/v1/daemonsets", "DaemonSets".to_owned()).await?;
    let nodes = match goal {
        Goal::Keep => HostNetworkNodes::of(&pools(client).await?),
        Goal::Undo => Vec::new(),
    };
    let found = items.into_iter().filter_map(|object| {
        let metadata = object.get("metadata")?;
        let part = |name: &str| Some(metadata.get(name)?.as_str()?.to_owned());
        let at = ObjectName { namespace: part("namespace")?, name: part("name")? };
        let concerned = match goal {
            Goal::Keep => lands(&object, &nodes),
            Goal::Undo => metadata.get("annotations").is_some_and(|all| all.get(HOSTNET_ADDED).is_some()),
        };
        concerned.then_some(Found { component: None, kind: Kind::DaemonSet, at, object })
    });
    Ok(found.collect())
}

/// All pools that can be read; none when the cluster has none yet, or does not show them.
async fn pools(client: &Client) -> Result<Vec<NodePool>, ClusterError> {
    match items(client, &NodePool::url_path(&(), None), "NodePools".to_owned()).await {
        Ok(items) => Ok(items.into_iter().filter_map(|pool| serde_json::from_value(pool).ok()).collect()),
        Err(ClusterError::Call { source: kube::Error::Api(status), .. })
            if [403, 404].contains(&status.code) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// What the list at `url` holds.
async fn items(client: &Client, url: &str, what: String) -> Result<Vec<Value>, ClusterError> {
    let failed = |source| ClusterError::Call { verb: "list", what, source };
    let request = match Request::new(url).list(&ListParams::default()) {
        Ok(request) => request,
        Err(error) => return Err(failed(kube::Error::BuildRequest(error))),
    };
    let list: Value = client.request(request).await.map_err(failed)?;
    Ok(list.get("items").and_then(Value::as_array).cloned().unwrap_or_default())
}

/// The components in a namespace; none when there is no such namespace.
async fn list(client: &Client, kind: Kind, namespace: &str) -> Result<Vec<Found>, ClusterError> {
    let items =
        items(client, &url(kind, namespace), format!("{} in namespace {namespace}", kind.plural())).await?;
    let found = items.into_iter().filter_map(|object| {
        let metadata = object.get("metadata")?;
        let name = metadata.get("name")?.as_str()?.to_owned();
        let at = ObjectName { namespace: namespace.to_owned(), name };
        let component = Component::of(kind, &at, metadata.get("labels").unwrap_or(&Value::Null))?;
        Some(Found { component: Some(component), kind, at, object })
    });
    Ok(found.collect())
}

/// The object as the API server has it.
pub(super) async fn get(client: &Client, kind: Kind, at: &ObjectName) -> Result<Value, ClusterError> {
    let failed = |source| ClusterError::Call { verb: "read", what: format!("{kind} {at}"), source };
    let request = Request::new(url(kind, &at.namespace))
        .get(&at.name, &GetParams::default())
        .map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    client.request(request).await.map_err(failed)
}

/// What to do to a found object.
pub(super) fn plan_for(found: &Found, goal: Goal) -> Result<Plan, ClusterError> {
    let Found { component: _, kind, at, object } = found;
    plan(object, goal).map_err(|source| ClusterError::Plan { what: format!("{kind} {at}"), source })
}

/// Carries out `planned`. When others changed the object meanwhile, it is read and planned anew; the plan that was carried
/// out comes back, empty if the others did the work. `found` has the object as it is then.
pub(super) async fn carry_out(
    client: &Client,
    found: &mut Found,
    mut planned: Plan,
    goal: Goal,
) -> Result<Plan, ClusterError> {
    for _ in 0..ATTEMPTS {
        if planned.is_empty() {
            return Ok(planned);
        }
        match patch(client, found, &planned).await {
            Ok(object) => {
                found.object = object;
                return Ok(planned);
            }
            Err(error @ ClusterError::Call { .. }) if is_conflict(&error) => {
                let object = get(client, found.kind, &found.at).await?;
                let version = |object: &Value| object.pointer("/metadata/resourceVersion").cloned();
                if version(&object) == version(&found.object) {
                    // Nobody changed it: it is the change itself that is refused.
                    return Err(error);
                }
                found.object = object;
                planned = plan_for(found, goal)?;
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(ClusterError::Busy { what: format!("{} {}", found.kind, found.at) })
}

async fn patch(client: &Client, found: &Found, planned: &Plan) -> Result<Value, ClusterError> {
    let Found { component: _, kind, at, object: _ } = found;
    let failed = |source| ClusterError::Call { verb: "patch", what: format!("{kind} {at}"), source };
    // By way of JSON, because kube has another version of crate json-patch.
    let operations = serde_json::to_value(&planned.patch)
        .and_then(serde_json::from_value)
        .map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let request = Request::new(url(*kind, &at.namespace))
        .patch(&at.name, &params, &Patch::<()>::Json(operations))
        .map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    client.request(request).await.map_err(failed)
}

/// Whether the object may have changed since it was read: a failed `test` is answered as unprocessable.
fn is_conflict(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Call { source: kube::Error::Api(status), .. } if [409, 422].contains(&status.code))
}

fn url(kind: Kind, namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/{}", kind.plural())
}
