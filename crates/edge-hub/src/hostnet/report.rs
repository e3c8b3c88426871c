//! Prints plans and checks.

use std::io::{self, Write};

use serde_json::json;
use similar::TextDiff;

use super::{
    args::OutputFormat,
    check::{self, Check, Status},
    plan::{Operation, Plan},
};

/// Prints what is going to be done, as a patch.
pub(super) fn plan(plan: &Plan, dry_run: bool, out: &mut dyn Write) -> io::Result<()> {
    let Plan { journal: _, operations, notes } = plan;
    for operation in operations {
        match operation {
            Operation::CreateFolder(path) => writeln!(out, "create folder {}", path.display())?,
            Operation::RemoveFolder(path) => {
                writeln!(out, "remove folder {} if it is empty", path.display())?;
            }
            Operation::Rename { from, to } => {
                writeln!(out, "rename from {}\nrename to   {}", from.display(), to.display())?;
            }
            Operation::Sweep(path) => writeln!(out, "remove {}, left by an interrupted run", path.display())?,
            Operation::Write { path, before, content } => {
                let name = path.display().to_string();
                let old = if before.is_some() { &name } else { "/dev/null" };
                diff(before.as_deref().unwrap_or_default(), content, old, &name, out)?;
            }
            Operation::Remove { path, content } => {
                diff(content, "", &path.display().to_string(), "/dev/null", out)?;
            }
        }
    }
    for note in notes {
        writeln!(out, "note: {note}")?;
    }
    match (operations.is_empty(), dry_run) {
        (true, _) => writeln!(out, "nothing to do"),
        (false, true) => writeln!(out, "dry run: nothing was changed"),
        (false, false) => Ok(()),
    }
}

/// Prints that the plan was carried out.
pub(super) fn done(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    if plan.operations.is_empty() { Ok(()) } else { writeln!(out, "done") }
}

fn diff(old: &str, new: &str, old_name: &str, new_name: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{}", TextDiff::from_lines(old, new).unified_diff().header(old_name, new_name))
}

/// Prints what else stands in the way of a host-network pool, after `enable` did its part.
pub(super) fn advice(checks: &[Check], out: &mut dyn Write) -> io::Result<()> {
    for Check { name: _, status, message, remedy } in checks {
        let Some(remedy) = remedy else { continue };
        let word = if *status == Status::Problem { "warning" } else { "note" };
        writeln!(out, "{word}: {message}\n  remedy: {remedy}")?;
    }
    Ok(())
}

/// Prints checks.
pub(super) fn checks(checks: &[Check], format: OutputFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        OutputFormat::Json => {
            let report = json!({ "ok": check::passed(checks), "checks": checks });
            writeln!(out, "{report:#}")
        }
        OutputFormat::Text => {
            for Check { name, status, message, remedy } in checks {
                let status = match status {
                    Status::Ok => "ok     ",
                    Status::Note => "note   ",
                    Status::Problem => "problem",
                };
                writeln!(out, "{status}  {name}: {message}")?;
                if let Some(remedy) = remedy {
                    writeln!(out, "         remedy: {remedy}")?;
                }
            }
            Ok(())
        }
    }
}
