//! The table of `kube_wire::transcode`, from the published Go types of the Kubernetes release that `hack/tools` names.
//!
//! Input is Go's module cache, read without running Go's compiler and without a network. Where the modules are not there,
//! nothing is written and nothing compared: the committed table is what counts.

mod go_source;
mod schema;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::workspace;

/// The generated file, relative to the root of the workspace.
const TABLE: &str = "crates/kube-wire/src/transcode/table.bin";

/// The pins of the cluster's tools; the table is of the same release.
const PINS: &str = "hack/tools/kubernetes/go.mod";

/// The folders of the modules that hold published types.
pub(super) struct Modules {
    cache: PathBuf,
    version: String,
}

impl Modules {
    /// The modules, if they are all in Go's module cache.
    fn find() -> anyhow::Result<Result<Self, String>> {
        let pins = fs::read_to_string(workspace::root().join(PINS))
            .with_context(|| format!("cannot read {PINS}"))?;
        let version = pins
            .lines()
            .find_map(|line| line.trim().strip_prefix("k8s.io/api "))
            .and_then(|rest| rest.split(' ').next())
            .with_context(|| format!("{PINS} does not require k8s.io/api"))?;
        let Ok(output) = Command::new("go").args(["env", "GOMODCACHE"]).output() else {
            return Ok(Err("there is no go".to_owned()));
        };
        let cache = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let modules = Self { cache, version: version.to_owned() };
        for module in schema::MODULES {
            let folder = modules.folder(module);
            if !folder.is_dir() {
                return Ok(Err(format!("{} is not in Go's module cache", folder.display())));
            }
        }
        Ok(Ok(modules))
    }

    /// The folder of a module or package.
    pub(super) fn folder(&self, import_path: &str) -> PathBuf {
        for module in schema::MODULES {
            if let Some(rest) = import_path.strip_prefix(module) {
                return self
                    .cache
                    .join(format!("{module}@{}", self.version))
                    .join(rest.trim_start_matches('/'));
            }
        }
        self.cache.join(import_path)
    }
}

/// Writes the table.
pub(super) fn write() -> anyhow::Result<()> {
    match generate()? {
        Ok(content) => {
            let full = workspace::root().join(TABLE);
            if fs::read(&full).ok().as_ref() != Some(&content) {
                fs::write(&full, &content).with_context(|| format!("cannot write {TABLE}"))?;
                println!("wrote {TABLE}, {} bytes", content.len());
            }
        }
        Err(reason) => println!("left {TABLE} as it is: {reason}; hack/build-tools fetches the modules"),
    }
    Ok(())
}

/// The table's path, if it is not what would be written.
pub(super) fn stale() -> anyhow::Result<Option<PathBuf>> {
    match generate()? {
        Ok(content) => {
            let same = fs::read(workspace::root().join(TABLE)).ok().as_ref() == Some(&content);
            Ok((!same).then(|| Path::new(TABLE).to_owned()))
        }
        Err(reason) => {
            println!("did not compare {TABLE}: {reason}");
            Ok(None)
        }
    }
}

/// The table, or why it cannot be generated here.
fn generate() -> anyhow::Result<Result<Vec<u8>, String>> {
    match Modules::find()? {
        Ok(modules) => Ok(Ok(table::encode(&schema::read(&modules)?)?)),
        Err(reason) => Ok(Err(reason)),
    }
}
