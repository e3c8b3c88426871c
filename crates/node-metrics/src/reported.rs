//! What a node reported last, kept small: of a hundred pods each, the wire form is a quarter of the decoded one.
//!
//! Pure. The measure is [`node_report::View`]: the same reports lead to the same state.

use std::sync::Arc;

use bytes::Bytes;
use node_report::{Held, Message, NodeUsage, PodUsage, Report, Verdict, judge};

use self::pods::Pods;

mod pods;

/// The state of a node as of the last report taken. Cloning copies no pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reported {
    held: Option<Held>,
    sampled_at_ms: i64,
    interval_ms: u32,
    policy_hash: Option<u64>,
    usage: NodeUsage,
    pods: Pods,
}

/// The whole state, as a leader sends it to a standby. Pods are as they are held here: whoever changes that gives them another field.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct State {
    #[prost(uint64, optional, tag = "1")]
    incarnation: Option<u64>,
    #[prost(uint64, tag = "2")]
    seq: u64,
    #[prost(int64, tag = "3")]
    sampled_at_ms: i64,
    #[prost(uint32, tag = "4")]
    interval_ms: u32,
    #[prost(uint64, optional, tag = "5")]
    policy_hash: Option<u64>,
    #[prost(message, optional, tag = "6")]
    usage: Option<NodeUsage>,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pods: Vec<Bytes>,
}

impl Reported {
    /// To be sent.
    pub(crate) fn state(&self) -> State {
        State {
            incarnation: self.held.map(|held| held.incarnation),
            seq: self.held.map_or(0, |held| held.seq),
            sampled_at_ms: self.sampled_at_ms,
            interval_ms: self.interval_ms,
            policy_hash: self.policy_hash,
            usage: Some(self.usage.clone()),
            pods: self.pods.pieces(),
        }
    }

    /// As it was sent; `None` if its pods are not in the order of their UIDs.
    pub(crate) fn of_state(state: &State) -> Option<Self> {
        Some(Self {
            held: state.incarnation.map(|incarnation| Held { incarnation, seq: state.seq }),
            sampled_at_ms: state.sampled_at_ms,
            interval_ms: state.interval_ms,
            policy_hash: state.policy_hash,
            usage: state.usage.clone().unwrap_or_default(),
            pods: Pods::of_pieces(&state.pods)?,
        })
    }

    /// Which report this is.
    pub fn held(&self) -> Option<Held> {
        self.held
    }

    /// When its newest sample was taken, by the node's clock, in milliseconds since 1970.
    pub fn sampled_at_ms(&self) -> i64 {
        self.sampled_at_ms
    }

    /// By which policy the node measured.
    pub fn policy_hash(&self) -> Option<u64> {
        self.policy_hash
    }

    /// The node itself.
    pub fn usage(&self) -> &NodeUsage {
        &self.usage
    }

    /// How many pods there are.
    pub fn pod_count(&self) -> usize {
        self.pods.count()
    }

