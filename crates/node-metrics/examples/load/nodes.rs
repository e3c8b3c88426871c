//! The process of all nodes and all watchers.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use node_report::http::{CONTENT_TYPE, PATH};
use node_report::{Answer, Encoder, Message, Source, Threshold};
use testkit::api_server::access::User;
use testkit::api_server::pki::Authority;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::link::{self, Kind, Link};
use crate::sample::sample;
use crate::watchers::{Watchers, Way};
use crate::{Files, INTERVAL, NAME};

/// Name of a node.
pub(crate) fn name(number: usize) -> String {
    format!("load-{number:05}")
}

struct Shared {
    authority: Authority,
    server: String,
    authorities: String,
    pods: u64,
    taken: AtomicU64,
    failed: AtomicU64,
    reporting: AtomicUsize,
}

/// Does as it is told.
pub(crate) fn run(files: &Files, size: &[usize]) -> Result<()> {
    let &[count, pods] = size else { bail!("how many nodes, and pods of each") };
    let shared = Arc::new(Shared {
        authority: Authority::generate("nodes")?,
        server: files.read("reports")?,
        authorities: files.read("ca.crt")?,
        pods: pods as u64,
        taken: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        reporting: AtomicUsize::new(0),
    });
    let admin = shared.authority.client(&User::new("admin", &[]))?;
    let way = Way {
        server: files.read("api")?,
        name: NAME.to_owned(),
        tls: link::config(&shared.authorities, admin.certificate, admin.key, Kind::Reader)?,
        path: "/apis/slo.koordinator.sh/v1beta1/nodemetrics".to_owned(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut tasks = JoinSet::new();
    let mut watching = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let answer = match *words {
            ["authority"] => {
                files.write("nodes.crt", shared.authority.pem())?;
                files.0.join("nodes.crt").display().to_string()
            }
            ["report"] => {
                runtime.block_on(async {
                    for number in 0..count {
                        let shared = shared.clone();
                        tasks.spawn(async move { node(&shared, number).await });
                        if number % 20 == 0 {
                            sleep(Duration::from_millis(25)).await;
                        }
                    }
                    while shared.reporting.load(Relaxed) < count {
                        sleep(Duration::from_millis(50)).await;
                    }
                });
                "ok".to_owned()
            }
            ["watch", number] => {
                let number = number.parse()?;
                watching = Some((runtime.block_on(Watchers::open(&way, number))?, number));
                "ok".to_owned()
            }
            ["listen", seconds] => {
                let Some((watching, number)) = &watching else { bail!("nobody watches") };
                runtime.block_on(listen(&shared, (watching, *number), seconds.parse()?))?
            }
            _ => bail!("{line}"),
        };
        println!("{answer}");
    }
    Ok(())
}

/// Reports that were taken, median and 99th percentile of their way to the watchers in milliseconds, events of a watcher by reports, and bytes of
/// an event.
async fn listen(shared: &Shared, (watching, count): (&Watchers, usize), seconds: u64) -> Result<String> {
    let before = [shared.taken.load(Relaxed), shared.failed.load(Relaxed)];
    watching.listen();
    sleep(Duration::from_secs(seconds)).await;
    let mut heard = watching.heard()?;
    let taken = shared.taken.load(Relaxed) - before[0];
    let failed = shared.failed.load(Relaxed) - before[1];
    if failed > 0 {
        println_to_people(&format!("{failed} reports failed"));
    }
    heard.delays.sort_by(f64::total_cmp);
    let at = |share: usize| heard.delays.get(heard.delays.len() * share / 100).copied().unwrap_or(0.0);
    let told = heard.events as f64 / taken as f64 / count.max(1) as f64;
    let length = heard.bytes / heard.events.max(1);
    Ok(format!("{taken} {} {} {told} {length}", at(50), at(99)))
}

pub(crate) fn println_to_people(words: &str) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{words}\n"));
}

async fn node(shared: &Shared, number: usize) {
    loop {
        sleep(Duration::from_millis(number as u64 * 7_919 % 1_000)).await;
        // Its end is followed by another connection.
        if serve(shared, number).await.is_err() {
            shared.failed.fetch_add(1, Relaxed);
        }
    }
}

/// One connection, to its end.
async fn serve(shared: &Shared, number: usize) -> Result<()> {
    let name = name(number);
    let user = User::new(&format!("system:node:{name}"), &["system:nodes"]);
    let identity = shared.authority.client(&user)?;
    let tls = link::config(&shared.authorities, identity.certificate, identity.key, Kind::Reporter)?;
    let source = Source { node: name, node_uid: String::new(), boot_id: String::new() };
    let incarnation = u64::try_from(jiff::Timestamp::now().as_microsecond())?;
    let mut encoder = Encoder::new(source, incarnation, Threshold::default());
    let mut link = Link::open(&shared.server, NAME, &tls, Kind::Reporter).await?;
    let interval_ms = u32::try_from(INTERVAL.as_millis())?;
    for turn in 1.. {
        let sampled_at = jiff::Timestamp::now().as_millisecond();
        let sample = sample(number as u64, shared.pods, turn, sampled_at, interval_ms);
        let report = Bytes::from(encoder.next(sample).encode_to_vec());
        let request = http::Request::post("/").header(http::header::CONTENT_TYPE, CONTENT_TYPE);
        let response = link.send(request, PATH, report).await?;
        ensure!(response.status() == 200, "{}", response.status());
        let body = response.into_body().collect().await?.to_bytes();
        encoder.answered(&Answer::decode(body)?);
        shared.taken.fetch_add(1, Relaxed);
        if turn == 1 {
            shared.reporting.fetch_add(1, Relaxed);
        }
        sleep_until(next_due(number)).await;
    }
    Ok(())
}

/// All nodes at the same interval, each at a moment of its own.
fn next_due(number: usize) -> Instant {
    let interval = u64::try_from(INTERVAL.as_millis()).unwrap_or(u64::MAX);
    let place = number as u64 * 7_919 % interval;
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0) % interval;
    let wait = (place + interval - now) % interval;
    Instant::now() + Duration::from_millis(if wait < interval / 2 { wait + interval } else { wait })
}
