//! stub
#![allow(missing_docs)]
#[derive(Debug, clap::Args)]
pub struct HostnetArgs {}
pub async fn run(_: HostnetArgs) -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
