//! Webhooks that do not look at what they are asked: what the API server itself spends on any webhook.
//!
//! They use the manager's own listener, in the benchmark's process, behind a Service: to a URL of this machine the API server
//! would speak HTTP/2, to Services it speaks HTTP/1.1.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, Config};
use serde::Deserialize;
use serde_json::{Value, json};
use tls::issue::CertificateAuthority;
use tls::listener::{Limits, TlsListener};
use tls::resolver::ServingCertificate;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const NAME: &str = "bench-webhook-baseline";

/// The label by which pods choose a webhook, and the values for one that changes nothing and for one that answers with the
/// same patch for every pod.
pub(super) const LABEL: &str = "bench.isthmus.dev/webhook";
pub(super) const ASKED: &str = "asked";
pub(super) const CHANGED: &str = "changed";

/// The webhooks, served and registered.
pub(super) struct Baseline {
    api: Api<MutatingWebhookConfiguration>,
    _server: JoinSet<()>,
}

/// All that they read: an answer must name the question.
#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
struct Request {
    uid: String,
}

impl Baseline {
    /// Serves and registers them; `patch` is the answer of the second. The Service goes with its namespace.
    pub(super) async fn start(client: Client, namespace: &str, patch: &Value) -> Result<Self> {
        let now = jiff::Timestamp::now();
        let ca = CertificateAuthority::generate(NAME, Duration::from_hours(24), now)?;
        let leaf = ca.issue(&[format!("{NAME}.{namespace}.svc")], Duration::from_hours(12), now)?;
        let serving = ServingCertificate::new();
        serving.install(&leaf.certificate.to_pem(), leaf.key.expose())?;
        // Where the API server is, this process is too; endpoints must not be loopback addresses.
        let host: IpAddr = Config::infer().await?.cluster_url.host().context("host")?.parse()?;
        let socket = TcpListener::bind(SocketAddr::from((host, 0))).await?;
        let port = socket.local_addr()?.port();
        let listener = TlsListener::new(socket, serving.server_config()?, Limits::default());
        let patch = STANDARD.encode(patch.to_string());
        let asked = |body: Bytes| async move { answer(&body, None) };
        let changed = move |body: Bytes| async move { answer(&body, Some(patch)) };
        let router = Router::new().route("/asked", post(asked)).route("/changed", post(changed));
        let mut server = JoinSet::new();
        server.spawn(async move {
            // It never ends by itself; the measurement would say so.
            let _ = axum::serve(listener, router).await;
        });

        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": NAME },
            "spec": { "ports": [{ "name": "webhook", "port": 443, "targetPort": port }] } });
        let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": NAME, "labels": { "kubernetes.io/service-name": NAME } },
            "addressType": "IPv4", "ports": [{ "name": "webhook", "port": port }],
            "endpoints": [{ "addresses": [host.to_string()], "conditions": { "ready": true } }] });
        let apply = PatchParams::apply("bench").force();
        Api::<Service>::namespaced(client.clone(), namespace)
            .patch(NAME, &apply, &Patch::Apply(&service))
            .await?;
        Api::<EndpointSlice>::namespaced(client.clone(), namespace)
            .patch(NAME, &apply, &Patch::Apply(&slice))
            .await?;

        let bundle = STANDARD.encode(ca.certificate().to_pem());
        let webhook = |value: &str| {
            json!({
                "name": format!("{value}.bench.isthmus.dev"),
                "clientConfig": {
                    "service": { "namespace": namespace, "name": NAME, "path": format!("/{value}") }, "caBundle": bundle,
                },
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 3,
                "reinvocationPolicy": "IfNeeded",
                "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] }],
                "objectSelector": { "matchLabels": { LABEL: value } },
            })
        };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": NAME }, "webhooks": [webhook(ASKED), webhook(CHANGED)],
        });
        let api = Api::all(client);
        api.patch(NAME, &apply, &Patch::Apply(&configuration)).await?;
        // Until the API server's watch has it; the first rounds, which are not counted, would show.
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(Self { api, _server: server })
    }

    /// Unregisters them.
    pub(super) async fn stop(self) -> Result<()> {
        self.api.delete(NAME, &DeleteParams::default()).await?;
        Ok(())
    }
}

fn answer(body: &[u8], patch: Option<String>) -> (StatusCode, Json<Value>) {
    let Ok(Review { request: Request { uid } }) = serde_json::from_slice(body) else {
        return (StatusCode::BAD_REQUEST, Json(Value::Null));
    };
    let mut response = json!({ "uid": uid, "allowed": true });
    if let Some(patch) = patch {
        response["patch"] = patch.into();
        response["patchType"] = "JSONPatch".into();
    }
    let review =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
    (StatusCode::OK, Json(review))
}
