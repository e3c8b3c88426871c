//! Nodes say whether they report: condition `NodeMetricFresh`, and an event when that changes. Level-triggered: what the store finds
//! missing is written, again if need be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::slo::names::{NODE_METRIC_FRESH, OUT_OF_VIEW, REPORTING, REPORTS_CEASED};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use node_metrics::freshness::Silence;
use node_metrics::store::Transition;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Host, turn};

/// Who writes, in managed fields and events.
pub(super) const FIELD_MANAGER: &str = "isthmus-node-metric";

/// How often it is looked what is missing.
const TURN: Duration = Duration::from_secs(1);

/// How many Nodes are written in a turn: a site that falls silent must not flood the API server.
const AT_ONCE: usize = 20;

/// How many of them at a time.
const WRITERS: usize = 4;

/// A write that takes longer is given up.
const CALL: Duration = Duration::from_secs(5);

/// So long after a write the watch of Nodes is given to tell of it.
const LAG: Duration = Duration::from_secs(30);

/// What was written of each Node, which its watch may not have told of yet: pure.
#[derive(Default)]
struct Written(BTreeMap<Arc<str>, (Silence, Instant)>);

impl Written {
    /// What of `missing` is to be written, from what it was made to say to what it should.
    fn due(&mut self, missing: Vec<(Arc<str>, Transition)>, now: Instant) -> Vec<(Arc<str>, Transition)> {
        self.0.retain(|_, (_, at)| now.saturating_duration_since(*at) < LAG);
        let written = |(name, Transition { before, now })| {
            let before = self.0.get(&name).map_or(before, |(silence, _)| Some(*silence));
            (before != Some(now)).then_some((name, Transition { before, now }))
        };
        missing.into_iter().filter_map(written).collect()
    }

    fn note(&mut self, name: Arc<str>, silence: Silence, now: Instant) {
        self.0.insert(name, (silence, now));
    }
}

/// For how long an event that the API server does not take is news.
const NEWS: Duration = Duration::from_mins(10);

/// How long what was not taken waits at most until it is tried again.
const PAUSE: Duration = Duration::from_mins(1);

/// What people are yet to hear of each Node, which the API server did not take: the latest of each, with since when.
struct Untold {
    news: BTreeMap<Arc<str>, (News, Instant)>,
    turns: turn::Turns,
    /// When it is tried again, and how long it waits after that if it fails.
    next: (Option<Instant>, Duration),
}

/// An event, and whom it is about.
type News = (Event, ObjectReference);

impl Default for Untold {
    fn default() -> Self {
        // One that is never taken keeps no other from being told.
        Self { news: BTreeMap::new(), turns: turn::Turns::of(1), next: (None, TURN) }
    }
}

impl Untold {
    /// A condition was written of a Node: what could be told of that, or could not, makes old what there was to tell; where it is no news that stays.
    fn note(&mut self, name: &Arc<str>, told: Told) {
        match told {
            Told::NoNews => {}
            Told::Yes => drop(self.news.remove(name)),
            Told::No(news) => drop(self.news.insert(Arc::clone(name), (*news, Instant::now()))),
        }
    }

    /// Tells some of it while `leads`, for no longer than one call may take, until something is not taken: that waits for a later turn, ever longer.
    async fn tell(&mut self, recorder: &Recorder, leads: impl Fn() -> bool) {
        let now = Instant::now();
        self.news.retain(|_, (_, since)| now < *since + NEWS);
        if self.news.is_empty() || self.next.0.is_some_and(|next| now < next) {
            return;
        }
        let is_taken = tokio::time::timeout(CALL, self.tell_some(recorder, leads)).await.unwrap_or(false);
        let (_, pause) = self.next;
        self.next = if is_taken { (None, TURN) } else { (Some(now + pause), (pause * 2).min(PAUSE)) };
    }

    /// Whether all that was tried was taken.
    async fn tell_some(&mut self, recorder: &Recorder, leads: impl Fn() -> bool) -> bool {
        for _ in 0..self.news.len().min(AT_ONCE) {
            if !leads() {
                return true;
            }
            let names = self.news.keys().map(|name| (Arc::clone(name), ())).collect();
            for (name, ()) in self.turns.next(names) {
                let Some((news, _)) = self.news.get(&name) else { continue };
                if !publish(recorder, news).await {
                    return false;
                }
                self.news.remove(&name);
            }
        }
        true
    }
}

/// Whether people have heard of a condition.
enum Told {
    NoNews,
    Yes,
    No(Box<News>),
}

/// Whether the API server has taken it.
async fn publish(recorder: &Recorder, (event, about): &News) -> bool {
    match tokio::time::timeout(CALL, recorder.publish(event, about)).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => warn!(%error, "cannot publish an event"),
        Err(_) => warn!("cannot publish an event: no answer"),
    }
    false
}

