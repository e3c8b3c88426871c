//! Generated files: what is generated, and whether what is committed is the same.
//!
//! Generated files are committed so that users can read and apply them without building anything.

mod cli;
mod crds;
mod transcode;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::workspace;

/// A generated file.
pub(crate) struct Generated {
    /// Relative to the root of the workspace.
    pub(crate) path: PathBuf,
    pub(crate) content: String,
}

/// All generated files.
pub(crate) fn generated() -> anyhow::Result<Vec<Generated>> {
    let mut files = crds::files()?;
    files.extend(cli::files());
    Ok(files)
}

/// Writes all generated files.
pub(crate) fn write() -> anyhow::Result<()> {
    for Generated { path, content } in generated()? {
        let full = workspace::root().join(&path);
        if let Some(folder) = full.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        if fs::read_to_string(&full).ok().as_ref() != Some(&content) {
            fs::write(&full, content).with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote {}", path.display());
        }
    }
    transcode::write()
}

/// Fails, with their names, if generated files are not as they would be written.
pub(crate) fn check() -> anyhow::Result<()> {
    let stale = stale()?;
    if !stale.is_empty() {
        let names: Vec<_> = stale.iter().map(|path| format!("  {}", path.display())).collect();
        bail!(
            "these files are not what the code generates; run `cargo xtask codegen`:\n{}",
            names.join("\n")
        );
    }
    Ok(())
}

/// The generated files that are missing or differ, and files that nothing generates any more.
pub(crate) fn stale() -> anyhow::Result<Vec<PathBuf>> {
    let files = generated()?;
    let differs = |file: &&Generated| {
        fs::read(workspace::root().join(&file.path)).ok().as_deref() != Some(file.content.as_bytes())
    };
    let mut stale: Vec<PathBuf> = files.iter().filter(differs).map(|file| file.path.clone()).collect();
    for folder in crds::FOLDERS {
        let Ok(present) = fs::read_dir(workspace::root().join(folder)) else { continue };
        let left_over = present.flatten().map(|entry| PathBuf::from(folder).join(entry.file_name()));
        stale.extend(left_over.filter(|path| !files.iter().any(|file| file.path == *path)));
    }
    stale.extend(transcode::stale()?);
    Ok(stale)
}
