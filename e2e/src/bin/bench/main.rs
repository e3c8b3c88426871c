//! `hack/bench`: measures a running cluster with the chart installed, prints a table with the baseline beside ours, and
//! writes the figures as one flat JSON object.

mod nodepool;
mod report;
mod webhook;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Measures Isthmus in a running cluster.
#[derive(Parser)]
struct Args {
    /// Write the figures there, as one flat JSON object.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// A label added to every pool: time until all nodes carry it.
    Nodepool(nodepool::Size),
    /// Creation of labelled pods beside the same pods without the label.
    Webhook(webhook::Size),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { json, benchmark } = Args::parse();
    let client = e2e::client().await?;
    let report = match benchmark {
        Benchmark::Nodepool(size) => nodepool::run(client, size).await?,
        Benchmark::Webhook(size) => webhook::run(client, size).await?,
    };
    report.print(&mut std::io::stdout().lock())?;
    if let Some(path) = json {
        std::fs::write(path, report.json())?;
    }
    Ok(())
}
