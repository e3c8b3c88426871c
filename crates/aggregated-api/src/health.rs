//! `/healthz`, `/livez` and `/readyz`, whole or check by check, as the API server answers them.

use std::fmt::Write as _;

use axum::response::Response;
use http::StatusCode;

use kube_wire::quoting::quoted;

use crate::{
    answer::plain,
    api::{HealthCheck, HealthNote},
    options::{all, first},
};

const PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// The checks of both probes.
pub(crate) struct Health {
    pub(crate) live: Vec<(String, HealthCheck)>,
    /// Those of readiness alone.
    pub(crate) ready: Vec<(String, HealthCheck)>,
    /// What readiness says besides.
    pub(crate) notes: Vec<(String, HealthNote)>,
}

impl Health {
    /// Whether it is about health: such requests find room however many others there are.
    pub(crate) fn is_path(path: &str) -> bool {
        PATHS.iter().any(|probe| {
            path.strip_prefix(probe).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Whether anybody may ask.
    pub(crate) fn is_exempt(path: &str) -> bool {
        PATHS.contains(&path)
    }

    pub(crate) fn answer(&self, path: &str, query: &str) -> Option<Response> {
        let probe = PATHS.iter().find(|probe| path.starts_with(**probe)).filter(|_| Self::is_path(path))?;
        let rest = path.strip_prefix(probe)?;
        let ping: HealthCheck = std::sync::Arc::new(|| Ok(()));
        let ping = ("ping".to_owned(), ping);
        let (ready, notes) =
            if *probe == "/readyz" { (&self.ready[..], &self.notes[..]) } else { (&[][..], &[][..]) };
        let checks: Vec<_> = std::iter::once(&ping).chain(&self.live).chain(ready).collect();
        if let Some(name) = rest.strip_prefix('/').filter(|name| !name.is_empty()) {
            if notes.iter().any(|(known, _)| known == name) {
                return Some(plain(StatusCode::OK, "ok"));
            }
            let (_, check) = checks.into_iter().find(|(known, _)| known == name)?;
            return Some(match check() {
                Ok(()) => plain(StatusCode::OK, "ok"),
                Err(why) => {
                    plain(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
                }
            });
        }
        let excluded = all(query, "exclude");
        let mut report = String::new();
        let mut passed = true;
        for (name, check) in &checks {
            if excluded.contains(name) {
                line(&mut report, format_args!("[+]{name} excluded: ok\n"));
                continue;
            }
            let good = check().is_ok();
            passed &= good;
            if good {
                line(&mut report, format_args!("[+]{name} ok\n"));
            } else {
                line(&mut report, format_args!("[-]{name} failed: reason withheld\n"));
            }
        }
        let verbose = first(query, "verbose").is_some();
        for (name, note) in notes.iter().filter(|_| verbose) {
            line(&mut report, format_args!("[+]{name} ok: {}\n", note()));
        }
        let known: Vec<_> =
            checks.iter().map(|(name, _)| name).chain(notes.iter().map(|(name, _)| name)).collect();
        let unknown: Vec<_> = excluded.iter().filter(|name| !known.contains(name)).collect();
        if !unknown.is_empty() {
            let names: Vec<_> = unknown.into_iter().map(|name| quoted(name)).collect();
            let names = names.join(",");
            line(
                &mut report,
                format_args!("warn: some health checks cannot be excluded: no matches for {names}\n"),
            );
        }
        let probe = probe.trim_start_matches('/');
        Some(if !passed {
            plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{report}{probe} check failed\n"))
        } else if verbose {
            plain(StatusCode::OK, format!("{report}{probe} check passed\n"))
        } else {
            plain(StatusCode::OK, "ok")
        })
    }
}

fn line(report: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = report.write_fmt(text);
}
