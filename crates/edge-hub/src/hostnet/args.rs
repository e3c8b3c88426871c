//! The command line of `edge-hub hostnet`.

use std::path::PathBuf;

/// Set this node up for a host-network pool, undo that, or check it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = daemon::exit::HELP)]
pub struct HostnetArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: HostnetCommand,

    /// Where things are on this node.
    #[command(flatten)]
    pub paths: Paths,
}

/// What to do with this node's network set-up.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum HostnetCommand {
    /// Make the loopback the only network that the container runtime knows.
    ///
    /// Writes 0-loopback.conf and sets the other CNI configurations aside. A second run finds nothing to do; a run after
    /// a crash completes what was begun. containerd and CRI-O notice by themselves. Pods that run already keep their
    /// network: drain the node first. What else the node needs, such as labels that its kubelet registers it with, is said.
    #[command(after_help = daemon::exit::HELP)]
    Enable {
        /// Print what would be changed, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Undo exactly what `enable` did.
    #[command(after_help = daemon::exit::HELP)]
    Disable {
        /// Print what would be changed, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Check that this node is fit for a host-network pool; exit code 1 if it is not.
    #[command(after_help = daemon::exit::HELP)]
    Check {
        /// How to print the result.
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: OutputFormat,
    },
}

/// How to print the result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// One line a check, for people.
    Text,
    /// One JSON object, for programs.
    Json,
}

/// Where things are on this node.
#[derive(Clone, Debug, clap::Args)]
pub struct Paths {
    /// The folder of CNI configurations.
    #[arg(long, global = true, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,

    /// Where edge-hub keeps the record of what it changed.
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/edge-hub/hostnet")]
    pub state_dir: PathBuf,

    /// A folder of CNI plugins; may be given more than once.
    #[arg(
        long = "cni-bin-dir",
        global = true,
        value_name = "DIR",
        value_delimiter = ',',
        default_values = ["/opt/cni/bin", "/usr/lib/cni"]
    )]
    pub cni_bin_dirs: Vec<PathBuf>,

    /// The kubelet's configuration file, a `KubeletConfiguration`.
    #[arg(long, global = true, value_name = "FILE", default_value = "/var/lib/kubelet/config.yaml")]
    pub kubelet_config: PathBuf,

    /// A file of environment variables with flags of the kubelet; may be given more than once.
    #[arg(
        long = "kubelet-flags-file",
        global = true,
        value_name = "FILE",
        value_delimiter = ',',
        default_values = ["/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"]
    )]
    pub kubelet_flags_files: Vec<PathBuf>,
}
