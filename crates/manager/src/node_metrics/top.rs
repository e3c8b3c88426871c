//! `isthmus-manager top nodes`: what nodes use, most first.

use std::io::Write;

use api::NodeMetric;
use api::slo::names::{V1ALPHA1, V1BETA1};
use http::StatusCode;
use jiff::Timestamp;
use kube::api::{ListParams, ObjectList};
use kube::{Client, Resource, ResourceExt};

/// Objects in one answer.
const PAGE: u32 = 500;

/// How often a list is begun: its version may be gone before its last page, as after a change of the leader.
const ATTEMPTS: u32 = 4;

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = daemon::exit::HELP)]
pub struct TopArgs {
    /// What to show.
    #[command(subcommand)]
    pub what: TopWhat,
}

/// What to show.
#[derive(Debug, clap::Subcommand)]
pub enum TopWhat {
    /// What nodes use of CPU and memory, what they lack, and how old that is.
    Nodes(TopNodesArgs),
}

/// Arguments of `top nodes`.
#[derive(Debug, clap::Args)]
#[command(after_help = daemon::exit::HELP)]
pub struct TopNodesArgs {
    /// By what to sort, most first.
    #[arg(long, value_enum, default_value_t = SortBy::Cpu)]
    pub sort_by: SortBy,
}

/// By what to sort.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum SortBy {
    /// CPU in use.
    Cpu,
    /// Memory in use.
    Memory,
    /// Names, first to last.
    Name,
}

/// Why nothing is shown.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// There is no cluster to ask.
    #[error("no cluster to ask: {0}")]
    Infer(#[source] Box<kube::Error>),
    /// The API server did not answer as hoped.
    #[error("cannot list NodeMetrics: {0}")]
    List(#[source] Box<kube::Error>),
    /// Nothing can be written.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
}

/// Shows what was asked for.
pub async fn run(args: &TopArgs, out: &mut impl Write) -> Result<(), TopError> {
    let TopWhat::Nodes(TopNodesArgs { sort_by }) = &args.what;
    let client = Client::try_default().await.map_err(|error| TopError::Infer(Box::new(error)))?;
    let nodes = all(&client).await.map_err(|error| TopError::List(Box::new(error)))?;
    let rows = rows(nodes, *sort_by, Timestamp::now());
    Ok(out.write_all(table(&rows).as_bytes())?)
}

/// All NodeMetrics, of whichever version the cluster serves.
async fn all(client: &Client) -> Result<Vec<NodeMetric>, kube::Error> {
    match list(client, V1BETA1).await {
        Err(error) if has_code(&error, StatusCode::NOT_FOUND) => list(client, V1ALPHA1).await,
        listed => listed,
    }
}

/// Page by page; from the beginning if a page is no more to be had of the version of the first.
async fn list(client: &Client, version: &str) -> Result<Vec<NodeMetric>, kube::Error> {
    let path = format!("/apis/{version}/{}", NodeMetric::plural(&()));
    let mut attempts = 1;
    let mut nodes = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let mut params = ListParams::default().limit(PAGE);
        params.continue_token.clone_from(&token);
        let request = kube::core::Request::new(&path).list(&params).map_err(kube::Error::BuildRequest)?;
        let page = match client.request::<ObjectList<NodeMetric>>(request).await {
            Ok(page) => page,
            Err(error) if token.is_some() && attempts < ATTEMPTS && has_code(&error, StatusCode::GONE) => {
                attempts += 1;
                nodes.clear();
                token = None;
                continue;
            }
            Err(error) => return Err(error),
        };
        nodes.extend(page.items);
        token = page.metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(nodes);
        }
    }
}

fn has_code(error: &kube::Error, code: StatusCode) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code.as_u16())
}

const HEAD: [&str; 10] = ["NAME", "CPU", "CPU%", "MEMORY", "MEM%", "P95", "PRESSURE", "PODS", "AGE", "STATE"];

fn rows(mut nodes: Vec<NodeMetric>, sort_by: SortBy, now: Timestamp) -> Vec<[String; 10]> {
    let figure = |text: Option<&String>| {
        let digits = text.map_or("", |text| text.trim_end_matches(|c: char| !c.is_ascii_digit()));
        digits.parse::<u64>().unwrap_or(0)
    };
    let summary = |node: &NodeMetric| {
        node.status.as_ref().and_then(|status| status.summary.clone()).unwrap_or_default()
    };
    nodes.sort_by_cached_key(|node| {
        let summary = summary(node);
        let used = match sort_by {
            SortBy::Cpu => figure(summary.cpu.as_ref()),
            SortBy::Memory => figure(summary.memory.as_ref()),
            SortBy::Name => 0,
        };
        (std::cmp::Reverse(used), node.name_any())
    });
    let row = |node: &NodeMetric| {
        let shown = summary(node);
        let status = node.status.as_ref();
        let freshness = status.and_then(|status| status.freshness.clone()).unwrap_or_default();
        let age = freshness.received_time.map(|time| age(now.duration_since(time.0).as_secs()));
        // A node that never reported has no pods that anybody knows of, which is not none.
        let pods = status.and_then(|status| status.summary.as_ref()).map(|summary| summary.pods.to_string());
        let cell = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            node.name_any(),
            cell(shown.cpu),
            cell(shown.cpu_percent),
            cell(shown.memory),
            cell(shown.memory_percent),
            cell(shown.cpu_p95),
            cell(shown.pressure),
            cell(pods),
            cell(age),
            freshness.state.as_str().to_owned(),
        ]
    };
    nodes.iter().map(row).collect()
}

