//! `hack/bench`: measures in a running cluster, prints a table with the baseline beside ours, and
//! writes the figures as one flat JSON object.

mod hub;
#[cfg(test)]
mod keys;
mod node_metric;
mod nodepool;
mod process;
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
    /// The node's hub with many Services and `EndpointSlices`: memory, link, disk, restart without a link, watchers.
    Hub(hub::Size),
    /// `NodeMetric` under the reports of thousands of nodes, beside the same objects as a CRD; and changes of the leader.
    NodeMetric(node_metric::Size),
    /// A label added to every pool: time until all nodes carry it.
    Nodepool(nodepool::Size),
    /// Creation of labelled pods beside the same pods unlabelled.
    Webhook(webhook::Size),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { json, benchmark } = Args::parse();
    let client = e2e::client().await?;
    let report = match benchmark {
        Benchmark::Hub(size) => hub::run(client, size).await?,
        Benchmark::NodeMetric(size) => node_metric::run(client, size).await?,
        Benchmark::Nodepool(size) => nodepool::run(client, size).await?,
        Benchmark::Webhook(size) => webhook::run(client, size).await?,
    };
    report.print(&mut std::io::stdout().lock())?;
    if let Some(path) = json {
        std::fs::write(path, report.json())?;
    }
    anyhow::ensure!(report.missing.is_empty(), "not measured: {}", report.missing.join("; "));
    Ok(())
}
