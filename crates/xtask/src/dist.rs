//! `cargo xtask dist`: the binaries as they are released, statically linked, and an image of each.
//!
//! Static, so that an image holds nothing but the binary and a node needs nothing to run it.

mod elf;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::workspace;

/// The profile of what is released.
const SMALLEST: &str = "edge";

/// What to build, and how.
#[derive(Debug, Args)]
pub(crate) struct DistArgs {
    /// Profile of all binaries: `edge` is the smallest, on disk and resident.
    #[arg(long, default_value = SMALLEST)]
    profile: String,

    /// Build this binary alone, and its image.
    #[arg(long, value_name = "BIN")]
    only: Option<Binary>,

    /// Build nothing; make the image of this binary, which `dist` has built before.
    #[arg(long, value_name = "BIN", conflicts_with = "only")]
    image_only: Option<Binary>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Binary {
    IsthmusManager,
    EdgeHub,
}

impl Binary {
    const ALL: [Self; 2] = [Self::IsthmusManager, Self::EdgeHub];

    fn name(self) -> &'static str {
        match self {
            Self::IsthmusManager => "isthmus-manager",
            Self::EdgeHub => "edge-hub",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::IsthmusManager => "manager",
            Self::EdgeHub => "edge-hub",
        }
    }

    /// The user of the image's process. The hub writes to its node's `/etc` and talks to its service manager.
    fn user(self) -> &'static str {
        match self {
            Self::IsthmusManager => "65532",
            Self::EdgeHub => "0",
        }
    }

    /// The most that it may weigh in its smallest profile, in bytes: what is mapped of the hub is resident on each node.
    fn size_max(self) -> u64 {
        match self {
            Self::IsthmusManager => 20_000_000,
            Self::EdgeHub => 12_000_000,
        }
    }

    /// Where the built binary is kept.
    fn path(self) -> PathBuf {
        folder().join(self.name())
    }
}

fn folder() -> PathBuf {
    workspace::root().join("dist")
}

/// Builds, checks and packs.
pub(crate) fn run(args: &DistArgs) -> anyhow::Result<()> {
    fs::create_dir_all(folder())?;
    // Who builds beside this one writes the same files. The lock ends with the process.
    let folder_of_all = fs::File::open(folder())?;
    folder_of_all.lock()?;
    if let Some(binary) = args.image_only {
        return image(binary);
    }
    for binary in Binary::ALL.into_iter().filter(|binary| args.only.is_none_or(|only| only == *binary)) {
        build(binary, &args.profile)?;
        image(binary)?;
    }
    Ok(())
}

fn build(binary: Binary, profile: &str) -> anyhow::Result<()> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--locked", "--package", binary.package(), "--bin", binary.name()]);
    cargo.args(["--profile", profile]);
    // Cargo itself says where the binary is, so CARGO_TARGET_DIR and profiles need no care here.
    cargo.arg("--message-format=json-render-diagnostics");
    // Read by daemon::build_info; whoever builds from an archive without git sets it.
    if std::env::var_os("ISTHMUS_COMMIT").is_none()
        && let Some(commit) = commit()
    {
        cargo.env("ISTHMUS_COMMIT", commit);
    }
    let messages = workspace::output(&mut cargo)?;
    let built = executable(&messages, binary.name()).context("cargo built no executable")?;
    elf::ensure_static(&fs::read(&built)?).with_context(|| built.display().to_string())?;
    // One that is linked in a way that its C library does not know would not come to its first line.
    workspace::output(std::process::Command::new(&built).arg("--version"))
        .with_context(|| format!("{} does not start", built.display()))?;
    // Renamed into its place: a cluster may be running the one before.
    let new = binary.path().with_extension("new");
    let (size, most) = (fs::metadata(&built)?.len(), binary.size_max());
    ensure!(profile != SMALLEST || size <= most, "{} has {size} bytes, and may have {most}", built.display());
    fs::copy(&built, &new)?;
    fs::rename(&new, binary.path())?;
    println!("{}: {} KiB, static ({profile})", binary.path().display(), size / 1024);
    Ok(())
}

/// The commit that is built, with `-dirty` if files differ from it; nothing outside of a git repository.
fn commit() -> Option<String> {
    let mut git = std::process::Command::new("git");
    git.current_dir(workspace::root()).args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|commit| !commit.is_empty())
}

/// The path of a binary in cargo's messages, which are JSON, one a line.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut of_binary = artifacts.filter(|message| message["target"]["name"] == name);
    of_binary.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

fn image(binary: Binary) -> anyhow::Result<()> {
    let path = binary.path();
    ensure!(path.exists(), "{} is not there; run `cargo xtask dist` first", path.display());
    let script = workspace::root().join("hack/oci-image");
    if !script.exists() {
        bail!("{} is not there", script.display());
    }
    let name = binary.name();
    let out = folder().join(format!("{name}.tar"));
    let mut command = std::process::Command::new(script);
    command.current_dir(workspace::root());
    command
        .args(["--name", &format!("isthmus.dev/{name}:{}", env!("CARGO_PKG_VERSION"))])
        .arg("--out")
        .arg(&out);
    command.args(["--entrypoint", &format!("[\"/{name}\"]"), "--user", binary.user()]);
    command.arg(format!("{}:/{name}:755", path.display()));
    workspace::run(&mut command)?;
    println!("{}", out.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_the_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"tls"},"executable":null}
            not JSON
            {"reason":"compiler-artifact","target":{"name":"edge-hub"},"executable":"/t/edge-hub"}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "edge-hub"), Some("/t/edge-hub".into()));
        assert_eq!(executable(messages, "isthmus-manager"), None);
    }
}