/// A condition that was written, and whether that was told.
struct Done {
    name: Arc<str>,
    silence: Silence,
    told: Told,
}

/// Keeps conditions while this replica leads. Never ends.
pub(super) async fn keep(host: Arc<Host>) {
    let reporter =
        Reporter { controller: FIELD_MANAGER.into(), instance: Some(host.config.identity.clone()) };
    let nodes: Api<Node> = Api::all(host.client.clone());
    let mut turns = turn::Turns::of(AT_ONCE);
    let mut written = Written::default();
    let mut untold = Untold::default();
    loop {
        tokio::time::sleep(TURN).await;
        if !host.source.is_leading() {
            // Another writes meanwhile.
            written = Written::default();
            untold = Untold::default();
            continue;
        }
        // Not one for all turns: it keeps each event whole for minutes, of thousands of nodes that is megabytes.
        let recorder = Recorder::new(host.client.clone(), reporter.clone());
        untold.tell(&recorder, || host.source.is_leading()).await;
        let missing = host.source.read(node_metrics::store::Store::conditions);
        let missing = written.due(missing, Instant::now());
        let writes = turns
            .next(missing)
            .into_iter()
            .map(|(name, transition)| write(&host, &nodes, &recorder, name, transition));
        let done: Vec<_> = stream::iter(writes).buffer_unordered(WRITERS).collect().await;
        for Done { name, silence, told } in done.into_iter().flatten() {
            untold.note(&name, told);
            written.note(name, silence, Instant::now());
        }
    }
}

/// Writes one condition, and tells of it; returns what was done, if it was written.
async fn write(
    host: &Host,
    nodes: &Api<Node>,
    recorder: &Recorder,
    name: Arc<str>,
    transition: Transition,
) -> Option<Done> {
    if !host.source.is_leading() {
        return None;
    }
    let silence = transition.now;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Strategic(patch(transition, Timestamp::now()));
    match tokio::time::timeout(CALL, nodes.patch_status(&name, &params, &patch)).await {
        Ok(Ok(node)) => {
            info!(node = &*name, reason = reason(silence), "condition {NODE_METRIC_FRESH}");
            let about = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(name.to_string()),
                uid: node.metadata.uid,
                ..ObjectReference::default()
            };
            let told = match event(transition).map(|event| (event, about)) {
                None => Told::NoNews,
                Some(news) if publish(recorder, &news).await => Told::Yes,
                Some(news) => Told::No(Box::new(news)),
            };
            Some(Done { name, silence, told })
        }
        Ok(Err(error)) => {
            warn!(%error, node = &*name, "cannot write condition {NODE_METRIC_FRESH}");
            None
        }
        Err(_) => {
            warn!(node = &*name, "cannot write condition {NODE_METRIC_FRESH}: no answer");
            None
        }
    }
}

fn status(silence: Silence) -> &'static str {
    if matches!(silence, Silence::Fresh | Silence::Stale) { "True" } else { "False" }
}

/// Whether the condition's status changes, and not its reason alone.
fn is_turn(Transition { before, now }: Transition) -> bool {
    before.map(status) != Some(status(now))
}

fn reason(silence: Silence) -> &'static str {
    match silence {
        Silence::Fresh | Silence::Stale => REPORTING,
        Silence::Expired => REPORTS_CEASED,
        Silence::Hidden => OUT_OF_VIEW,
    }
}

fn message(silence: Silence) -> &'static str {
    match silence {
        Silence::Fresh | Silence::Stale => "the node reports its metrics",
        Silence::Expired => "the node does not report its metrics; the last ones mean nothing any more",
        Silence::Hidden => {
            "the node does not report its metrics; its NodeMetric is out of view until it does"
        }
    }
}

/// The condition, merged by its type; the kubelet's own stay, and the time of the last transition where this is none.
fn patch(transition: Transition, now: Timestamp) -> Value {
    let silence = transition.now;
    let now = Time(now.round(jiff::Unit::Second).unwrap_or(now));
    let mut condition = json!({
        "type": NODE_METRIC_FRESH,
        "status": status(silence),
        "reason": reason(silence),
        "message": message(silence),
        "lastHeartbeatTime": now,
    });
    if is_turn(transition) {
        condition["lastTransitionTime"] = json!(now);
    }
    json!({"status": {"conditions": [condition]}})
}

