//! Generated files are what the code generates.

use super::report;
use crate::codegen;

#[test]
fn generated_files_are_up_to_date() {
    let stale: Vec<_> = codegen::stale().unwrap().iter().map(|path| path.display().to_string()).collect();
    report(&stale, "run `cargo xtask codegen` and commit what it writes");
}
