//! `edge-hub manifest`: prints what starts the hub on a node, as a systemd unit or a static pod. It writes nothing.
//!
//! The options of `edge-hub run` are taken as they are and checked first, but for the files that they name, which are the node's.

mod static_pod;
mod systemd;

use std::{
    io::{self, Write},
    net::IpAddr,
    path::{Component, Path, PathBuf},
};

use clap::Parser;

use crate::{Args, Command, run::RunArgs, upstream::Endpoint};

/// Arguments of `manifest`.
#[derive(Clone, Debug, clap::Args)]
pub struct ManifestArgs {
    /// For what.
    #[arg(value_enum)]
    pub form: Form,

    /// Where the binary is: on the node, /usr/local/bin/edge-hub if not given (systemd), or in the image, /edge-hub (static pod).
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,

    /// Image of the static pod.
    #[arg(long, value_name = "IMAGE", required_if_eq("form", "static-pod"))]
    pub image: Option<String>,

    /// The static pod resolves names by cluster DNS: for the node of a gateway, so that who comes by the tunnel reaches Services by name.
    /// Not for nodes of the edge, which go on without the cluster. The API servers must be given by address.
    #[arg(long)]
    pub cluster_dns: bool,

    /// Options of `edge-hub run`, after `--`.
    #[arg(last = true, required = true, value_name = "RUN-OPTIONS")]
    pub options: Vec<String>,
}

/// What starts the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// A unit for /etc/systemd/system/edge-hub.service.
    Systemd,
    /// A manifest for the kubelet's folder of static pods, /etc/kubernetes/manifests.
    StaticPod,
}

impl Form {
    /// Where the binary is unless another place is given: where it is installed by hand, and where `cargo xtask dist` puts it in the image.
    const fn binary(self) -> &'static str {
        match self {
            Self::Systemd => "/usr/local/bin/edge-hub",
            Self::StaticPod => "/edge-hub",
        }
    }
}

/// Why nothing is printed.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The options would not start a hub.
    #[error("the options after -- are not those of edge-hub run: {0}; `edge-hub run --help` tells of each")]
    Options(String),
    /// A character that cannot be written so that it is read back.
    #[error("{0:?} has a control character, which a unit cannot hold")]
    Control(String),
    /// A unit and a container have another working folder than this command.
    #[error("{0:?} is no absolute path: write the path from / on, as it is on the node")]
    Relative(PathBuf),
    /// The unit has the node's resolver.
    #[error("--cluster-dns is of a static pod; a unit resolves names as the node does")]
    ClusterDnsOfUnit,
    /// A unit has a binary.
    #[error("--image is of a static pod; the unit's binary is --binary")]
    ImageOfUnit,
    /// The unit keeps the process out of folders that are users' or temporary.
    #[error(
        "{path:?} is below {folder}, which the unit hides from the hub: put it elsewhere, as below /etc/edge-hub or /var/lib"
    )]
    Hidden {
        /// The path.
        path: PathBuf,
        /// What is hidden.
        folder: &'static str,
    },
    /// The hub makes its socket anew at each start, and writes in its own folder alone.
    #[error(
        "--tunnel-egress-socket: {socket} is not below --root-dir, the only folder that the hub may write in: put it there, as {root}/egress/egress.sock"
    )]
    ReadOnly {
        /// The socket.
        socket: PathBuf,
        /// The hub's folder.
        root: PathBuf,
    },
    /// The folder of a file is mounted, and the container has a root of its own.
    #[error(
        "{0:?} lies directly in /, which the static pod would mount over its own: put it in a folder, as below /etc/edge-hub or /var/lib"
    )]
    InRoot(PathBuf),
    /// Cluster DNS may need the hub, and the hub would need it.
    #[error(
        "with --cluster-dns the hub must find the API server without any DNS: give --server-addr an address in the place of {0}"
    )]
    ServerName(String),
    /// It cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Prints.
