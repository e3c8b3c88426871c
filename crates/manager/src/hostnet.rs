//! `isthmus-manager hostnet`: keeps kube-proxy, cluster DNS and CNI agents off the nodes of host-network pools.
//!
//! Command line in; a diff, a word on each component and the exit code out. What is to be changed is decided in
//! `hostnet/plan.rs`. Only `apply` may change anything.

mod cluster;
pub mod components;
mod diff;
pub mod landing;
pub mod plan;
mod record;
pub mod rollout;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use daemon::exit::{SOFTWARE, fail};
use daemon::print::stdout;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::Instant;

use cluster::{ClusterError, Found, Inventory, Selection, carry_out, find, get, plan_for};
use components::{Component, Kind, ObjectName};
use plan::{Goal, Plan};
use rollout::{Rollout, rollout};

use crate::args::PROGRAM;

/// How long an answer of the API server may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How often a rollout is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Stands at the end of the help.
const EXPLANATION: &str = "\
Nodes of host-network pools need neither kube-proxy nor cluster DNS nor a CNI agent. To kube-proxy, CoreDNS and flannel, \
where they are found, and to what flags name, a required node affinity is added that keeps them off such nodes. An \
annotation remembers what was added; nothing else is changed. Other DaemonSets whose pods would land on such nodes without \
host network are listed, and changed only when they are named or all are asked for. Running pods of Deployments leave a node that joins such a \
pool later only when they are replaced: kubectl rollout restart.

Exit codes: 0 done; 2 plan --detailed-exitcode found something to change; 64 the command line is wrong; 70 something \
failed, and the message says what.";

/// Arguments of `hostnet`.
#[derive(Debug, Args)]
#[command(after_help = EXPLANATION)]
pub struct HostnetArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,

    /// Context of the kubeconfig to use [default: its current context; inside a pod, the pod's service account].
    #[arg(long, global = true, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,

    /// The kubeconfig to use [default: $KUBECONFIG, or ~/.kube/config].
    #[arg(long, global = true, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Show what `apply` would change, and change nothing.
    Plan(PlanArgs),
    /// Show the change and make it. It may be repeated: what is right already is left alone.
    Apply(ApplyArgs),
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Exit with 2 when something is to be changed, with 0 when nothing is.
    #[arg(long)]
    detailed_exitcode: bool,
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Wait until the pods of all components are replaced, for 5m or the time given, such as 90s or 1h.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "5m",
        value_parser = crate::duration::parse)]
    wait: Option<Duration>,
}

/// What is to be changed, and how.
#[derive(Debug, Args)]
struct TargetArgs {
    /// A further `DaemonSet` to keep off host-network nodes; may be repeated.
    #[arg(long = "include", visible_alias = "daemonset", value_name = "NAMESPACE/NAME")]
    daemonset: Vec<ObjectName>,

    /// Every `DaemonSet` whose pods would land on host-network nodes without having host network; with --undo every one
    /// that was kept off.
    #[arg(long)]
    all_daemonsets: bool,

    /// A further Deployment to keep off host-network nodes; may be repeated.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    deployment: Vec<ObjectName>,

    /// Remove what `apply` added, and only that.
    #[arg(long)]
    undo: bool,
}

impl TargetArgs {
    fn goal(&self) -> Goal {
        if self.undo { Goal::Undo } else { Goal::Keep }
    }

