//! Who a caller is, to the hub and behind it: its own identity, or nobody.

use anyhow::{Result, ensure};
use e2e::hub::{HubNode, LOOPBACK, SECURE, runs, token};
use e2e::{client, fresh_namespace, hack_cluster, internal_ip, kubectl_apply};
use serde_json::json;

use super::waiting_pod;

const NAMESPACE: &str = "e2e-hub-callers";

#[tokio::test]
async fn callers_are_themselves_or_nobody() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let node = HubNode::fresh("e2e-callers-1", &[]).await?;
    let reader = token(NAMESPACE, "reader", "view").await?;
    let name = format!("system:serviceaccount:{NAMESPACE}:reader");

    let me = node.kubectl(&reader, &["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await?;
    ensure!(me.stdout == name, "a token is not its owner's: {me:?}");
    let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    let root = [&["kubectl", "--kubeconfig=/dev/null", "--server", LOOPBACK][..], &whoami].concat();
    let root = node.inside(&root).await?;
    ensure!(root.stdout == format!("system:node:{}", node.name), "root on the node is the node: {root:?}");

    // A write goes up as whoever asks for it, never as the node or the hub.
    let denied = node.kubectl(&reader, &["-n", NAMESPACE, "create", "configmap", "mine"]).await?;
    ensure!(
        !denied.success && denied.stderr.contains(&format!("User \"{name}\" cannot create")),
        "{denied:?}"
    );
    let secrets = node.kubectl(&reader, &["get", "secrets", "-A"]).await?;
    ensure!(!secrets.success && secrets.stderr.contains("cannot list resource \"secrets\""), "{secrets:?}");
    let token_of_other = node.kubectl("nonsense", &["get", "services"]).await?;
    ensure!(
        !token_of_other.success && token_of_other.stderr.contains("must be logged in"),
        "{token_of_other:?}"
    );

    // Nobody is nobody, wherever it calls from.
    let services = "/api/v1/services";
    let bare = node.get(SECURE, None, services).await?;
    ensure!(bare.status == 401, "{bare:?}");
    let authorized = node.get(SECURE, Some(&reader), services).await?;
    ensure!(authorized.status == 200, "{authorized:?}");
    let nobody =
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "curl", "-s", "-o", "/dev/null"];
    let url = format!("{LOOPBACK}{services}");
    let nobody = node.inside(&[&nobody[..], &["-w", "%{http_code}", &url]].concat()).await?;
    ensure!(nobody.stdout == "401", "another local user than root acts as the node: {nobody:?}");

    pods_of_the_host_network_are_not_the_node(&node).await?;

    waiting_pod(NAMESPACE, "stranger", node.name).await?;
    runs(NAMESPACE, "stranger").await?;

    // From a pod in the pod network, and from another host of the site: HTTPS asks who it is, plain HTTP is not there.
    hack_cluster(&["leave", "e2e-callers-2"]).await?.ok()?;
    hack_cluster(&["join", "e2e-callers-2", "--edge", "--site", "9"]).await?.ok()?;
    let address = internal_ip(node.name).await?;
    for (server, status) in
        [(format!("https://{address}:10268"), "401"), (format!("http://{address}:10261"), "000")]
    {
        let url = format!("{server}{services}");
        let curl = ["curl", "-skm3", "-o", "/dev/null", "-w", "%{http_code}", &url];
        let pod = node.in_network_of("stranger", &curl).await?;
        ensure!(pod.stdout == status, "{url} from a pod: {pod:?}");
        let other = hack_cluster(&[&["exec", "e2e-callers-2", "--"][..], &curl].concat()).await?;
        ensure!(other.stdout == status, "{url} from another host: {other:?}");
    }
    hack_cluster(&["leave", "e2e-callers-2"]).await?.ok()?;
    node.leave().await
}

/// Root in a pod that shares the node's network calls from the same address as the kubelet, as the same user.
async fn pods_of_the_host_network_are_not_the_node(node: &HubNode) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "intruder", "namespace": NAMESPACE },
        "spec": {
            "nodeName": node.name, "hostNetwork": true, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "image": "isthmus.dev/busybox:1", "securityContext": { "runAsUser": 0 },
                "command": ["sh", "-c", "exec sleep 2147483647"],
            }],
        },
    });
    kubectl_apply(&pod.to_string()).await?.ok()?;
    runs(NAMESPACE, "intruder").await?;
    // Its wget dies of an address; nc does not, but ends at the end of its input.
    let ask = |header: &str| {
        let request = format!("GET /api/v1/services HTTP/1.0\\r\\nHost: 127.0.0.1\\r\\n{header}\\r\\n");
        format!("(printf \"{request}\"; sleep 1) | nc -w 2 127.0.0.1 10261")
    };
    let bare = node.within("intruder", &ask("")).await?;
    ensure!(
        bare.stdout.contains(" 401 ") && bare.stdout.contains("--node-pods"),
        "root in a pod acts as the node: {bare:?}"
    );
    let own = "Authorization: Bearer $(cat /var/run/secrets/kubernetes.io/serviceaccount/token)\\r\\n";
    let itself = node.within("intruder", &ask(own)).await?;
    let name = format!("system:serviceaccount:{NAMESPACE}:default");
    ensure!(
        itself.stdout.contains(" 403 ") && itself.stdout.contains(&name),
        "by its token a pod is itself: {itself:?}"
    );
    Ok(())
}
