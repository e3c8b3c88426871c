//! What of a pod cannot go together with host network.
//!
//! Pure. Each rule is one of the API server's own (`validatePodHostNetworkDeps`, `validateHostUsers`,
//! `validatePodHostName`, `ValidateHostSysctl`, `checkHostPortConflicts`), found here first because the server would
//! name `hostNetwork`, a field that the user never wrote. It must not look at anything else of the pod.
//!
//! The host ports themselves need no patch: the API server sets each to its container port after every mutation.

use std::collections::BTreeMap;

use super::raw::{Malformed, Object};

/// A field that stands against host network, why, and what to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Conflict {
    pub(super) field: String,
    pub(super) reason: String,
    pub(super) remedy: &'static str,
}

/// The first conflict in the pod's `spec`.
pub(super) fn conflict(spec: &Object<'_>) -> Result<Option<Conflict>, Malformed> {
    for rule in [user_namespace, host_name, sysctls, port_mapping, port_twice] {
        if let Some(conflict) = rule(spec)? {
            return Ok(Some(conflict));
        }
    }
    Ok(None)
}

fn user_namespace(spec: &Object<'_>) -> Result<Option<Conflict>, Malformed> {
    Ok((spec.boolean("hostUsers")? == Some(false)).then(|| Conflict {
        field: spec.path().field("hostUsers").to_string(),
        reason: "is false, and a user namespace of its own rules host network out".to_owned(),
        remedy: "remove spec.hostUsers",
    }))
}

fn host_name(spec: &Object<'_>) -> Result<Option<Conflict>, Malformed> {
    Ok(spec.string("hostnameOverride")?.map(|_| Conflict {
        field: spec.path().field("hostnameOverride").to_string(),
        reason: "is set, and a pod with host network has its node's host name".to_owned(),
        remedy: "remove spec.hostnameOverride",
    }))
}

fn sysctls(spec: &Object<'_>) -> Result<Option<Conflict>, Malformed> {
    let Some(security) = spec.object("securityContext")? else { return Ok(None) };
    for sysctl in security.objects("sysctls")? {
        let name = sysctl.string("name")?.unwrap_or_default();
        // Both spellings of the kernel are allowed: net.ipv4.x and net/ipv4/x.
        if name.starts_with("net.") || name.starts_with("net/") {
            return Ok(Some(Conflict {
                field: sysctl.path().field("name").to_string(),
                reason: format!("is \"{name}\", which would be a setting of the node"),
                remedy: "remove this sysctl and set it on the pool's nodes if it is needed",
            }));
        }
    }
    Ok(None)
}

fn port_mapping(spec: &Object<'_>) -> Result<Option<Conflict>, Malformed> {
    for list in ["initContainers", "containers"] {
        for container in spec.objects(list)? {
            for port in container.objects("ports")? {
                let container_port = port.integer("containerPort")?.unwrap_or_default();
                let host_port = port.integer("hostPort")?.unwrap_or_default();
                if host_port != 0 && host_port != container_port {
                    return Ok(Some(Conflict {
                        field: port.path().field("hostPort").to_string(),
                        reason: format!(
                            "is {host_port} and containerPort is {container_port}, and no port is mapped"
                        ),
                        remedy: "let the process listen on the host port and set both to it, or remove hostPort",
                    }));
                }
            }
        }
    }
    Ok(None)
}

/// The same port twice. The API server looks at all containers together, but at each init container alone: most of
/// them run one after the other.
fn port_twice(spec: &Object<'_>) -> Result<Option<Conflict>, Malformed> {
    let mut groups = vec![spec.objects("containers")?];
    groups.extend(spec.objects("initContainers")?.into_iter().map(|container| vec![container]));
    for group in groups {
        let mut first_at = BTreeMap::new();
        for container in group {
            for port in container.objects("ports")? {
                let number = port.integer("containerPort")?.unwrap_or_default();
                let protocol = port.string("protocol")?.unwrap_or("TCP");
                let address = port.string("hostIP")?.unwrap_or_default();
                let first = first_at.insert((number, protocol, address), port.path().clone());
                if let Some(first) = first.filter(|_| number != 0) {
                    return Ok(Some(Conflict {
                        field: port.path().to_string(),
                        reason: format!(
                            "has {protocol} port {number} as {first} has, and a port of the node can be taken only once"
                        ),
                        remedy: "give it another port, or declare the port once",
                    }));
                }
            }
        }
    }
    Ok(None)
}
