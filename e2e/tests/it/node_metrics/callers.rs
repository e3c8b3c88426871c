//! Who is believed: the API server, by the certificate of its front proxy, whichever it is at the moment (F7); those who come straight, by
//! their token; nobody by what they claim. Beside it what replicas serve changes, too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::long;
use e2e::hub::token;
use e2e::{SYSTEM, eventually, hack_cluster, kubectl, replicas, run};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use super::ground::Ground;
use super::observers::Observers;
use super::{NODE, WARM, serving};

/// The API server sees at once that a file was replaced, and looks once a minute where it did not.
const RELOADED: Duration = Duration::from_secs(70);

/// Replicas follow the ConfigMap; requests go on meanwhile.
const FOLLOWED: Duration = Duration::from_secs(5);

pub(super) const METRICS: &str = "/apis/slo.koordinator.sh/v1beta1/nodemetrics";

#[tokio::test]
async fn front_proxies_change_and_nobody_is_believed_by_their_word() -> Result<()> {
    let ground = Ground::new().await?;
    let observers = Observers::start(&ground).await?;
    straight(&ground).await.context("straight at a replica")?;
    let before = replicas::restarts(&ground.client).await?;
    // Each takes minutes, in which little happens.
    let proxies = async { rotate(&ground, &observers).await.context("F7: another front proxy") };
    let servers = async { serving::rotated(&ground).await.context("F7: another certificate of replicas") };
    tokio::try_join!(proxies, servers)?;
    let failed = observers.failed();
    ensure!(failed.is_empty(), "F7: lists failed: {failed:?}");
    observers.up_to_date(&ground).await?;
    observers.check("F7: another front proxy")?;
    let after = replicas::restarts(&ground.client).await?;
    ensure!(before == after, "restarted: {before:?}, now {after:?}");
    let unavailable = observers.unavailable();
    ensure!(unavailable.is_empty(), "the APIService was not available: {unavailable:?}");
    Ok(())
}

/// Callers without the API server in between, on each replica: the leader and one that hands on to it.
async fn straight(ground: &Ground) -> Result<()> {
    let reader = token(SYSTEM, "e2e-reader", "view").await?;
    let nobody = kubectl(&["-n", SYSTEM, "create", "token", "default"]).await?.ok()?;
    let (reader, nobody) = (bearer(&reader), bearer(nobody.trim()));
    let masters = ["X-Remote-User: admin", "X-Remote-Group: system:masters", "X-Remote-Extra-Scopes: all"];
    let claims = |token: Option<&str>| -> Vec<String> {
        masters.iter().map(|claim| (*claim).to_owned()).chain(token.map(str::to_owned)).collect()
    };
    let cases = [
        ("nobody", Vec::new(), "403"),
        ("a reader", vec![reader.clone()], "200"),
        ("no reader", vec![nobody.clone()], "403"),
        ("no token", vec![bearer("x.y.z")], "401"),
        ("who claims to be a master", claims(None), "403"),
        ("no reader who claims to be a master", claims(Some(&nobody)), "403"),
        ("a reader who claims to be a master", claims(Some(&reader)), "200"),
    ];
    let replicas = replicas::replicas(&ground.client).await?;
    ensure!(replicas.len() >= 2, "{} replicas", replicas.len());
    for pod in &replicas {
        let address =
            pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("no address")?;
        let url = format!("https://{address}:{}{METRICS}", port(pod)?);
        for (who, headers, expected) in &cases {
            let status = ask(&url, "GET", headers).await?;
            ensure!(status == *expected, "{who} is answered {status}, not {expected}");
        }
        // Reading is all that a reader may do, whoever they claim to be.
        let status = ask(&format!("{url}/{NODE}"), "DELETE", &claims(Some(&reader))).await?;
        ensure!(status == "403", "a deletion is answered {status}");
    }
    Ok(())
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

pub(super) fn port(pod: &k8s_openapi::api::core::v1::Pod) -> Result<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some("node-metric"));
    Ok(port.context("no port of NodeMetric")?.container_port)
}

/// Asks from the node, and returns the status.
async fn ask(url: &str, method: &str, headers: &[String]) -> Result<String> {
    let mut words =
        vec!["exec", NODE, "--", "curl", "-skm20", "-o", "/dev/null", "-w", "%{http_code}", "-X", method];
    for header in headers {
        words.extend(["-H", header]);
    }
    words.push(url);
    hack_cluster(&words).await?.ok()
}

/// The files of a front proxy and its authority, as they were; they are put back at the end.
struct FrontProxy {
    folder: PathBuf,
    _restored: Cleanup,
}

impl FrontProxy {
    async fn of_cluster() -> Result<Self> {
        let authority = hack_cluster(&["path", NODE, "hub-ca"]).await?.ok()?;
        let folder = Path::new(authority.trim()).parent().context("no folder of keys")?.to_owned();
        let mut restored = Cleanup::default();
        for file in ["front-proxy-ca.crt", "front-proxy.crt", "front-proxy.key"] {
            let (now, kept) = (folder.join(file), folder.join(format!("{file}.kept")));
            std::fs::copy(&now, &kept)?;
            restored.add("cp", &[&kept.to_string_lossy(), &now.to_string_lossy()]);
        }
        Ok(Self { folder, _restored: restored })
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(file).to_string_lossy().into_owned()
    }

