//! What the changes of a quiet cluster cost the disk: whole pages for a few changes each.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, interval, sleep};

use super::float;
use super::load::{self, SENT, nanoseconds};
use super::node::{PROTOBUF, Running};
use crate::report::Figure;

/// How many objects change each second.
const RATE: u32 = 20;

/// Over how many streams as many changes are spread: each has its own file, and its own pages. `ConfigMaps` are never shared, so that those of each
/// namespace are a stream.
const STREAMS: usize = 10;

/// How many objects each of them has.
const OF_STREAM: usize = 20;

/// What an object has beside its metadata, in bytes.
const DATA: usize = 1000;

/// How long until what was changed is on the disk, and its files are in order: that follows with the sync after the next.
const STORED: Duration = Duration::from_secs(11);

/// Changes of one stream, for so long: in three minutes its files are rewritten as well.
pub(super) async fn of_one_stream(
    client: &Client,
    running: &Running,
    objects: usize,
    during: Duration,
) -> Result<Figure> {
    let length = length(running, &load::path(0)).await?;
    let count = usize::try_from(during.as_secs())? * RATE as usize;
    let changes = async || load::change_slowly(client, objects, count, RATE).await;
    let written = written(running, changes).await?;
    let given = float((length * count) as u64);
    Ok(Figure::new("disk_bytes_per_changed_byte", written / given).target(2.0))
}

/// Changes of ten, for so long; and what this was. In ten minutes files of each are rewritten, as what a stream keeps to go on from is more than half a megabyte.
pub(super) async fn of_ten_streams(
    client: &Client,
    running: &Running,
    during: Duration,
) -> Result<(Figure, String)> {
    for stream in 0..STREAMS {
        for number in 0..OF_STREAM {
            load::create(&config_maps(client, stream), &config_map(number)).await?;
        }
        let path = format!("/api/v1/namespaces/{}/configmaps?resourceVersion=0", load::namespace(stream));
        let held = running.holds(&path, OF_STREAM, Duration::from_secs(30)).await.0;
        ensure!(held >= OF_STREAM, "{path} has {held} of {OF_STREAM} objects");
    }
    // What the first change of each adds to it is no part of what is measured.
    for turn in 0..STREAMS * OF_STREAM {
        change(client, turn).await?;
    }
    let path = format!("/api/v1/namespaces/{}/configmaps/{}", load::namespace(0), name(0));
    let length = length(running, &path).await?;
    let count = usize::try_from(during.as_secs())? * RATE as usize;
    let began = Instant::now();
    let changes = async || {
        let mut ticks = interval(Duration::from_secs(1) / RATE);
        for turn in 0..count {
            ticks.tick().await;
            change(client, turn).await?;
        }
        Ok(())
    };
    let written = written(running, changes).await?;
    let figure =
        Figure::new("disk_bytes_per_changed_byte_10_streams", written / float((length * count) as u64));
    let explained = format!(
        "Over {STREAMS} streams: {count} changes in {:.0} s of objects of {length} bytes, {:.1} MB of each stream.",
        began.elapsed().as_secs_f64(),
        float((length * count / STREAMS) as u64) / 1e6,
    );
    Ok((figure, explained))
}

/// What comes to the disk of these changes.
async fn written(running: &Running, changes: impl AsyncFnOnce() -> Result<()>) -> Result<f64> {
    // What changed before has come to the disk by then, and again what changes now.
    sleep(STORED).await;
    let before = running.process.written_bytes()?;
    changes().await?;
    sleep(STORED).await;
    let written = running.process.written_bytes()? - before;
    ensure!(written > 0.0, "the disk is not one whose bytes are counted: set TMPDIR to a folder on one");
    Ok(written)
}

/// The bytes of an object, as it comes over the link.
async fn length(running: &Running, path: &str) -> Result<usize> {
    let object = running.client.get(path, PROTOBUF).await?;
    ensure!(object.status == 200, "{path}: {}", object.status);
    Ok(object.body().len())
}

/// Changes the object whose turn it is: of each stream in turn, one after the other.
async fn change(client: &Client, turn: usize) -> Result<()> {
    let patch = json!({ "metadata": { "annotations": { SENT: nanoseconds().to_string() } } });
    let name = name(turn / STREAMS % OF_STREAM);
    let changed = config_maps(client, turn % STREAMS)
        .patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    changed.context("a change of a ConfigMap")?;
    Ok(())
}

fn config_maps(client: &Client, stream: usize) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), &load::namespace(stream))
}

fn config_map(number: usize) -> serde_json::Value {
    json!({ "metadata": { "name": name(number) }, "data": { "settings": "x".repeat(DATA) } })
}

fn name(number: usize) -> String {
    format!("conf-{number:02}")
}