/// What people should hear of: once of each turn. Hiding follows from expiry and is no news.
fn event(transition: Transition) -> Option<Event> {
    let silence = transition.now;
    let type_ = match silence {
        Silence::Fresh => EventType::Normal,
        Silence::Expired => EventType::Warning,
        Silence::Stale | Silence::Hidden => return None,
    };
    if !is_turn(transition) {
        return None;
    }
    Some(Event {
        type_,
        reason: reason(silence).to_owned(),
        note: Some(message(silence).to_owned()),
        action: "Report".to_owned(),
        secondary: None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use parking_lot::Mutex;

    use super::*;

    const FROM_NOTHING: Option<Silence> = None;

    #[test]
    fn conditions_say_what_the_store_found() {
        let (fresh, expired, hidden) = (Silence::Fresh, Silence::Expired, Silence::Hidden);
        let cases = [
            (FROM_NOTHING, fresh, "True", "Reporting", true, Some(true)),
            (Some(hidden), fresh, "True", "Reporting", true, Some(true)),
            (FROM_NOTHING, expired, "False", "ReportsCeased", true, Some(false)),
            (Some(fresh), expired, "False", "ReportsCeased", true, Some(false)),
            (Some(expired), hidden, "False", "OutOfView", false, None),
            // An object was made of a node out of view.
            (Some(hidden), expired, "False", "ReportsCeased", false, None),
            (Some(fresh), hidden, "False", "OutOfView", true, None),
        ];
        for (before, now, status, reason, turns, good_news) in cases {
            let transition = Transition { before, now };
            let patch = patch(transition, Timestamp::UNIX_EPOCH);
            let condition = &patch["status"]["conditions"][0];
            assert_eq!((&condition["status"], &condition["reason"]), (&json!(status), &json!(reason)));
            let turned = turns.then(|| json!("1970-01-01T00:00:00Z"));
            assert_eq!(condition.get("lastTransitionTime"), turned.as_ref(), "{before:?} to {now:?}");
            let event = event(transition).map(|event| matches!(event.type_, EventType::Normal));
            assert_eq!(event, good_news, "{before:?} to {now:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_does_not_take_is_told_later() {
        let (refuses, taken) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
        let (asked, heard) = (Arc::clone(&refuses), Arc::clone(&taken));
        let api_server = move |request: http::Request<kube::client::Body>| {
            let (asked, heard) = (Arc::clone(&asked), Arc::clone(&heard));
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let status = if asked.load(Relaxed) { 503 } else { 201 };
                if status == 201 {
                    let event: Value = serde_json::from_slice(&body).unwrap();
                    heard.lock().push(event["regarding"]["name"].as_str().unwrap().to_owned());
                }
                let answer =
                    http::Response::builder().status(status).body(kube::client::Body::from(body.to_vec()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        };
        let client = kube::Client::new(tower::service_fn(api_server), "default");
        let recorder = Recorder::new(client, FIELD_MANAGER.into());
        let news = |name: &str, now| {
            let about = ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() };
            Told::No(Box::new((event(Transition { before: None, now }).unwrap(), about)))
        };
        let mut untold = Untold::default();
        for name in ["a", "b", "c"] {
            untold.note(&name.into(), news(name, Silence::Expired));
        }
        untold.tell(&recorder, || true).await;
        assert_eq!((untold.news.len(), taken.lock().len()), (3, 0));
        untold.note(&"a".into(), news("a", Silence::Fresh));
        assert_eq!(untold.news["a"].0.0.reason, REPORTING, "the latest of each");
        untold.note(&"b".into(), Told::NoNews);
        untold.note(&"c".into(), Told::Yes);
        refuses.store(false, Relaxed);
        untold.tell(&recorder, || true).await;
        assert_eq!((untold.news.len(), taken.lock().len()), (2, 0), "it waits a moment");
        tokio::time::sleep(TURN).await;
        untold.tell(&recorder, || false).await;
        assert_eq!((untold.news.len(), taken.lock().len()), (2, 0), "another leads");
        untold.tell(&recorder, || true).await;
        assert_eq!((untold.news.len(), &**taken.lock()), (0, &["b".to_owned(), "a".to_owned()][..]));
    }

    #[test]
    fn what_was_written_is_not_written_again_because_its_watch_lags() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let missing = |before, now| vec![(Arc::from("n"), Transition { before, now })];
        let fresh = Some(Silence::Fresh);
        let mut written = Written::default();
        assert_eq!(written.due(missing(fresh, Silence::Expired), begin).len(), 1);
        written.note("n".into(), Silence::Expired, begin);
        assert_eq!(written.due(missing(fresh, Silence::Expired), after(1)), []);
        // Another is written at once, from what was written last.
        let hidden = written.due(missing(fresh, Silence::Hidden), after(2));
        assert_eq!(hidden[0].1, Transition { before: Some(Silence::Expired), now: Silence::Hidden });
        // Somebody took it away.
        let again = written.due(missing(None, Silence::Expired), after(31));
        assert_eq!(again[0].1, Transition { before: None, now: Silence::Expired });
    }
}