    /// The pods in the order of their UIDs. One that cannot be decoded, which no report can lead to, is left out.
    pub fn pods(&self) -> impl Iterator<Item = PodUsage> + '_ {
        self.pods.iter().filter_map(|pod| {
            let uid = std::str::from_utf8(pod.uid()).ok()?.to_owned();
            Some(PodUsage { uid, ..PodUsage::decode(pod.encoded()).ok()? })
        })
    }

    /// Shows each of them without its UID, which no client is told. All are decoded into one, whose memory is used again.
    pub(crate) fn each_pod(&self, mut show: impl FnMut(&PodUsage)) {
        let mut pod = PodUsage::default();
        for held in self.pods.iter() {
            pod.clear();
            if pod.merge(held.encoded()).is_ok() {
                show(&pod);
            }
        }
    }

    /// Takes `report` if a leader of term `epoch` is to take it. The caller has checked it ([`Report::check`]).
    pub fn take(this: &mut Option<Arc<Self>>, epoch: u64, report: Report) -> Verdict {
        let held = this.as_ref().and_then(|reported| reported.held);
        let verdict = judge(epoch, held, &report);
        if verdict != Verdict::Take {
            return verdict;
        }
        let before = this.as_ref().filter(|_| !report.is_full()).map(|reported| &reported.pods);
        // Each delta is short, and many of them would not be together: followers take no longer state than a full report can make.
        let Some(taken) = Self::after(before.unwrap_or(&Pods::default()), report) else {
            return Verdict::NeedFull;
        };
        *this = Some(Arc::new(taken));
        verdict
    }

    /// What a report makes of these pods; `None` if they were too many then.
    fn after(before: &Pods, report: Report) -> Option<Self> {
        let Report {
            node: _,
            node_uid: _,
            boot_id: _,
            incarnation,
            seq,
            base_seq: _,
            sampled_at_ms,
            epoch: _,
            policy_hash,
            usage,
            pods,
            removed_pods,
            interval_ms,
        } = report;
        Some(Self {
            held: Some(Held { incarnation, seq }),
            sampled_at_ms,
            interval_ms,
            policy_hash,
            usage: usage.unwrap_or_default(),
            pods: before.after(pods, &removed_pods)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use node_report::report::MAX_PODS;
    use node_report::{Resources, View};
    use proptest::prelude::*;

    use super::*;

    fn report() -> impl Strategy<Value = Report> {
        let pod = (0u8..6, 0u64..4).prop_map(|(uid, cpu)| PodUsage {
            uid: format!("u{uid}"),
            name: format!("p{uid}"),
            usage: Some(Resources { cpu_milli: Some(cpu), memory_bytes: None }),
            ..PodUsage::default()
        });
        let pods = prop::collection::btree_map(0u8..6, pod, 0..5);
        (1u64..3, 0u64..8, prop::option::of(1u64..4), pods, 0u8..6, prop::option::of(3u64..6)).prop_map(
            |(incarnation, seq, back, pods, gone, epoch)| {
                let base_seq = back.and_then(|back| seq.checked_sub(back));
                let pods: Vec<_> =
                    pods.into_iter().map(|(n, pod)| PodUsage { uid: format!("u{n}"), ..pod }).collect();
                let removed = format!("u{gone}");
                let known = pods.iter().any(|pod| pod.uid == removed);
                let removed_pods = if base_seq.is_some() && !known { vec![removed] } else { Vec::new() };
                let usage = Some(NodeUsage {
                    aggregate_duration_s: u32::try_from(seq).unwrap(),
                    ..NodeUsage::default()
                });
                let node = "n".to_owned();
                Report {
                    node,
                    incarnation,
                    seq,
                    base_seq,
                    pods,
                    removed_pods,
                    usage,
                    epoch,
                    ..Report::default()
                }
            },
        )
    }

    #[test]
    fn deltas_lead_to_no_more_pods_than_a_full_report_may_have() {
        let pods = |from: usize, to: usize| {
            let pod = |n| PodUsage { uid: format!("u{n}"), ..PodUsage::default() };
            (from..to).map(pod).collect::<Vec<_>>()
        };
        let first =
            Report { usage: Some(NodeUsage::default()), pods: pods(0, MAX_PODS), ..Report::default() };
        let delta = |seq, pods, removed: &[&str]| Report {
            seq,
            base_seq: Some(0),
            pods,
            removed_pods: removed.iter().map(|uid| (*uid).to_owned()).collect(),
            ..first.clone()
        };
        let (mut small, mut plain) = (None, View::default());
        let one = pods(MAX_PODS, MAX_PODS + 1);
        // Each with what becomes of it, and how many pods there are then.
        for (report, verdict, count) in [
            (first.clone(), Verdict::Take, MAX_PODS),
            (delta(1, one.clone(), &[]), Verdict::NeedFull, MAX_PODS),
            (delta(2, one.clone(), &["other"]), Verdict::NeedFull, MAX_PODS),
            (delta(3, one, &["u7"]), Verdict::Take, MAX_PODS),
            (delta(4, pods(0, 7), &["u8"]), Verdict::Take, MAX_PODS - 1),
            (delta(5, pods(7, 9), &[]), Verdict::NeedFull, MAX_PODS - 1),
            (Report { seq: 6, ..first.clone() }, Verdict::Take, MAX_PODS),
        ] {
            assert_eq!(Reported::take(&mut small, 4, report.clone()), verdict, "{}", report.seq);
            assert_eq!(plain.take(4, report), verdict);
            assert_eq!(
                (small.as_ref().map(|small| small.pod_count()), plain.pods.len()),
                (Some(count), count)
            );
        }
    }

    proptest! {
        #[test]
        fn the_same_reports_lead_to_the_same_state(reports in prop::collection::vec(report(), 0..40)) {
            let (mut small, mut plain) = (None, View::default());
            for report in reports {
                prop_assert_eq!(report.check(), Ok(()));
                let before = small.clone();
                let verdict = Reported::take(&mut small, 4, report.clone());
                prop_assert_eq!(verdict, plain.take(4, report.clone()));
                if verdict != Verdict::Take {
                    prop_assert_eq!(&before, &small, "what is not taken changes nothing");
                }
                // A duplicate does nothing.
                let before = small.clone();
                if verdict == Verdict::Take {
                    prop_assert_eq!(Reported::take(&mut small, 4, report), Verdict::Drop);
                }
                prop_assert_eq!(&before, &small);
                let reported = small.as_deref().cloned().unwrap_or_default();
                prop_assert_eq!(reported.held(), plain.held);
                prop_assert_eq!(reported.usage(), &plain.usage);
                prop_assert!(reported.pods().eq(plain.pods.values().cloned()));
                let mut shown = Vec::new();
                reported.each_pod(|pod| shown.push(pod.clone()));
                let without_uid = |pod: &PodUsage| PodUsage { uid: String::new(), ..pod.clone() };
                prop_assert!(shown.into_iter().eq(plain.pods.values().map(without_uid)));
                prop_assert_eq!(Reported::of_state(&reported.state()), Some(reported));
            }
        }
    }
}