pub fn run(args: &ManifestArgs, out: &mut dyn Write) -> Result<(), ManifestError> {
    let ManifestArgs { form, binary, image, cluster_dns, options } = args;
    let typed = ["edge-hub", "run"].into_iter().map(str::to_owned).chain(options.iter().cloned());
    let parsed =
        Args::try_parse_from(typed).map_err(|error| ManifestError::Options(what_is_wrong(&error)))?;
    let Command::Run(run) = parsed.command else {
        return Err(ManifestError::Options("another command".to_owned()));
    };
    run.check_words().map_err(|error| ManifestError::Options(error.to_string()))?;
    if let Some(bad) = options.iter().find(|option| option.chars().any(char::is_control)) {
        return Err(ManifestError::Control(bad.clone()));
    }
    let (root, socket) = (run.cache.root_dir.as_path(), run.tunnel.tunnel_egress_socket.as_deref());
    let paths = || read_only(&run).into_iter().chain([root]).chain(binary.as_deref());
    let is_loaded = |path: &Path| *form == Form::Systemd && systemd::is_credential(path);
    if let Some(relative) = paths().chain(socket).find(|path| !path.is_absolute() && !is_loaded(path)) {
        return Err(ManifestError::Relative(relative.to_owned()));
    }
    if let Some(socket) = socket.filter(|socket| !is_below(root, socket)) {
        return Err(ManifestError::ReadOnly { socket: socket.to_owned(), root: root.to_owned() });
    }
    if *form == Form::Systemd {
        if *cluster_dns {
            return Err(ManifestError::ClusterDnsOfUnit);
        }
        if image.is_some() {
            return Err(ManifestError::ImageOfUnit);
        }
        let hidden = |path: &Path| systemd::HIDDEN.into_iter().find(|folder| path.starts_with(folder));
        if let Some((path, folder)) = paths().find_map(|path| Some((path, hidden(path)?))) {
            return Err(ManifestError::Hidden { path: path.to_owned(), folder });
        }
    } else if let Some(path) = static_pod::in_root(&run) {
        return Err(ManifestError::InRoot(path.to_owned()));
    }
    if *cluster_dns {
        let names = run.server_addr.iter().map(Endpoint::host);
        if let Some(name) = names.into_iter().find(|host| host.parse::<IpAddr>().is_err()) {
            return Err(ManifestError::ServerName(name.to_owned()));
        }
    }
    let image = image.as_deref().unwrap_or_default();
    let binary = binary.as_deref().unwrap_or_else(|| Path::new(form.binary()));
    let text = match form {
        Form::Systemd => systemd::unit(binary, &run, options),
        Form::StaticPod => static_pod::pod(binary, image, *cluster_dns, &run, options),
    };
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// What the parser says, in a line of its own; the usage that it shows after that is of a command that was not typed.
fn what_is_wrong(error: &clap::Error) -> String {
    if !error.use_stderr() {
        return "they ask for help or the version".to_owned();
    }
    let said = error.to_string();
    let before = said.split("\n\nUsage:").next().unwrap_or_default();
    let parts = before.trim_start_matches("error: ").split("\n\n").map(str::trim);
    let parts = parts.filter(|part| !part.is_empty() && !part.starts_with("For more information"));
    let lines = parts.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("; ")
}

/// Whether a file is in this folder, or in one of its folders, as it is written.
fn is_below(folder: &Path, file: &Path) -> bool {
    let leaves = file.components().any(|part| part == Component::ParentDir);
    !leaves && file != folder && file.starts_with(folder)
}

/// How long the hub may take to end: with the tunnel, streams of others are let go on for a while.
fn stop_seconds(run: &RunArgs) -> u64 {
    if run.tunnel.tunnel { 10 + crate::run::TUNNEL_DRAIN.as_secs() } else { 10 }
}

/// Files that the hub reads and does not write.
fn read_only(run: &RunArgs) -> Vec<&Path> {
    let (identity, listeners) = (&run.identity, &run.listeners);
    let given = [
        // With a digest the authority is kept under --root-dir.
        identity.ca_cert_hash.is_empty().then_some(&identity.ca_file),
        Some(&identity.client_cert_file),
        identity.client_key_file.as_ref(),
        identity.bootstrap_token_file.as_ref(),
        listeners.serving_cert_file.as_ref(),
        listeners.serving_key_file.as_ref(),
        run.cache.config.as_ref(),
        run.cache.storage_key_file.as_ref(),
        run.tunnel.tunnel_client_ca_file.as_ref(),
    ];
    // A container sees its own cgroup alone there, and not the pods'.
    let proxy = run.tunnel.tunnel || run.cache.config.is_some();
    let looked_at = run.node_metric.node_metric || !listeners.node_pods || proxy;
    let cgroups = looked_at.then_some(Path::new("/sys/fs/cgroup/cgroup.controllers"));
    given.into_iter().flatten().map(PathBuf::as_path).chain(cgroups).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn printed(form: &str, options: &[&str]) -> Result<String, ManifestError> {
        printed_with(&[form], options)
    }

    pub(super) fn printed_with(form: &[&str], options: &[&str]) -> Result<String, ManifestError> {
        let image = ["--image", "isthmus.dev/edge-hub:1"];
        let image = if form.contains(&"systemd") { &[][..] } else { &image };
        let words = [&["edge-hub", "manifest"], image, form, &["--"], options].concat();
        let Command::Manifest(args) = Args::try_parse_from(words).unwrap().command else { unreachable!() };
        let mut out = Vec::new();
        run(&args, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn what_would_not_start_is_not_printed() {
        for options in
            [&["--node-name", "a"][..], &["--node-name", "a", "--server-addr", "https://a:1", "--nonsense"]]
        {
            let Err(ManifestError::Options(why)) = printed("systemd", options) else { panic!("{options:?}") };
            assert!(!why.contains("Usage") && !why.contains('\n') && !why.starts_with("error"), "{why}");
        }
        let Err(ManifestError::Options(why)) = printed("systemd", &["--node-name", "a", "--server-adr", "x"])
        else {
            panic!()
        };
        assert_eq!(
            why,
            "unexpected argument '--server-adr' found; tip: a similar argument exists: '--server-addr'"
        );
        for (option, value) in [
            ("--pool-scope-resources", "nodes"),
            ("--pass-through-resources", "v1/pods"),
            ("--disabled-resource-filters", "foo"),
            ("--freshness", "bla=strict"),
            ("--nodepool-name", "Shop_1"),
            ("--nodepool-name", "b\nc"),
            ("--nodepool-name", "a-pool-of-more-than-63-characters-can-have-no-nodes-as-it-is-a-label"),
            ("--nodepool-name", ""),
            ("--bootstrap-token-file", "/t"),
            ("--serve-port", "10261"),
        ] {
            let words = ["--node-name", "a", "--server-addr", "https://a:1", option, value];
            let Err(ManifestError::Options(why)) = printed("systemd", &words) else {
                panic!("{option} {value}")
            };
            assert!(why.contains(option), "{why}");
        }
        let named = |name, option, value| {
            printed("systemd", &["--node-name", name, "--server-addr", "https://a:1", option, value])
        };
        assert!(matches!(named("a", "--root-dir", "/b\nc"), Err(ManifestError::Control(_))));
        for name in ["Shop 1", "a_b", "a\nb", ""] {
            assert!(matches!(named(name, "--root-dir", "/d"), Err(ManifestError::Options(_))), "{name}");
        }
        for option in ["--root-dir", "--config", "--ca-file", "--client-cert-file", "--tunnel-egress-socket"]
        {
            let Err(ManifestError::Relative(path)) = named("a", option, "here/it") else {
                panic!("{option}")
            };
            assert_eq!(path, Path::new("here/it"));
        }
        for (option, path, hides) in [
            ("--ca-file", "/root/ca.crt", Some("/root")),
            ("--config", "/home/me/hub.yaml", Some("/home")),
            ("--root-dir", "/tmp/hub", Some("/tmp")),
            ("--root-dir", "/var/tmp/hub", Some("/var/tmp")),
            ("--root-dir", "/var/tmpfiles/hub", None),
        ] {
            let folder = match named("a", option, path) {
                Err(ManifestError::Hidden { folder, .. }) => Some(folder),
                printed => printed.map(|_| None).unwrap(),
            };
            assert_eq!(folder, hides, "{option} {path}");
        }
        let words = ["systemd", "--image", "isthmus.dev/edge-hub:1"];
        let with_image = printed_with(&words, &["--node-name", "a", "--server-addr", "https://a:1"]);
        assert!(matches!(with_image, Err(ManifestError::ImageOfUnit)));
    }

    #[test]
    fn the_socket_is_where_the_hub_may_write() {
        let usual = "/var/lib/edge-hub";
        for (root, socket, is_printed) in [
            (usual, "/var/lib/edge-hub/egress/egress.sock", true),
            (usual, "/var/lib/edge-hub/egress.sock", true),
            ("/srv/hub", "/srv/hub/egress/egress.sock", true),
            ("/srv/hub", "/var/lib/edge-hub/egress/egress.sock", false),
            (usual, "/run/x/x.sock", false),
            (usual, "/tmp/x.sock", false),
            (usual, "/var/lib/edge-hub-2/x.sock", false),
            (usual, "/var/lib/edge-hub/../x.sock", false),
            (usual, usual, false),
        ] {
            for form in ["systemd", "static-pod"] {
                let words = ["--node-name", "a", "--server-addr", "https://a:1", "--tunnel"];
                let words = [&words[..], &["--root-dir", root, "--tunnel-egress-socket", socket]].concat();
                match printed(form, &words) {
                    Ok(_) => assert!(is_printed, "{form} {root} {socket}"),
                    Err(refused @ ManifestError::ReadOnly { .. }) => {
                        assert!(!is_printed, "{form} {root} {socket}");
                        let remedy = format!("{root}/egress/egress.sock");
                        assert!(refused.to_string().ends_with(&remedy), "{refused}");
                    }
                    Err(other) => panic!("{form} {root} {socket}: {other}"),
                }
            }
        }
    }
}
