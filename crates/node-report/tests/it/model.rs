//! Any interleaving of samples, deliveries, duplicates, losses, restarts and takeovers by lagging copies: what a server holds is what the
//! reporter had sent by that report; what was acknowledged is not forgotten by its leader; and once the network is well, both agree.

use std::collections::BTreeMap;

use node_report::{
    Answer, Encoder, Message, NodeUsage, PodUsage, Report, Resources, Sample, Source, Threshold, Verdict,
    View,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    /// The node changes a pod: value 0 removes it.
    Pod(u8, u64),
    /// The node sends a report.
    Send,
    /// A request of those ever sent reaches the leader; it stays, to be delivered again.
    Deliver(usize),
    /// An answer of those ever given reaches the reporter.
    Answer(usize),
    /// The copy follows the leader up to now.
    Copy,
    /// The copy becomes leader.
    Takeover,
    /// The reporter starts anew, with a clock that may have gone back.
    Restart(bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_u8..6, 0_u64..4).prop_map(|(pod, value)| Op::Pod(pod, value)),
        4 => Just(Op::Send),
        4 => (0_usize..4).prop_map(Op::Deliver),
        1 => any::<usize>().prop_map(Op::Deliver),
        4 => (0_usize..3).prop_map(Op::Answer),
        1 => any::<usize>().prop_map(Op::Answer),
        1 => Just(Op::Copy),
        1 => Just(Op::Takeover),
        1 => any::<bool>().prop_map(Op::Restart),
    ]
}

enum Reply {
    Answer(Answer),
    NeedFull,
}

struct World {
    pods: BTreeMap<u8, u64>,
    encoder: Encoder,
    /// What a server must hold at each report, by incarnation and number.
    truth: BTreeMap<(u64, u64), BTreeMap<String, PodUsage>>,
    requests: Vec<Vec<u8>>,
    replies: Vec<Reply>,
    epoch: u64,
    lives: u64,
    leader: View,
    copy: View,
    /// Greatest (incarnation, number) that the leader of this epoch has acknowledged.
    acknowledged: Option<(u64, u64)>,
    /// Two lives had one number, which the protocol rules out (and microseconds make next to impossible).
    is_met: bool,
}

impl World {
    fn new(threshold: Threshold) -> Self {
        let source = Source { node: "n".into(), node_uid: String::new(), boot_id: String::new() };
        Self {
            pods: BTreeMap::new(),
            encoder: Encoder::new(source, 10_000_000, threshold),
            truth: BTreeMap::new(),
            requests: Vec::new(),
            replies: Vec::new(),
            epoch: 1,
            lives: 1,
            leader: View::default(),
            copy: View::default(),
            acknowledged: None,
            is_met: false,
        }
    }

    fn send(&mut self) {
        let pod = |(id, value): (&u8, &u64)| PodUsage {
            uid: format!("p{id}"),
            usage: Some(Resources { cpu_milli: Some(*value * 4), memory_bytes: None }),
            ..PodUsage::default()
        };
        let pods: Vec<_> = self.pods.iter().map(pod).collect();
        let report = self.encoder.next(Sample { usage: NodeUsage::default(), pods, ..Sample::default() });
        assert_eq!(report.check(), Ok(()));
        // What was sent by this report, from its own content: the truth before it, changed.
        let before = report.seq.checked_sub(1).and_then(|seq| self.truth.get(&(report.incarnation, seq)));
        let mut state = if report.is_full() { BTreeMap::new() } else { before.cloned().unwrap() };
        state.retain(|uid, _| self.pods.keys().any(|id| format!("p{id}") == *uid));
        state.extend(report.pods.iter().map(|pod| (pod.uid.clone(), pod.clone())));
        assert_eq!(state.len(), self.pods.len(), "a pod is missing in {report:?}");
        self.is_met |= self.truth.insert((report.incarnation, report.seq), state).is_some();
        self.requests.push(report.encode_to_vec());
    }

    /// `back` counts from the latest, so that small numbers are likely deliveries.
    fn deliver(&mut self, back: usize) {
        let Some(at) = self.requests.len().checked_sub(1 + back % self.requests.len().max(1)) else { return };
        let report = Report::decode(self.requests[at].as_slice()).unwrap();
        let verdict = self.leader.take(self.epoch, report);
        match (verdict, self.leader.held) {
            (Verdict::Take | Verdict::Drop, Some(held)) => {
                self.acknowledged = self.acknowledged.max(Some((held.incarnation, held.seq)));
                self.replies.push(Reply::Answer(Answer {
                    epoch: self.epoch,
                    incarnation: held.incarnation,
                    acked_seq: held.seq,
                    dropped: verdict == Verdict::Drop,
                    ..Answer::default()
                }));
            }
            (Verdict::NeedFull, _) => self.replies.push(Reply::NeedFull),
            _ => {}
        }
    }

    fn answer(&mut self, back: usize) {
        let Some(at) = self.replies.len().checked_sub(1 + back % self.replies.len().max(1)) else { return };
        match &self.replies[at] {
            Reply::Answer(answer) => {
                self.encoder.answered(answer);
            }
            Reply::NeedFull => self.encoder.send_full(),
        }
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Pod(id, 0) => {
                self.pods.remove(id);
            }
            Op::Pod(id, value) => {
                self.pods.insert(*id, *value);
            }
            Op::Send => self.send(),
            Op::Deliver(back) => self.deliver(*back),
            Op::Answer(back) => self.answer(*back),
            Op::Copy => self.copy = self.leader.clone(),
            Op::Takeover => {
                self.epoch += 1;
                self.leader = self.copy.clone();
                self.acknowledged = None;
            }
            Op::Restart(is_back) => {
                let source = Source { node: "n".into(), node_uid: String::new(), boot_id: String::new() };
                self.lives += 1;
                // Seconds apart, as clocks are: then the encoder's step beyond a later life hits no other.
                let incarnation = if *is_back { self.lives } else { self.lives * 10_000_000 };
                self.encoder = Encoder::new(source, incarnation, Threshold::default());
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        if let Some(held) = self.leader.held {
            let truth = &self.truth[&(held.incarnation, held.seq)];
            prop_assert_eq!(&self.leader.pods, truth, "what is held at {:?}", held);
        }
        let held = self.leader.held.map(|held| (held.incarnation, held.seq));
        prop_assert!(
            held >= self.acknowledged,
            "{:?} was acknowledged, {:?} is held",
            self.acknowledged,
            held
        );
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_server_holds_what_was_sent_and_comes_to_the_present(
        ops in prop::collection::vec(op(), 0..120), is_exact in any::<bool>()
    ) {
        let mut world = World::new(if is_exact { Threshold::EXACT } else { Threshold::default() });
        for op in &ops {
            world.step(op);
            prop_assume!(!world.is_met);
            world.check()?;
        }
        // The network is well again: at most an outlived life, a refused delta and a full report.
        for _ in 0..4 {
            world.send();
            world.deliver(0);
            world.answer(0);
            prop_assume!(!world.is_met);
            world.check()?;
        }
        let held = world.leader.held.unwrap();
        prop_assert_eq!(held.incarnation, world.encoder.incarnation());
        prop_assert!(!world.encoder.is_full_next(), "deltas again");
        prop_assert_eq!(world.leader.pods.len(), world.pods.len());
        for (id, value) in &world.pods {
            let cpu = world.leader.pods[&format!("p{id}")].usage.unwrap().cpu_milli.unwrap();
            prop_assert!(cpu.abs_diff(*value * 4) <= Threshold::default().cpu_milli, "pod {} drifted", id);
        }
    }
}
