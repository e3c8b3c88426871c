//! Who is who: kubelets know the caller, gateways know nodes, and nobody passes for another.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{EDGE_GATEWAY, GATEWAYS, NAMESPACE, ORDINARY, Reach, SOLO, forward, ground};
use e2e::hub::{LOOPBACK, runs, token};
use e2e::{Finished, eventually, hack_cluster, kubectl, kubectl_apply, run};
use serde_json::json;

/// How a program of the cloud asks the kubelet of a node by the address of the internal Service, which kube-proxy leads to a gateway.
pub(super) async fn words_to_kubelet(node: &str) -> Result<Vec<String>> {
    let service = [
        "-n",
        "kube-system",
        "get",
        "service",
        "x-raven-proxy-internal-svc",
        "-o",
        "jsonpath={.spec.clusterIP}",
    ];
    let address = kubectl(&service).await?.ok()?;
    let authority = hack_cluster(&["path", "cloud-1", "hub-ca"]).await?.ok()?;
    let (resolve, url) = (format!("{node}:10250:{address}"), format!("https://{node}:10250/metrics"));
    let words = ["curl", "-s", "--cacert", authority.trim(), "--resolve", &resolve, &url];
    Ok(words.map(str::to_owned).to_vec())
}

/// What a kubelet answers to a caller of the cloud: the status and the text.
pub(super) async fn ask_kubelet(node: &str, token: Option<&str>) -> Result<(String, String)> {
    let to_kubelet = words_to_kubelet(node).await?;
    let bearer = token.map(|token| format!("Authorization: Bearer {token}"));
    let mut words = vec!["exec", "cloud-1", "--"];
    words.extend(to_kubelet.iter().map(String::as_str));
    words.extend(bearer.iter().flat_map(|bearer| ["-H", bearer.as_str()]));
    words.extend(["-m10", "-w", "\n%{http_code}"]);
    let said = hack_cluster(&words).await?;
    let (body, status) = said.stdout.rsplit_once('\n').with_context(|| format!("{said:?}"))?;
    Ok((status.to_owned(), body.to_owned()))
}

#[tokio::test]
async fn f11_the_kubelet_knows_the_caller() -> Result<()> {
    ground(Reach::Names).await?;
    for node in [EDGE_GATEWAY, ORDINARY, SOLO] {
        let (status, body) = ask_kubelet(node, None).await?;
        ensure!(status == "401", "without credentials: {status} {body}");
        // The kubelet itself says whom it took the caller for.
        let nobody = token("default", "e2e-tunnel-nobody", "system:discovery").await?;
        let (status, body) = ask_kubelet(node, Some(&nobody)).await?;
        ensure!(
            status == "403" && body.contains("user=system:serviceaccount:default:e2e-tunnel-nobody"),
            "without rights: {status} {body}"
        );
        let reader = token("default", "e2e-tunnel-reader", "system:kubelet-api-admin").await?;
        let (status, body) = ask_kubelet(node, Some(&reader)).await?;
        ensure!(status == "200" && body.contains("kubelet_node_name"), "with rights: {status}");
        ensure!(body.contains(&format!("node=\"{node}\"")), "another kubelet than that of {node} answered");
    }
    for name in ["nobody", "reader"] {
        kubectl(&["delete", "clusterrolebinding", &format!("default-e2e-tunnel-{name}")]).await?.ok()?;
        kubectl(&["delete", "serviceaccount", &format!("e2e-tunnel-{name}")]).await?.ok()?;
    }
    Ok(())
}