    fn selection(&self) -> Selection {
        let Self { daemonset, all_daemonsets, deployment, undo: _ } = self;
        let daemon_sets = daemonset.iter().map(|at| (Kind::DaemonSet, at.clone()));
        let deployments = deployment.iter().map(|at| (Kind::Deployment, at.clone()));
        let named = daemon_sets.chain(deployments).collect();
        Selection { named, all_daemon_sets: *all_daemonsets, goal: self.goal() }
    }
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("no way to the cluster: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("no way to the cluster: pass --kubeconfig, or set KUBECONFIG ({0})")]
    Config(#[from] kube::config::InferConfigError),
    #[error("no way to the cluster: {0}")]
    Client(#[source] kube::Error),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("cannot write YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser::Error),
    #[error("cannot print: {0}")]
    Print(#[from] std::io::Error),
    #[error("{what} has its affinity, but its pods are not replaced: {reason}")]
    Stuck { what: String, reason: String },
    #[error("{what} has its affinity, but after {} s not all its pods are replaced: {state}", waited.as_secs())]
    NotRolledOut { what: String, waited: Duration, state: String },
}

/// Where the output goes.
struct Output<W> {
    to: W,
    colour: bool,
}

/// Whether anything was, or is, to be changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    Nothing,
    Changes,
}

/// Carries out `hostnet`. Errors go to standard error. The code is 0; [`SOFTWARE`] after an error; 2 from
/// `plan --detailed-exitcode` when something is to be changed.
pub async fn run(args: HostnetArgs) -> ExitCode {
    let is_terminal = std::io::stdout().is_terminal();
    let colour = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut output = Output { to: stdout(), colour };
    let HostnetArgs { action, context, kubeconfig } = args;
    let result = match client(context, kubeconfig).await {
        Ok(client) => carry_out_action(&client, &action, &mut output).await,
        Err(error) => Err(error),
    };
    match (result, action) {
        (Ok(Outcome::Changes), Action::Plan(PlanArgs { detailed_exitcode: true, .. })) => ExitCode::from(2),
        (Ok(_), _) => ExitCode::SUCCESS,
        (Err(error), _) => fail(PROGRAM, SOFTWARE, &error),
    }
}

async fn client(context: Option<String>, kubeconfig: Option<PathBuf>) -> Result<Client, Error> {
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let mut config = match kubeconfig {
        Some(file) => Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await?,
        None if options.context.is_some() => Config::from_kubeconfig(&options).await?,
        None => Config::infer().await?,
    };
    config.read_timeout = Some(ANSWER_WITHIN);
    Client::try_from(config).map_err(Error::Client)
}

async fn carry_out_action(
    client: &Client,
    action: &Action,
    output: &mut Output<impl Write>,
) -> Result<Outcome, Error> {
    let (Action::Plan(PlanArgs { target, .. }) | Action::Apply(ApplyArgs { target, .. })) = action;
    let goal = target.goal();
    let Inventory { found, others } = find(client, &target.selection()).await?;
    // All plans come before any change, so that a malformed object stops everything.
    let planned = found
        .into_iter()
        .map(|found| plan_for(&found, goal).map(|plan| (found, plan)))
        .collect::<Result<Vec<_>, _>>()?;
    let nothing = planned.iter().all(|(_, plan)| plan.is_empty());
    for (found, plan) in &planned {
        output.diff(found, plan)?;
    }
    let missing: Vec<_> = Component::ALL
        .into_iter()
        .filter(|component| planned.iter().all(|(found, _)| found.component != Some(*component)))
        .collect();
    match action {
        Action::Plan(_) => {
            for (found, plan) in &planned {
                output.says(found, planned_words(plan, goal))?;
                output.lost(found, plan)?;
            }
            output.missing(&missing)?;
            output.others(&others, goal)?;
        }
        Action::Apply(ApplyArgs { target: _, wait }) => {
            let mut changed = Vec::with_capacity(planned.len());
            for (mut found, plan) in planned {
                let shown = plan.clone();
                let done = carry_out(client, &mut found, plan, goal).await?;
                if (&done.before, &done.after) != (&shown.before, &shown.after) {
                    output.says(&found, "was changed by others meanwhile; instead of the above:")?;
                    output.diff(&found, &done)?;
                }
                output.says(&found, applied_words(&done, goal))?;
                output.lost(&found, &done)?;
                changed.push(found);
            }
            output.missing(&missing)?;
            output.others(&others, goal)?;
            if let Some(wait) = wait {
                wait_for_rollout(client, &changed, *wait, output).await?;
            }
        }
    }
    Ok(if nothing { Outcome::Nothing } else { Outcome::Changes })
}

fn planned_words(plan: &Plan, goal: Goal) -> &'static str {
    match (goal, plan.is_empty()) {
        (Goal::Keep, true) => "is right already",
        (Goal::Keep, false) => "will get the anti-affinity",
        (Goal::Undo, true) => "has nothing that apply added",
        (Goal::Undo, false) => "will lose what apply added",
    }
}

fn applied_words(plan: &Plan, goal: Goal) -> &'static str {
    match (goal, plan.is_empty()) {
        (Goal::Keep, true) => "is right already",
        (Goal::Keep, false) => "got the anti-affinity",
        (Goal::Undo, true) => "has nothing that apply added",
        (Goal::Undo, false) => "lost what apply added",
    }
}

impl<W: Write> Output<W> {
    fn diff(&mut self, found: &Found, plan: &Plan) -> Result<(), Error> {
        let title = format!("{} {}", found.kind, found.at);
        let text = diff::diff(&title, &plan.before, &plan.after, self.colour)?;
        if !text.is_empty() {
            writeln!(self.to, "{text}")?;
        }
        Ok(())
    }

    fn says(&mut self, found: &Found, words: &str) -> Result<(), Error> {
        let Found { component, kind, at, object: _ } = found;
        match component {
            Some(component) => writeln!(self.to, "{component}: {kind} {at} {words}")?,
            None => writeln!(self.to, "{kind} {at} {words}")?,
        }
        Ok(())
    }

    fn lost(&mut self, found: &Found, plan: &Plan) -> Result<(), Error> {
        if plan.lost > 0 {
            let words = format!(
                "was edited since: terms that apply changed and that are gone or no longer recognised, and so left as they \
                 are: {}; check its affinity",
                plan.lost
            );
            self.says(found, &words)?;
        }
        Ok(())
    }

    fn others(&mut self, others: &Result<Vec<ObjectName>, String>, goal: Goal) -> Result<(), Error> {
        let words = match goal {
            Goal::Keep => "would land on host-network nodes",
            Goal::Undo => "has what apply added",
        };
        match others {
            Ok(others) => {
                for at in others {
                    writeln!(self.to, "DaemonSet {at} {words}: pass --include {at} or --all-daemonsets")?;
                }
            }
            Err(reason) => writeln!(self.to, "other DaemonSets: not looked for: {reason}")?,
        }
        Ok(())
    }

    fn missing(&mut self, components: &[Component]) -> Result<(), Error> {
        for component in components {
            writeln!(self.to, "{component}: not found")?;
        }
        Ok(())
    }
}

/// Waits until all pods of `objects` are new, and says how far they are whenever that changes.
async fn wait_for_rollout(
    client: &Client,
    objects: &[Found],
    within: Duration,
    output: &mut Output<impl Write>,
) -> Result<(), Error> {
    let begun = Instant::now();
    for found in objects {
        let Found { component: _, kind, at, object: _ } = found;
        let what = || format!("{kind} {at}");
        let mut said = String::new();
        loop {
            let state = match rollout(*kind, &get(client, *kind, at).await?) {
                Rollout::Done => break,
                Rollout::Stuck(reason) => return Err(Error::Stuck { what: what(), reason }),
                Rollout::Waiting(state) => state,
            };
            if state != said {
                output.says(found, &format!("is rolling out: {state}"))?;
                said.clone_from(&state);
            }
            if begun.elapsed() >= within {
                return Err(Error::NotRolledOut { what: what(), waited: within, state });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        output.says(found, "is rolled out")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
