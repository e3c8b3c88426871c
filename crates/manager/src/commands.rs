//! Carries out what the command line asks for, and says what became of it in the exit code.

use std::process::ExitCode;

use daemon::exit::{SOFTWARE, USAGE, fail};
use daemon::print::stdout;
use kube::Client;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::args::{Args, Command, CrdsAction, CrdsArgs, PROGRAM, RunArgs};
use crate::config::Config;
use crate::{crds, hostnet, node_metrics};

/// Runs the command to its end.
pub fn run(args: Args) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(PROGRAM, SOFTWARE, &error),
    };
    match args.command {
        Command::Run(args) => runtime.block_on(run_manager(*args)),
        Command::Crds(args) => runtime.block_on(run_crds(&args)),
        Command::Top(args) => runtime.block_on(run_top(&args)),
        Command::RetireNodeMetrics(args) => runtime.block_on(retire_node_metrics(&args)),
        Command::Hostnet(args) => runtime.block_on(hostnet::run(args)),
    }
}

/// Two workers: the work is waiting for the API server, not computing.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

async fn run_manager(args: RunArgs) -> ExitCode {
    if let Err(error) = daemon::telemetry::init(&args.log) {
        return fail(PROGRAM, USAGE, &error);
    }
    let config = match Config::try_from(args) {
        Ok(config) => config,
        Err(error) => return fail(PROGRAM, USAGE, &error),
    };
    let shutdown = match daemon::shutdown::signals() {
        Ok(shutdown) => shutdown,
        Err(error) => return fail(PROGRAM, SOFTWARE, &error),
    };
    match serve(config, shutdown).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the manager ended");
            ExitCode::from(SOFTWARE)
        }
    }
}

async fn serve(config: Config, shutdown: CancellationToken) -> Result<(), crate::app::Error> {
    App::build(config).await?.run(shutdown).await
}

async fn run_top(args: &node_metrics::top::TopArgs) -> ExitCode {
    let shown = node_metrics::top::run(args, &mut stdout()).await;
    shown.map_or_else(|error| fail(PROGRAM, SOFTWARE, &error), |()| ExitCode::SUCCESS)
}

async fn retire_node_metrics(args: &node_metrics::retire::RetireArgs) -> ExitCode {
    let retired = node_metrics::retire::run(args, &mut stdout()).await;
    retired.map_or_else(|error| fail(PROGRAM, SOFTWARE, &error), |()| ExitCode::SUCCESS)
}

async fn run_crds(args: &CrdsArgs) -> ExitCode {
    let result = match args.action {
        None | Some(CrdsAction::Print) => crds::print(&mut stdout()),
        Some(CrdsAction::Apply) => match Client::try_default().await {
            Ok(client) => crds::apply(client).await,
            Err(error) => return fail(PROGRAM, SOFTWARE, &error),
        },
    };
    result.map_or_else(|error| fail(PROGRAM, SOFTWARE, &error), |()| ExitCode::SUCCESS)
}