/// The runtime connects for who may forward ports of a pod with the node's network: as root, outside of the pod, to the node's own loopback.
#[tokio::test]
async fn who_forwards_a_port_of_a_pod_is_not_its_node() -> Result<()> {
    ground(Reach::Names).await?;
    let services = format!("{LOOPBACK}/api/v1/services");
    let node = hack_cluster(&["exec", EDGE_GATEWAY, "--", "curl", "-s", &services]).await?;
    ensure!(node.stdout.contains("ServiceList"), "the node itself is not the node: {node:?}");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "forwarded", "namespace": NAMESPACE },
        "spec": {
            "nodeName": EDGE_GATEWAY, "hostNetwork": true, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "image": "isthmus.dev/busybox:1", "command": ["sh", "-c", "exec sleep 2147483647"],
            }],
        },
    });
    kubectl_apply(&pod.to_string()).await?.ok()?;
    runs(NAMESPACE, "forwarded").await?;
    let forward = forward("forwarded", 10261).await?;
    let url = format!("http://127.0.0.1:{}/api/v1/services", forward.port);
    let told = run("curl", &["-sm10", &url], "").await?;
    ensure!(
        told.stdout.contains("\"code\":401") && told.stdout.contains("container runtime"),
        "who forwards a port acts as the node: {told:?}"
    );
    kubectl(&["-n", NAMESPACE, "delete", "pod", "forwarded"]).await?.ok()?;
    Ok(())
}

/// Shakes hands with a gateway as an agent, from an edge node; what `openssl s_client` said.
pub(super) async fn shake(balancer: &str, certificate: Option<(&str, &str)>) -> Result<String> {
    let authority = hack_cluster(&["path", "cloud-1", "hub-ca"]).await?.ok()?;
    let address = format!("{balancer}:10262");
    let mut words = vec!["exec", ORDINARY, "--", "timeout", "6", "openssl", "s_client", "-connect", &address];
    words.extend([
        "-alpn",
        "isthmus-reverse/1",
        "-CAfile",
        authority.trim(),
        "-servername",
        "gateway.isthmus.internal",
    ]);
    words.extend(["-verify_hostname", "gateway.isthmus.internal", "-verify_return_error", "-ign_eof"]);
    if let Some((certificate, key)) = certificate {
        words.extend(["-cert", certificate, "-key", key]);
    }
    let finished = hack_cluster(&words).await?;
    Ok(finished.stdout + &finished.stderr)
}

