//! What host network can and cannot give to a pod.

use super::*;

#[test]
fn what_host_network_cannot_give_is_refused() {
    for (spec, message) in [
        (
            json!({ "hostUsers": false }),
            "spec.hostUsers is false, and a user namespace of its own rules host network out: remove spec.hostUsers",
        ),
        (
            json!({ "hostnameOverride": "web.example" }),
            "spec.hostnameOverride is set, and a pod with host network has its node's host name: remove spec.hostnameOverride",
        ),
        (
            json!({ "securityContext": { "sysctls": [
                { "name": "kernel.shm_rmid_forced", "value": "1" },
                { "name": "net.core.somaxconn", "value": "1024" }
            ] } }),
            "spec.securityContext.sysctls[1].name is \"net.core.somaxconn\", which would be a setting of the node: \
             remove this sysctl and set it on the pool's nodes if it is needed",
        ),
        (
            json!({ "securityContext": { "sysctls": [{ "name": "net/ipv4/tcp_syncookies", "value": "1" }] } }),
            "spec.securityContext.sysctls[0].name is \"net/ipv4/tcp_syncookies\", which would be a setting of the node: \
             remove this sysctl and set it on the pool's nodes if it is needed",
        ),
        (
            json!({ "containers": [{ "ports": [{ "containerPort": 8080, "hostPort": 80 }] }] }),
            "spec.containers[0].ports[0].hostPort is 80 and containerPort is 8080, and no port is mapped: let the \
             process listen on the host port and set both to it, or remove hostPort",
        ),
        (
            json!({ "initContainers": [{ "ports": [{ "containerPort": 8080, "hostPort": 80 }] }] }),
            "spec.initContainers[0].ports[0].hostPort is 80 and containerPort is 8080, and no port is mapped: let the \
             process listen on the host port and set both to it, or remove hostPort",
        ),
        (
            json!({ "containers": [
                { "ports": [{ "containerPort": 53, "protocol": "UDP" }, { "containerPort": 53 }] },
                { "ports": [{ "containerPort": 53, "protocol": "TCP" }] }
            ] }),
            "spec.containers[1].ports[0] has TCP port 53 as spec.containers[0].ports[1] has, and a port of the node can \
             be taken only once: give it another port, or declare the port once",
        ),
    ] {
        assert_eq!(
            refused(&pod(json!({ "spec": spec })), PoolNetwork::Host),
            format!(
                "pool \"harbour\" gives its pods host network, but {message}, or choose a pool without host network"
            )
        );
    }
}

#[test]
fn what_host_network_can_give_is_admitted() {
    for spec in [
        json!({ "hostUsers": true }),
        json!({ "hostUsers": null, "hostnameOverride": null }),
        json!({ "containers": [{ "ports": [{ "containerPort": 8080, "hostPort": 8080 }, { "containerPort": 1 }] }] }),
        json!({ "containers": [{ "ports": [
            { "containerPort": 80, "hostIP": "10.0.0.1" }, { "containerPort": 80, "hostIP": "10.0.0.2" }
        ] }] }),
        // Init containers run before the others.
        json!({ "initContainers": [
            { "ports": [{ "containerPort": 8080 }] }, { "ports": [{ "containerPort": 8080 }] }
        ] }),
    ] {
        assert_eq!(
            admitted(&pod(json!({ "spec": spec })), PoolNetwork::Host).0,
            host_network_and_binding(),
            "{spec}"
        );
    }
}

#[test]
fn a_pod_that_asks_for_host_network_itself_is_the_api_servers_to_judge() {
    let change =
        json!({ "spec": { "hostNetwork": true, "hostUsers": false, "nodeSelector": { NODE_POOL: P } } });
    assert_eq!(admitted(&pod(change), PoolNetwork::Host), (json!([]), vec![]));
}

#[test]
fn a_dns_policy_that_needs_cluster_dns_is_warned_of() {
    let change = json!({ "spec": { "dnsPolicy": "ClusterFirstWithHostNet" } });
    let (patch, warnings) = admitted(&pod(change), PoolNetwork::Host);
    assert_eq!(patch, host_network_and_binding());
    assert_eq!(
        warnings,
        [
            "spec.dnsPolicy ClusterFirstWithHostNet needs cluster DNS, which nodes of host-network pool \"harbour\" may lack: use Default"
        ]
    );
}
