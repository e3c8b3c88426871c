//! What happens in words, one after another.

use node_report::encoder::Heard;
use node_report::{
    Answer, Encoder, NodeUsage, PodUsage, Report, Resources, Sample, Source, Threshold, Verdict, View,
};

fn source() -> Source {
    Source { node: "n".into(), node_uid: "uid".into(), boot_id: "boot".into() }
}

fn sample(pods: &[(&str, u64)]) -> Sample {
    let pod = |(uid, cpu): &(&str, u64)| PodUsage {
        uid: (*uid).to_owned(),
        usage: Some(Resources { cpu_milli: Some(*cpu), memory_bytes: None }),
        ..PodUsage::default()
    };
    Sample { usage: NodeUsage::default(), pods: pods.iter().map(pod).collect(), ..Sample::default() }
}

fn acknowledged(epoch: u64, report: &Report) -> Answer {
    Answer { epoch, incarnation: report.incarnation, acked_seq: report.seq, ..Answer::default() }
}

fn uids(report: &Report) -> Vec<&str> {
    report.pods.iter().map(|pod| pod.uid.as_str()).collect()
}

#[test]
fn after_an_answer_only_what_changed_is_sent() {
    let mut encoder = Encoder::new(source(), 1, Threshold::default());
    let first = encoder.next(sample(&[("a", 100), ("b", 100), ("c", 100)]));
    assert_eq!((first.seq, first.base_seq, uids(&first)), (0, None, vec!["a", "b", "c"]));
    assert_eq!(encoder.answered(&acknowledged(1, &first)), Heard::Acknowledged);
    let second = encoder.next(sample(&[("a", 101), ("b", 200), ("d", 5)]));
    assert_eq!((second.seq, second.base_seq, second.epoch), (1, Some(0), Some(1)));
    assert_eq!((uids(&second), second.removed_pods.clone()), (vec!["b", "d"], vec!["c".to_owned()]));
    encoder.answered(&acknowledged(1, &second));
    // A little and a little more: 100 was sent last of a.
    let third = encoder.next(sample(&[("a", 106), ("b", 200), ("d", 5)]));
    assert_eq!((uids(&third), third.removed_pods.len()), (vec!["a"], 0));
}

#[test]
fn a_lost_answer_costs_no_full_report() {
    let mut encoder = Encoder::new(source(), 1, Threshold::default());
    let mut view = View::default();
    let first = encoder.next(sample(&[("a", 100), ("b", 100)]));
    view.take(1, first.clone());
    encoder.answered(&acknowledged(1, &first));
    // Taken, but never heard of.
    assert_eq!(view.take(1, encoder.next(sample(&[("a", 900)]))), Verdict::Take);
    let third = encoder.next(sample(&[("a", 100), ("b", 100)]));
    assert_eq!((third.base_seq, uids(&third)), (Some(0), vec!["a", "b"]));
    assert_eq!(view.take(1, third), Verdict::Take);
    let cpu: Vec<_> = view.pods.values().map(|pod| pod.usage.unwrap().cpu_milli.unwrap()).collect();
    assert_eq!(cpu, [100, 100]);
}

#[test]
fn refused_deltas_and_new_leaders_get_a_full_report() {
    let mut encoder = Encoder::new(source(), 1, Threshold::default());
    let first = encoder.next(sample(&[("a", 100)]));
    encoder.answered(&acknowledged(1, &first));
    let delta = encoder.next(sample(&[("a", 100)]));
    assert_eq!(View::default().take(1, delta), Verdict::NeedFull);
    encoder.send_full();
    let full = encoder.next(sample(&[("a", 100)]));
    assert_eq!((full.seq, full.base_seq, uids(&full)), (2, None, vec!["a"]));
    // An answer to what came before the refusal does not count.
    assert_eq!(encoder.answered(&acknowledged(1, &first)), Heard::Late);
    assert!(encoder.is_full_next());
    encoder.answered(&acknowledged(1, &full));
    let delta = encoder.next(sample(&[("a", 100)]));
    assert_eq!(encoder.answered(&acknowledged(2, &delta)), Heard::Acknowledged);
    assert!(encoder.is_full_next(), "another epoch");
    // The old leader comes back: nothing that it says counts.
    assert_eq!(encoder.answered(&acknowledged(1, &full)), Heard::OldLeader);
    assert_eq!(View::default().take(1, encoder.next(sample(&[]))), Verdict::Superseded);
}

#[test]
fn a_reporter_whose_clock_went_back_gets_beyond_its_former_life() {
    let mut view = View::default();
    let mut former = Encoder::new(source(), 1_000, Threshold::default());
    view.take(1, former.next(sample(&[("a", 1)])));
    let mut encoder = Encoder::new(source(), 10, Threshold::default());
    assert_eq!(view.take(1, encoder.next(sample(&[("a", 2)]))), Verdict::Drop);
    let held = view.held.unwrap();
    let answer = Answer {
        epoch: 1,
        incarnation: held.incarnation,
        acked_seq: held.seq,
        dropped: true,
        ..Answer::default()
    };
    assert_eq!(encoder.answered(&answer), Heard::Outlived);
    assert_eq!(encoder.incarnation(), 1_011);
    assert_eq!(view.take(1, encoder.next(sample(&[("a", 2)]))), Verdict::Take);
}