#[tokio::test]
async fn f18_who_is_no_endpoint_is_refused() -> Result<()> {
    let ground = ground(Reach::Names).await?;
    let folder = std::env::temp_dir().join(format!("e2e-f18-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = refused(&ground.balancer, &folder).await;
    std::fs::remove_dir_all(&folder)?;
    result
}

async fn refused(balancer: &str, folder: &std::path::Path) -> Result<()> {
    // No certificate.
    let said = shake(balancer, None).await?;
    ensure!(said.contains("alert") && said.contains("certificate"), "without a certificate: {said}");
    // One of another authority, with a name that would do.
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (certificate, key) = (path("other.crt"), path("other.key"));
    let subject = format!("/O=system:nodes/CN=system:node:{EDGE_GATEWAY}");
    run(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &certificate,
            "-subj",
            &subject,
            "-days",
            "2",
            "-addext",
            "extendedKeyUsage=clientAuth",
        ],
        "",
    )
    .await?
    .ok()?;
    let said = shake(balancer, Some((&certificate, &key))).await?;
    ensure!(said.contains("alert"), "with another authority's certificate: {said}");
    // An honest one, of a node that is no endpoint of its pool: the link is closed, and entered nowhere.
    let state = state().await?;
    let of = |node: &str| {
        (
            format!("{state}/nodes/{node}/pki/kubelet-client.crt"),
            format!("{state}/nodes/{node}/pki/kubelet-client.key"),
        )
    };
    let (certificate, key) = of(ORDINARY);
    let began = std::time::Instant::now();
    let said = shake(balancer, Some((&certificate, &key))).await?;
    ensure!(said.contains("Verify return code: 0"), "the gateway's own certificate: {said}");
    ensure!(began.elapsed() < Duration::from_secs(5), "an ordinary node's link stays open: {said}");
    // The same with an endpoint's: the gateway begins to speak HTTP/2.
    let (certificate, key) = of(EDGE_GATEWAY);
    let said = shake(balancer, Some((&certificate, &key))).await?;
    ensure!(
        said.contains("PRI * HTTP/2.0"),
        "an endpoint is refused as well, so the above shows nothing: {said}"
    );
    for gateway in GATEWAYS {
        let report = kubectl(&[
            "-n",
            "kube-system",
            "get",
            "configmap",
            &format!("isthmus-gateway-{gateway}"),
            "-o",
            "yaml",
        ])
        .await?
        .ok()?;
        ensure!(
            !report.contains(&format!("\"{ORDINARY}\"")),
            "{gateway} reports a link of {ORDINARY}: {report}"
        );
    }
    unapproved(folder).await?;
    stays_where_it_is().await?;
    comes_back_where_it_was().await
}

/// Whoever has the key of a node whose Node was deleted registers it where it was, or nowhere, and in no other pool. One that was never here
/// brings its pool.
async fn comes_back_where_it_was() -> Result<()> {
    const POOL: &str = "apps.openyurt.io/nodepool";
    // Of a run before where it was may be written down.
    let name = format!("e2e-f18-{}", std::process::id());
    let _gone = Cleanup::kubectl(&["delete", "node", &name, "--ignore-not-found"]);
    let register = async |labels: &str| {
        let node = format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n");
        let user = format!("system:node:{name}");
        run("kubectl", &["--as", &user, "--as-group", "system:nodes", "create", "-f", "-"], &node).await
    };
    let marks = "openyurt.io/is-edge-worker: \"true\", isthmus.dev/fake: \"true\"";
    register(&format!("{marks}, {POOL}: e2e-first"))
        .await?
        .ok()
        .context("a node that is new, with its pool")?;
    eventually("it is written down where it is", Duration::from_secs(20), || async {
        let path = "jsonpath={.items[*].data}";
        let marked =
            ["-n", "kube-system", "get", "configmaps", "-l", "isthmus.dev/node-places=true", "-o", path];
        let said = kubectl(&marked).await?.ok()?;
        ensure!(said.contains(&format!("\"{name}\":\"e2e-first,\"")), "{said}");
        Ok(())
    })
    .await?;
    kubectl(&["delete", "node", &name]).await?.ok()?;
    for other in [format!("{POOL}: tunnel-b"), "raven.openyurt.io/gateway: tunnel-b".to_owned()] {
        let refused = register(&format!("{marks}, {other}")).await?;
        let said =
            refused.stderr.contains("a node that was here before does not choose another pool or Gateway");
        ensure!(!refused.success && said, "{other}: {refused:?}");
    }
    // As its kubelet has always said it, OpenYurt's label of before with it, which nobody goes by.
    let as_before = format!("{marks}, {POOL}: e2e-first, apps.openyurt.io/desired-nodepool: e2e-other");
    register(&as_before).await?.ok().context("in the pool that it had")?;
    kubectl(&["delete", "node", &name]).await?.ok()?;
    register(marks).await?.ok().context("in no pool")?;
    kubectl(&["delete", "node", &name]).await?.ok().map(drop)
}

/// A node does not put itself behind another pool's Gateway, nor into another pool.
async fn stays_where_it_is() -> Result<()> {
    let user = format!("system:node:{ORDINARY}");
    for label in [
        "raven.openyurt.io/gateway=tunnel-b",
        "apps.openyurt.io/nodepool=tunnel-b",
        "openyurt.io/is-edge-worker=false",
    ] {
        let words = ["--as", &user, "--as-group", "system:nodes", "label", "node", ORDINARY, "--overwrite"];
        let refused = kubectl(&[&words[..], &[label]].concat()).await?;
        let said = refused.stderr.contains("a node does not choose its own pool or Gateway");
        ensure!(!refused.success && said, "{label}: {refused:?}");
    }
    // Nor does it let the manager write for it what it may not: by a record that says what a pool is to give back.
    let record = r#"{"labels":{"raven.openyurt.io/gateway":"x"},"pool":"nowhere","covered":{"labels":{"raven.openyurt.io/gateway":"tunnel-b"}}}"#;
    for annotation in [
        format!("nodepool.openyurt.io/previous-attributes={record}"),
        "nodepool.openyurt.io/unreadable-record-of=tunnel-b".to_owned(),
        "isthmus.dev/hub-bootstrap-token=abcdef".to_owned(),
    ] {
        let words =
            ["--as", &user, "--as-group", "system:nodes", "annotate", "node", ORDINARY, "--overwrite"];
        let refused = kubectl(&[&words[..], &[&annotation]].concat()).await?;
        let said = refused.stderr.contains("a node does not write the record of what its pool put on it");
        ensure!(!refused.success && said, "{annotation}: {refused:?}");
    }
    // What is its own it may change.
    let words = ["--as", &user, "--as-group", "system:nodes", "annotate", "node", ORDINARY, "--overwrite"];
    kubectl(&[&words[..], &["isthmus.dev/e2e-f18=here"]].concat()).await?.ok()?;
    kubectl(&["annotate", "node", ORDINARY, "isthmus.dev/e2e-f18-"]).await?.ok().map(drop)
}

/// The folder of the cluster.
async fn state() -> Result<String> {
    let authority = hack_cluster(&["path", "cloud-1", "hub-ca"]).await?.ok()?;
    Ok(authority.trim().trim_end_matches("/pki/ca.crt").to_owned())
}

/// Gateways' certificates that are asked for by who is not the node, or has no right to the name.
async fn unapproved(folder: &std::path::Path) -> Result<()> {
    // Another node, as whom the key of one may ask: the API server does not even take it, or, as older ones do, it is denied.
    let asked = of_exposed_gateways(folder, GATEWAYS[0]).await?;
    let _gone = Cleanup::kubectl(&["delete", "csr", "e2e-f18", "--ignore-not-found"]);
    kubectl(&["delete", "csr", "e2e-f18", "--ignore-not-found"]).await?.ok()?;
    let created = asked_by(ORDINARY, &asked).await?;
    if created.success {
        denied("RequesterNotEntitled").await.context("of another node")?;
        kubectl(&["delete", "csr", "e2e-f18"]).await?.ok()?;
    } else {
        let said = created.stderr.contains("can only create a node CSR");
        ensure!(said, "refused for another reason than who asks: {created:?}");
    }
    // The tests' own user may do all; a gateway's certificate it must not get.
    kubectl_apply(&asked).await?.ok()?;
    denied("RequesterNotEntitled").await?;
    kubectl(&["delete", "csr", "e2e-f18"]).await?.ok()?;
    // An endpoint of the edge that is active asks for itself and with its own key, and has no right to the name of the cloud's.
    let asked = of_exposed_gateways(folder, EDGE_GATEWAY).await?;
    asked_by(EDGE_GATEWAY, &asked).await?.ok()?;
    denied("NameOfAnotherGateway").await.context("of an endpoint of the edge")
}

/// Creates it as the key of that node does.
async fn asked_by(node: &str, asked: &str) -> Result<Finished> {
    let user = format!("system:node:{node}");
    run("kubectl", &["--as", &user, "--as-group", "system:nodes", "create", "-f", "-"], asked).await
}

/// A request for the certificate of an exposed gateway on that node.
async fn of_exposed_gateways(folder: &std::path::Path, node: &str) -> Result<String> {
    let (subject, names) = (
        format!("/O=system:nodes/CN=system:node:{node}"),
        format!("subjectAltName=DNS:gateway.isthmus.internal,DNS:{node}"),
    );
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (request, key) = (path("gateway.csr"), path("gateway.key"));
    let words = [
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        &key,
        "-out",
        &request,
        "-subj",
        &subject,
        "-addext",
        &names,
    ];
    run("openssl", &words, "").await?.ok()?;
    let encoded = run("base64", &["-w0", &request], "").await?.ok()?;
    Ok(format!(
        "apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: e2e-f18}}
spec:
  signerName: kubernetes.io/kubelet-serving
  expirationSeconds: 86400
  usages: [digital signature, server auth]
  request: {encoded}
"
    ))
}

/// All of the request is as a gateway asks, but for this.
async fn denied(reason: &str) -> Result<()> {
    eventually("it is denied", Duration::from_secs(20), || async {
        let path = "jsonpath={.status.conditions[*].type} {.status.conditions[*].reason}";
        let conditions = kubectl(&["get", "csr", "e2e-f18", "-o", path]).await?.ok()?;
        ensure!(conditions == format!("Denied {reason}"), "{conditions:?}");
        Ok(())
    })
    .await
}
