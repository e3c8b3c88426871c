//! Which build is running: for the first line of the log, `--version` and the metric `build_info`.

use std::fmt;

/// A build of this workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildInfo {
    /// The workspace's version.
    pub version: &'static str,
    /// The commit built from, or `unknown` outside of a release build (variable `ISTHMUS_COMMIT` at build time).
    pub commit: &'static str,
}

/// The build of this binary.
pub const BUILD: BuildInfo = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("ISTHMUS_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    },
};

impl fmt::Display for BuildInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.version, self.commit)
    }
}
