//! The hub under test: a process of this machine with the administrator's certificate, whose link is a relay.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use e2e::{kubectl, run};
use jiff::Timestamp;
use kube::Config;
use serde_json::Value;
use tls::issue::CertificateAuthority;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::client::Client;
use super::instrument;
use crate::process::Process;

/// How Go's clients ask for built-in kinds.
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Where a hub keeps its files, and how it is started.
pub(super) struct Node {
    binary: PathBuf,
    folder: PathBuf,
    proxy: u16,
    secure: u16,
    admin: u16,
    server: String,
    /// The authority of what it serves by HTTPS.
    authority: Vec<u8>,
}

/// A hub that runs, until it is dropped.
pub(super) struct Running {
    child: Child,
    pub(super) process: Process,
    pub(super) client: Client,
}

/// Host and port of the API server in use.
pub(super) async fn api_server() -> Result<String> {
    let url = config("{.clusters[0].cluster.server}").await?;
    Ok(url.strip_prefix("https://").context("the API server's address")?.to_owned())
}

/// Of the kubeconfig in use: the authority's certificate, the user's, and its key.
pub(super) async fn certificates() -> Result<[String; 3]> {
    let decoded = async |path| {
        let text = base64::engine::general_purpose::STANDARD.decode(config(path).await?)?;
        anyhow::Ok(String::from_utf8(text)?)
    };
    Ok([
        decoded("{.clusters[0].cluster.certificate-authority-data}").await?,
        decoded("{.users[0].user.client-certificate-data}").await?,
        decoded("{.users[0].user.client-key-data}").await?,
    ])
}

async fn config(path: &str) -> Result<String> {
    kubectl(&["config", "view", "--raw", "--minify", "-o", &format!("jsonpath={path}")]).await?.ok()
}

impl Node {
    /// A hub with the certificates of the kubeconfig in use, and nothing stored.
    pub(super) async fn prepare(binary: &Path, link: SocketAddr) -> Result<Self> {
        Self::with(binary, link, certificates().await?).await
    }

    /// A hub with these certificates: the authority's, its own, and its key.
    pub(super) async fn with(binary: &Path, link: SocketAddr, certificates: [String; 3]) -> Result<Self> {
        let folder = format!("isthmus-bench-hub-{}-{}", std::process::id(), link.port());
        let folder = std::env::temp_dir().join(folder);
        // Keys come into it.
        run("mkdir", &["-p", "-m", "700", &folder.to_string_lossy()], "").await?.ok()?;
        for (name, text) in ["ca.crt", "client.crt", "client.key"].into_iter().zip(certificates) {
            std::fs::write(folder.join(name), text)?;
        }
        let (now, days) = (Timestamp::now(), Duration::from_hours(48));
        let authority = CertificateAuthority::generate("bench", days, now)?;
        let serving = authority.issue(&["localhost".to_owned()], days, now)?;
        std::fs::write(folder.join("serving.crt"), serving.certificate.to_pem())?;
        tls::private_file::write(&folder.join("serving.key"), serving.key.expose().as_bytes())?;
        Ok(Self {
            binary: binary.canonicalize().with_context(|| format!("{}", binary.display()))?,
            folder,
            authority: authority.certificate().der().to_vec(),
            proxy: free_port()?,
            secure: free_port()?,
            admin: free_port()?,
            server: format!("https://{link}"),
        })
    }

    /// Starts the hub as any program, and does not wait for it.
    pub(super) fn start(&self) -> Result<Running> {
        self.start_by(Command::new(&self.binary))
    }

    /// The same before the benchmark's writers, which are no part of its node, as its clients are.
    pub(super) fn start_first(&self) -> Result<Running> {
        let mut command = Command::new(instrument::FIRST[0]);
        command.args(&instrument::FIRST[1..]).arg(&self.binary);
        self.start_by(command)
    }

    fn start_by(&self, mut command: Command) -> Result<Running> {
        let Self { binary, folder, proxy, secure, admin, server, authority: _ } = self;
        let file = |name: &str| folder.join(name).display().to_string();
        let log = std::fs::File::create(folder.join("log"))?;
        let child = command
            .args(["run", "--node-name", "bench", "--server-addr", server])
            .args(["--ca-file", &file("ca.crt"), "--client-cert-file", &file("client.crt")])
            .args(["--client-key-file", &file("client.key"), "--root-dir", &file("root")])
            .args(["--serving-cert-file", &file("serving.crt"), "--serving-key-file", &file("serving.key")])
            .args(["--proxy-secure-port", &secure.to_string()])
            .args(["--proxy-port", &proxy.to_string(), "--serve-port", &admin.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {}", binary.display()))?;
        let process = Process(child.id().context("the hub ended")?);
        Ok(Running { child, process, client: Client { port: *proxy } })
    }

    /// How a program of the node reaches it by HTTPS, with a token.
    pub(super) fn https(&self, token: &str) -> Result<Config> {
        let mut config = Config::new(format!("https://localhost:{}", self.secure).parse()?);
        config.root_cert = Some(vec![self.authority.clone()]);
        config.auth_info.token = Some(token.to_owned().into());
        Ok(config)
    }

    /// Removes the folder.
    pub(super) fn remove(self) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.folder)?)
    }

    /// What the hub said last.
    pub(super) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Running {
    /// Ends it as a loss of power to the process would.
    pub(super) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Waits until a list of `path` has `count` objects; says how many came at last, and when.
    pub(super) async fn holds(&self, path: &str, count: usize, within: Duration) -> (usize, Instant) {
        let until = Instant::now() + within;
        loop {
            let answer = self.client.get(path, PROTOBUF).await;
            let at = Instant::now();
            let held =
                answer.map_or(0, |answer| if answer.status == 200 { answer.protobuf_objects() } else { 0 });
            if held >= count || at >= until {
                return (held, at);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A port that nobody listens on now.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The value of `metadata.resourceVersion` at the head of a list.
pub(super) fn version_of(list: &[u8]) -> Result<String> {
    let list: Value = serde_json::from_slice(list)?;
    Ok(list["metadata"]["resourceVersion"].as_str().context("no version")?.to_owned())
}
