//! What a report costs its leader: thousands of nodes report over connections of their own, watchers are told, a standby follows; no cluster.
//! Store, listeners, TLS and the way of a request are those of the manager; callers are taken for who they are, and nobody is asked. Nodes,
//! watchers and the standby are processes of their own, so that what is printed is the leader's alone.
//!
//! `cargo run --profile edge -p node-metrics --example load -- [NODES [WATCHERS [SECONDS [PODS]]]]`
#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    unreachable_pub,
    reason = "a measurement prints figures, of files that others have as modules"
)]

#[allow(dead_code, reason = "the benchmark of the whole uses more of it")]
#[path = "../../../../e2e/src/bin/bench/node_metric/link.rs"]
mod link;
#[path = "../../../../e2e/src/bin/bench/node_metric/sample.rs"]
mod sample;
#[allow(dead_code, reason = "the benchmark of the whole uses more of it")]
#[path = "../../../../e2e/src/bin/bench/node_metric/watchers.rs"]
mod watchers;

mod leader;
mod nodes;
mod standby;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

/// Under which name the leader is.
const NAME: &str = "leader.test";

/// How often each node reports.
const INTERVAL: Duration = Duration::from_secs(10);

/// Who serves, in files that all processes read.
struct Files(PathBuf);

impl Files {
    fn write(&self, name: &str, text: &str) -> Result<()> {
        std::fs::write(self.0.join(name), text).context("a file of the measurement")
    }

    fn read(&self, name: &str) -> Result<String> {
        std::fs::read_to_string(self.0.join(name)).with_context(|| name.to_owned())
    }
}

/// Another process of this program, which does as it is told by lines and answers each with one.
struct Other {
    child: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str, folder: &Path, size: &[usize]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(role).arg(folder).args(size.iter().map(usize::to_string));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (asked, answers) = (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
        Ok(Self { child, asked, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, words: &str) -> Result<String> {
        writeln!(self.asked, "{words}")?;
        let mut line = String::new();
        anyhow::ensure!(self.answers.read_line(&mut line)? > 0, "a process of the measurement ended");
        Ok(line.trim().to_owned())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() -> Result<()> {
    tls::install_provider();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers = |words: &[String]| -> Result<Vec<usize>> {
        Ok(words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?)
    };
    match words.split_first() {
        Some((role, [folder, size @ ..])) if role == "nodes" => {
            nodes::run(&Files(folder.into()), &numbers(size)?)
        }
        Some((role, [folder, ..])) if role == "standby" => standby::run(&Files(folder.into())),
        _ => measure(&numbers(&words)?),
    }
}

fn measure(size: &[usize]) -> Result<()> {
    let or = |at: usize, otherwise| size.get(at).copied().unwrap_or(otherwise);
    let (count, watchers, seconds, pods) = (or(0, 1_000), or(1, 5), or(2, 20), or(3, 110));
    let folder = tempfile::tempdir()?;
    let files = Files(folder.path().to_owned());
    let leader = leader::Leader::start(&files, count)?;
    let mut nodes = Other::start("nodes", folder.path(), &[count, pods])?;
    leader.trust(&nodes.ask("authority")?)?;
    nodes.ask("report")?;
    println!(
        "| nodes | watchers | standby | reports/s | CPU of the leader, µs a report | cores | resident MB | p50 ms | p99 ms | events told a report | kB an event | \
         CPU of the standby, µs a report | resident MB |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut standby: Option<Other> = None;
    let mut steps = vec![(0, false), (watchers, false), (watchers, true)];
    steps.dedup();
    for (watching, follows) in steps {
        if follows {
            let mut other = Other::start("standby", folder.path(), &[])?;
            other.ask("follow")?;
            standby = Some(other);
        }
        nodes.ask(&format!("watch {watching}"))?;
        std::thread::sleep(INTERVAL);
        let used = |process: &str| anyhow::Ok((cpu_us(process)?, resident_mb(process)?));
        let follower = standby.as_ref().map(|standby| standby.child.id().to_string());
        let before = (used("self")?.0, follower.as_ref().map(|id| used(id)).transpose()?);
        let told = nodes.ask(&format!("listen {seconds}"))?;
        let (spent, resident) = used("self")?;
        let spent = spent - before.0;
        let [reports, p50, p99, events, length] =
            <[f64; 5]>::try_from(told.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?)
                .map_err(|_| anyhow::anyhow!("{told}"))?;
        let of_standby = match (follower, before.1) {
            (Some(id), Some((before, _))) => {
                let (after, resident) = used(&id)?;
                format!("{:.0} | {resident:.0}", (after - before) / reports)
            }
            _ => "– | –".to_owned(),
        };
        println!(
            "| {count} | {watching} | {} | {:.0} | {:.0} | {:.3} | {resident:.0} | {p50:.0} | {p99:.0} | {events:.3} | {:.1} | {of_standby} |",
            if follows { "yes" } else { "no" },
            reports / seconds as f64,
            spent / reports,
            spent / 1e6 / seconds as f64,
            length / 1e3,
        );
    }
    Ok(())
}

/// CPU time of a process, user and system, in microseconds.
fn cpu_us(process: &str) -> Result<f64> {
    let mut sum = 0.0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that ends takes what it used along; the runtime's stay.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        sum += text.split(' ').next().context("schedstat")?.parse::<f64>()?;
    }
    Ok(sum / 1e3)
}

fn resident_mb(process: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("VmRSS")?.parse::<f64>()? / 1024.0)
}