/// `45s`, `12m`, `5h`, `3d`; a clock that is behind the server's makes it nothing.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Columns as wide as their widest cell.
fn table(rows: &[[String; 10]]) -> String {
    let mut widths = HEAD.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&HEAD.map(str::to_owned)).chain(rows) {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("   ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use serde_json::json;

    use super::*;

    /// A cluster that serves `version`, in pages of one of three nodes; the second page is gone as often as `gone` says.
    fn cluster(version: &'static str, gone: usize) -> Client {
        let gone = Arc::new(AtomicUsize::new(gone));
        let answer = move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            let at = query.split("continue=").nth(1).map_or(0, |token| token.parse::<usize>().unwrap());
            let code: u16 = if request.uri().path() != format!("/apis/{version}/nodemetrics") {
                404
            } else if at == 1 && gone.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                410
            } else {
                200
            };
            let token = if at < 2 { (at + 1).to_string() } else { String::new() };
            let body = if code == 200 {
                json!({"apiVersion": "v1", "kind": "NodeMetricList", "metadata": {"continue": token},
                    "items": [{"apiVersion": version, "kind": "NodeMetric", "metadata": {"name": format!("n{at}")}, "spec": {}}]})
            } else {
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "", "reason": "", "code": code})
            };
            let response = http::Response::builder()
                .status(code)
                .body(kube::client::Body::from(body.to_string().into_bytes()));
            async move { response }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn nodes_are_found_in_whichever_version_is_served() {
        for version in [V1BETA1, V1ALPHA1] {
            let nodes = all(&cluster(version, 0)).await.unwrap();
            assert_eq!(
                nodes.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
                ["n0", "n1", "n2"],
                "{version}"
            );
        }
        let error = all(&cluster("slo.koordinator.sh/v9", 0)).await.unwrap_err();
        assert!(has_code(&error, StatusCode::NOT_FOUND), "{error}");
    }

    #[tokio::test]
    async fn a_list_whose_version_is_gone_begins_anew() {
        let nodes = all(&cluster(V1BETA1, 3)).await.unwrap();
        assert_eq!(nodes.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["n0", "n1", "n2"]);
        let error = all(&cluster(V1BETA1, 4)).await.unwrap_err();
        assert!(has_code(&error, StatusCode::GONE), "{error}");
    }

    #[test]
    fn ages_have_one_unit() {
        let ages = [-5, 119, 120, 7_199, 7_200, 172_800].map(age);
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "2d"]);
    }

    #[test]
    fn the_busiest_node_comes_first() {
        let node = |name: &str, cpu: &str, state: &str| {
            serde_json::from_value::<NodeMetric>(serde_json::json!({
                "apiVersion": "slo.koordinator.sh/v1beta1", "kind": "NodeMetric", "metadata": {"name": name}, "spec": {},
                "status": {"summary": {"cpu": cpu, "pods": 3}, "freshness": {"state": state, "receivedTime": "2026-11-22T00:00:00Z"}},
            }))
            .unwrap()
        };
        let never = serde_json::from_value::<NodeMetric>(serde_json::json!({
            "apiVersion": "slo.koordinator.sh/v1beta1", "kind": "NodeMetric", "metadata": {"name": "c"}, "spec": {},
            "status": {"freshness": {"state": "NeverReported"}},
        }));
        let now = "2026-11-22T00:01:05Z".parse().unwrap();
        let nodes = vec![node("a", "90m", "Fresh"), node("bb", "1250m", "Stale"), never.unwrap()];
        let shown = table(&rows(nodes.clone(), SortBy::Cpu, now));
        let expected = "\
NAME   CPU     CPU%   MEMORY   MEM%   P95   PRESSURE   PODS   AGE   STATE
bb     1250m   -      -        -      -     -          3      65s   Stale
a      90m     -      -        -      -     -          3      65s   Fresh
c      -       -      -        -      -     -          -      -     NeverReported
";
        assert_eq!(shown, expected);
        assert_eq!(rows(nodes, SortBy::Name, now)[0][0], "a");
    }
}
