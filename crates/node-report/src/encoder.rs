//! Which report a node sends next. A state machine without I/O: samples and what became of reports in, reports out.
//!
//! What the server holds at report `k` is what the encoder had sent by then. A delta with base `b` and number `s` has every pod that was sent
//! or taken away after `b`, whole: so it is right on top of any report from `b` to `s - 1`, and an answer that is lost costs nothing. All
//! reports are full until one is acknowledged.
//!
//! The incarnation is the caller's: greater than any that it used before, as far as it knows (microseconds since 1970, or the last in its
//! checkpoint and one). Should the server hold a greater one nevertheless, its answer says so, and the encoder goes beyond it, by a step of its own so
//! that two such lives do not meet on one number. No two lives may have the same.

use std::collections::BTreeMap;

use crate::answer::Answer;
use crate::report::{NodeUsage, PodUsage, Report};
use crate::threshold::Threshold;

/// Bound of the step beyond a later life: a second, of incarnations that count microseconds.
const STEP: u64 = 1_000_000;

/// Who reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of the node.
    pub node: String,
    /// UID of its Node object, if known.
    pub node_uid: String,
    /// Boot of its kernel.
    pub boot_id: String,
}

/// What a node is like now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, by the node's clock, in milliseconds since 1970.
    pub sampled_at_ms: i64,
    /// The node itself.
    pub usage: NodeUsage,
    /// All its pods; of two with one UID the later counts.
    pub pods: Vec<PodUsage>,
    /// Hash of the policy by which this was measured.
    pub policy_hash: Option<u64>,
    /// Interval at which the node reports, in milliseconds.
    pub interval_ms: u32,
}

/// What an answer meant to the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The server holds report `acked_seq` of ours.
    Acknowledged,
    /// The server was of an epoch before one already heard: it does not lead. Look for the leader.
    OldLeader,
    /// The server holds a later life of this node's reporter; the next report begins a life beyond that.
    Outlived,
    /// An answer to something long past; it says nothing.
    Late,
}

/// The sending side of the protocol, for one node.
#[derive(Clone, Debug)]
pub struct Encoder {
    source: Source,
    threshold: Threshold,
    incarnation: u64,
    next_seq: u64,
    /// Latest epoch heard.
    epoch: Option<u64>,
    /// Latest of our reports that the server is known to hold; `None`: send full ones.
    base: Option<u64>,
    /// Acknowledgements of reports before this one are of a state of which we no longer know the difference: since a refusal, or since
    /// the latest full report.
    full_from: u64,
    /// Each pod as sent last, and in which report.
    sent: BTreeMap<String, (PodUsage, u64)>,
    /// Pods taken away, and in which report; only those after `base`.
    removed: BTreeMap<String, u64>,
}

impl Encoder {
    /// Of a reporter that has sent nothing in this incarnation.
    pub fn new(source: Source, incarnation: u64, threshold: Threshold) -> Self {
        Self {
            source,
            threshold,
            incarnation,
            next_seq: 0,
            epoch: None,
            base: None,
            full_from: 0,
            sent: BTreeMap::new(),
            removed: BTreeMap::new(),
        }
    }

    /// The incarnation in use, for the caller's checkpoint.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The latest epoch heard.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// Whether the next report is a full one.
    pub fn is_full_next(&self) -> bool {
        self.base.is_none()
    }

    /// Learns the Node object's UID, or a new one: what was sent belongs to the old.
    pub fn set_node_uid(&mut self, uid: &str) {
        if self.source.node_uid != uid {
            uid.clone_into(&mut self.source.node_uid);
            self.send_full();
        }
    }

    /// The next report is full: after 409, on a new connection, on a new leader.
    pub fn send_full(&mut self) {
        self.base = None;
        self.full_from = self.next_seq;
    }

    /// The report of `sample`. It counts as sent from now on, whatever becomes of it.
    pub fn next(&mut self, sample: Sample) -> Report {
        let Sample { sampled_at_ms, usage, pods, policy_hash, interval_ms } = sample;
        let seq = self.next_seq;
        self.next_seq += 1;
        let now: BTreeMap<_, _> = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
        let pods = match self.base {
            None => self.replace(now, seq),
            Some(base) => self.change(now, seq, base),
        };
        let removed_pods = self.removed.keys().cloned().collect();
        let Source { node, node_uid, boot_id } = self.source.clone();
        Report {
            node,
            node_uid,
            boot_id,
            incarnation: self.incarnation,
            seq,
            base_seq: self.base,
            sampled_at_ms,
            epoch: self.epoch,
            policy_hash,
            usage: Some(usage),
            pods,
            removed_pods,
            interval_ms,
        }
    }

    fn replace(&mut self, now: BTreeMap<String, PodUsage>, seq: u64) -> Vec<PodUsage> {
        // What went away between two full reports is remembered of neither, so only the latest can be a base.
        self.full_from = seq;
        self.removed.clear();
        self.sent = now.into_iter().map(|(uid, pod)| (uid, (pod, seq))).collect();
        self.sent.values().map(|(pod, _)| pod.clone()).collect()
    }

    fn change(&mut self, now: BTreeMap<String, PodUsage>, seq: u64, base: u64) -> Vec<PodUsage> {
        for (uid, _) in self.sent.extract_if(.., |uid, _| !now.contains_key(uid)) {
            self.removed.insert(uid, seq);
        }
        let mut changed = Vec::new();
        for (uid, pod) in now {
            let is_news = match self.sent.get(&uid) {
                Some((sent, at)) => *at > base || self.threshold.passed(sent, &pod),
                None => true,
            };
            if is_news {
                self.removed.remove(&uid);
                changed.push(pod.clone());
                self.sent.insert(uid, (pod, seq));
            }
        }
        changed
    }

    /// What an answer with status 200 says.
    pub fn answered(&mut self, answer: &Answer) -> Heard {
        let Answer { epoch, incarnation, acked_seq, .. } = answer;
        if self.epoch.is_some_and(|heard| heard > *epoch) {
            return Heard::OldLeader;
        }
        let is_new_leader = self.epoch.is_some_and(|heard| heard < *epoch);
        self.epoch = Some(*epoch);
        let is_beyond = *incarnation > self.incarnation
            || *incarnation == self.incarnation && *acked_seq >= self.next_seq;
        if is_beyond {
            self.begin_again(*incarnation);
            return Heard::Outlived;
        }
        if is_new_leader && self.base.is_some() {
            // It took a delta on its copy of the state. That is right, but a full report does not lean on the copy.
            self.send_full();
            return Heard::Acknowledged;
        }
        if *incarnation < self.incarnation || *acked_seq < self.full_from {
            return Heard::Late;
        }
        if self.base.is_none_or(|base| base < *acked_seq) {
            self.base = Some(*acked_seq);
            self.removed.retain(|_, at| *at > *acked_seq);
        }
        Heard::Acknowledged
    }

    fn begin_again(&mut self, beyond: u64) {
        let incarnation = beyond.saturating_add(1 + self.incarnation % STEP);
        let (source, threshold, epoch) = (self.source.clone(), self.threshold, self.epoch);
        *self = Self { epoch, ..Self::new(source, incarnation, threshold) };
    }
}
