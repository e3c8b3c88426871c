//! What a test makes outside its namespace goes when the test ends, however it ends.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use crate::repository;

/// How many seconds a command may take, as `timeout` has it: what waits for ever, such as for an object with a finalizer, is told as left behind.
const LONGEST: &str = "180";

/// Commands that put the cluster back as it was. They run when this is dropped, the last that was added first, and block.
#[derive(Debug, Default)]
pub struct Cleanup {
    commands: Vec<(OsString, Vec<String>)>,
}

impl Cleanup {
    /// Runs kubectl with these words at the end.
    #[must_use]
    pub fn kubectl(words: &[&str]) -> Self {
        let mut cleanup = Self::default();
        cleanup.add("kubectl", words);
        cleanup
    }

    /// Runs `hack/cluster` with these words at the end.
    #[must_use]
    pub fn hack_cluster(words: &[&str]) -> Self {
        let mut cleanup = Self::default();
        cleanup.add(repository().join("hack/cluster"), words);
        cleanup
    }

    /// Runs nothing: the test has done it.
    pub fn forget(mut self) {
        self.commands.clear();
    }

    /// One more command.
    pub fn add(&mut self, program: impl Into<OsString>, words: &[&str]) {
        self.commands.push((program.into(), words.iter().map(|word| (*word).to_owned()).collect()));
    }
}

impl Drop for Cleanup {
    // What cannot be put back is told beside the failure of the test, and does not hide it.
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        for (program, words) in self.commands.drain(..).rev() {
            let mut command = Command::new("timeout");
            command
                .args(["--kill-after=10", LONGEST])
                .arg(&program)
                .args(&words)
                .current_dir(repository())
                .stdin(Stdio::null());
            match command.output() {
                Ok(output) if output.status.success() => {}
                Ok(output) => eprintln!(
                    "left behind: {} {}: {}: {}",
                    program.to_string_lossy(),
                    words.join(" "),
                    output.status,
                    String::from_utf8_lossy(&output.stderr)
                ),
                Err(error) => eprintln!("left behind: {}: {error}", program.to_string_lossy()),
            }
        }
    }
}
