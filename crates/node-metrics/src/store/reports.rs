//! Reports and silences: how objects change by what nodes say, and by what they do not.

use std::sync::Arc;

use api::slo::freshness::{Freshness, FreshnessState};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use node_report::{Report, Verdict};

use super::{Outcome, Phase, Reply, Store, seconds};
use crate::freshness::{Now, Silence};
use crate::load::Figures;
use crate::record::{Record, Status};
use crate::reported::Reported;

impl Store {
    /// Takes a report from the node that its connection belongs to. The caller has checked it ([`Report::check`]).
    pub fn report(&mut self, now: Now, report: Report) -> Outcome {
        if self.phase == Phase::Following {
            return Outcome::NotLeading;
        }
        let Some((name, tracked)) = self.nodes.get_key_value(report.node.as_str()) else {
            return if self.nodes_listed { Outcome::Unknown } else { Outcome::NotLeading };
        };
        let name = Arc::clone(name);
        let allocatable = tracked.facts.allocatable;
        let Some(tracked) = self.nodes.get_mut(&name) else { return Outcome::Unknown };
        let other = !report.node_uid.is_empty() && report.node_uid != tracked.facts.uid;
        let mut reported = if other { None } else { tracked.reported.take() };
        let verdict = Reported::take(&mut reported, self.epoch, report);
        if verdict == Verdict::Superseded {
            tracked.reported = reported;
            return Outcome::Superseded;
        }
        let held =
            reported.as_ref().and_then(|reported| reported.held()).map(|held| (held.incarnation, held.seq));
        let reply = Reply { epoch: self.epoch, held, policy: tracked.facts.policy.clone() };
        tracked.reported.clone_from(&reported);
        if let (Verdict::Take, Some(reported)) = (verdict, reported) {
            tracked.heard = now.steady;
            tracked.told = tracked.facts.policy.interval;
            tracked.silence = Some(Silence::Fresh);
            let freshness = Freshness {
                state: FreshnessState::Fresh,
                received_time: Some(Time(seconds(now.wall))),
                age_seconds: Some(0),
                sampled_time: sampled(reported.sampled_at_ms()),
            };
            let known = self.ledger.get(&name);
            let (metadata, spec) = known.map_or_else(
                || {
                    let facts = &tracked.facts;
                    let spec = Arc::clone(&facts.policy.spec);
                    let record = Record::of_node(&name, &facts.uid, facts.created.as_ref(), spec);
                    (record.metadata, record.spec)
                },
                |known| (Arc::clone(&known.value.metadata), Arc::clone(&known.value.spec)),
            );
            let before = known.map(|known| known.value.load).unwrap_or_default();
            let load = self.thresholds.judge(before, Figures::of(&reported, allocatable));
            let record = Record::new(metadata, spec, Status::Reported(reported), freshness, allocatable)
                .with_load(load);
            self.ledger.put(&name, record, now.micros());
            self.warm_by_report(now);
        }
        Outcome::Judged { verdict, reply: Box::new(reply) }
    }

    /// Looks at all silences; each step of one is one change of its object. What was deleted of a Node that is there comes back. To be
    /// called each second, by who knows at that moment that this replica leads.
    pub fn tick(&mut self, now: Now) {
        if self.phase == Phase::Following {
            return;
        }
        self.led = now.steady;
        for (name, tracked) in &mut self.nodes {
            let Some(before) = tracked.silence else { continue };
            let age = now.steady.saturating_sub(tracked.heard);
            // What was stale or worse stays so until a report: a take-over begins the count anew and proves no life.
            // A node learns with its next answer that another interval is wanted of it.
            let interval = tracked.told.max(tracked.facts.policy.interval);
            let silence = self.settings.rules.judge(age, interval).max(before);
            if silence == before {
                continue;
            }
            tracked.silence = Some(silence);
            let Some(stored) = self.ledger.get(name) else { continue };
            if silence == Silence::Hidden {
                self.ledger.remove(name, now.micros());
                tracked.reported = None;
                continue;
            }
            let known = &stored.value.freshness;
            // A take-over begins the count anew, and the report was as old as its time of receipt says.
            let is_inherited = tracked.reported.is_none();
            let age_seconds = known.received_time.as_ref().map(|received| {
                let counted = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
                let since = now.wall.duration_since(received.0).as_secs();
                if is_inherited { since.max(counted) } else { counted }
            });
            let freshness = Freshness { state: silence.into(), age_seconds, ..known.clone() };
            let record = stored.value.with_freshness(freshness);
            self.ledger.put(name, record, now.micros());
        }
        if self.nodes_listed {
            self.settle_missing(now);
        }
        self.warm(now);
    }
}

/// When a node says that it measured, if that is a year of four digits from 1970 on. A clock may be wrong and is shown so; of other years there is no form that
/// followers and clients would read.
fn sampled(since_1970_ms: i64) -> Option<MicroTime> {
    let time = Timestamp::from_millisecond(since_1970_ms).ok()?;
    (time >= Timestamp::UNIX_EPOCH).then_some(MicroTime(time))
}