    /// Another authority and a proxy's certificate of it: the files `next-ca.crt`, `next.crt`, `next.key`.
    async fn next(&self) -> Result<()> {
        let (ca, ca_key) = (self.path("next-ca.crt"), self.path("next-ca.key"));
        let (leaf, key, request) = (self.path("next.crt"), self.path("next.key"), self.path("next.csr"));
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let root = [
            "req",
            "-x509",
            "-days",
            "2",
            "-subj",
            "/CN=e2e-next-front-proxy",
            "-keyout",
            &ca_key,
            "-out",
            &ca,
        ];
        run("openssl", &[&root[..], &curve].concat(), "").await?.ok()?;
        let asked = ["req", "-new", "-subj", "/CN=front-proxy-client", "-keyout", &key, "-out", &request];
        run("openssl", &[&asked[..], &curve].concat(), "").await?.ok()?;
        let usage = "extendedKeyUsage=clientAuth";
        let signed = [
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-days",
            "2",
            "-set_serial",
            "77",
        ];
        let signed = [&signed[..], &["-extfile", "/dev/stdin", "-out", &leaf]].concat();
        run("openssl", &signed, usage).await?.ok().map(drop)
    }

    /// Puts a file in place of another at once.
    fn put(&self, file: &str, text: &str) -> Result<()> {
        let aside = self.folder.join(format!("{file}.new"));
        std::fs::write(&aside, text)?;
        Ok(std::fs::rename(aside, self.folder.join(file))?)
    }

    fn text(&self, file: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.join(file))?)
    }
}

/// The front proxy's authority is joined by another, the proxy shows a certificate of that, and the old one goes. No request fails at any of it: were
/// the API server's proxy still the old one when its authority goes, or did a replica not follow, all would from there on.
async fn rotate(ground: &Ground, observers: &Observers) -> Result<()> {
    let none_failed = |when: &str| {
        let failed = observers.failed();
        ensure!(failed.is_empty(), "{when}: lists failed: {failed:?}");
        Ok(())
    };
    let proxy = FrontProxy::of_cluster().await?;
    proxy.next().await?;
    let (old, next) = (proxy.text("front-proxy-ca.crt")?, proxy.text("next-ca.crt")?);
    proxy.put("front-proxy-ca.crt", &format!("{old}{next}"))?;
    published(ground, &[&old, &next]).await?;
    proxy.put("front-proxy.key", &proxy.text("next.key")?)?;
    proxy.put("front-proxy.crt", &proxy.text("next.crt")?)?;
    tokio::time::sleep(RELOADED).await;
    none_failed("while both authorities are known")?;
    // Only a proxy of the next authority is believed from here on.
    proxy.put("front-proxy-ca.crt", &next)?;
    only(ground, &next).await?;
    tokio::time::sleep(FOLLOWED).await;
    none_failed("once the old authority is gone")?;
    eventually("reads are answered", WARM, || async {
        let count = ground.metrics().list(&ListParams::default()).await?.items.len();
        ensure!(count == ground.nodes.len(), "{count} objects");
        Ok(())
    })
    .await?;
    // And back, for the tests that follow: the other way round. While both authorities are known either proxy is believed.
    proxy.put("front-proxy-ca.crt", &format!("{old}{next}"))?;
    published(ground, &[&old, &next]).await?;
    proxy.put("front-proxy.key", &proxy.text("front-proxy.key.kept")?)?;
    proxy.put("front-proxy.crt", &proxy.text("front-proxy.crt.kept")?)?;
    proxy.put("front-proxy-ca.crt", &old)?;
    if long() {
        tokio::time::sleep(RELOADED).await;
        none_failed("while both authorities are known again")?;
        only(ground, &old).await?;
        tokio::time::sleep(FOLLOWED).await;
    }
    none_failed("on the way back")?;
    ground.whole().await
}

const AUTHENTICATION: &str = "extension-apiserver-authentication";
const BUNDLE: &str = "requestheader-client-ca-file";

async fn bundle(ground: &Ground) -> Result<String> {
    let maps = Api::<ConfigMap>::namespaced(ground.client.clone(), "kube-system");
    let mut data = maps.get(AUTHENTICATION).await?.data.unwrap_or_default();
    data.remove(BUNDLE).context("no bundle")
}

/// Waits until the API server tells its extensions of these authorities.
async fn published(ground: &Ground, authorities: &[&str]) -> Result<()> {
    eventually("the authorities of front proxies are published", Duration::from_mins(3), || async {
        let bundle = bundle(ground).await?;
        let all = authorities.iter().all(|authority| bundle.contains(authority.trim()));
        ensure!(all, "not yet: {bundle}");
        Ok(())
    })
    .await
}

/// Takes all other authorities away. The API server joins those that it reads to those that are told until they expire, so this is for
/// an administrator; while it still reads the others it tells of them again at once.
async fn only(ground: &Ground, authority: &str) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(ground.client.clone(), "kube-system");
    let patch = Patch::Merge(json!({ "data": { BUNDLE: authority } }));
    eventually("one authority of front proxies is published", Duration::from_mins(3), || async {
        maps.patch(AUTHENTICATION, &PatchParams::default(), &patch).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let bundle = bundle(ground).await?;
        ensure!(bundle.trim() == authority.trim(), "not yet: {bundle}");
        Ok(())
    })
    .await
}
