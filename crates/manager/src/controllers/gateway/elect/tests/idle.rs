//! Endpoints of exposed Gateways that live, and to which nobody comes.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// An election among candidates to none of which anybody is linked, at the seconds given: who is elected, and when to look again.
struct Trial {
    start: Instant,
    judgement: Judgement,
    replicas: usize,
    record: Record,
}

impl Trial {
    fn new(replicas: usize) -> Self {
        let start = Instant::now();
        Self { start, judgement: Judgement::Strict(Some(start)), replicas, record: Record::default() }
    }

    fn at(&mut self, second: u32, list: &[Candidate]) -> (String, Option<u64>) {
        let now = self.start + SECOND * second;
        let outcome = elect(list, self.replicas, self.judgement, &self.record, now);
        self.record = outcome.record;
        (outcome.elected.join(" "), outcome.look_at.map(|at| (at - self.start).as_secs()))
    }

    /// The seconds of changes until `end`, and who is elected then.
    fn changes(&mut self, list: &[Candidate], end: u32) -> Vec<(u32, String)> {
        let (mut changes, mut elected) = (Vec::new(), String::new());
        for second in 0..end {
            let (now, _) = self.at(second, list);
            if now != elected {
                changes.push((second, now.clone()));
                elected = now;
            }
        }
        changes
    }
}

fn shown(changes: &[(u32, String)]) -> Vec<(u32, &str)> {
    changes.iter().map(|(second, who)| (*second, who.as_str())).collect()
}

#[test]
fn they_give_way_in_turn_ever_more_rarely() {
    let two = Trial::new(1).changes(&all(&[("a", Idle), ("b", Idle)]), 1300);
    let expected =
        [(0, "a"), (30, "b"), (90, "a"), (150, "b"), (270, "a"), (390, "b"), (630, "a"), (870, "b")];
    assert_eq!(shown(&two), expected);
    let three = Trial::new(1).changes(&all(&[("a", Idle), ("b", Idle), ("c", Idle)]), 500);
    assert_eq!(
        shown(&three),
        [(0, "a"), (30, "b"), (90, "c"), (150, "a"), (210, "b"), (330, "c"), (450, "a")]
    );
    // One at a time, and each has its turn.
    let pairs = Trial::new(2).changes(&all(&[("a", Idle), ("b", Idle), ("c", Idle), ("d", Idle)]), 260);
    assert_eq!(shown(&pairs), [(0, "a b"), (30, "b c"), (90, "c d"), (150, "a d"), (210, "a b")]);
    // Ten minutes at most.
    let long = Trial::new(1).changes(&all(&[("a", Idle), ("b", Idle)]), 4 * 3600);
    let pauses: Vec<u32> = long.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert_eq!(pauses.last(), Some(&600));
    assert!(pauses[1..].is_sorted(), "{pauses:?}");
}

#[test]
fn nobody_gives_way_without_reason() {
    let without_address = |node: &str| Candidate { addressed: false, ..candidate(node, Idle, true) };
    let cases = [
        ("nobody else", all(&[("a", Idle)]), 1),
        ("nobody else who lives", all(&[("a", Idle), ("b", Nothing), ("c", Unknown), ("d", Silent)]), 1),
        ("nobody else who could be dialled", vec![candidate("a", Idle, true), without_address("b")], 1),
        ("all are elected", all(&[("a", Idle), ("b", Idle)]), 2),
        ("somebody is linked to one of them", all(&[("a", Idle), ("b", Working), ("c", Idle)]), 2),
    ];
    for (what, list, replicas) in cases {
        let mut trial = Trial::new(replicas);
        let changes = trial.changes(&list, 600);
        assert_eq!(changes.len(), 1, "{what}: {changes:?}");
        assert_eq!(trial.at(600, &list).1, None, "{what}");
    }
    let list = all(&[("a", Idle), ("b", Idle)]);
    let mut trial = Trial::new(1);
    trial.judgement = Judgement::Strict(None);
    assert_eq!(trial.changes(&list, 600).len(), 1, "nobody would dial");
    // Since then there are nodes that would.
    trial.judgement = Judgement::Strict(Some(trial.start + SECOND * 600));
    assert_eq!(trial.at(629, &list), ("a".to_owned(), Some(630)));
    assert_eq!(trial.at(630, &list), ("b".to_owned(), Some(690)));
}

#[test]
fn a_link_ends_the_trial_and_its_loss_begins_one() {
    let idle = all(&[("a", Idle), ("b", Idle)]);
    let linked = all(&[("a", Working), ("b", Idle)]);
    let mut trial = Trial::new(1);
    assert_eq!(trial.at(0, &idle), ("a".to_owned(), Some(30)));
    assert_eq!(trial.at(29, &linked), ("a".to_owned(), None));
    assert_eq!(trial.at(600, &linked), ("a".to_owned(), None));
    assert_eq!(trial.at(601, &idle), ("a".to_owned(), Some(631)));
    assert_eq!(trial.at(631, &idle).0, "b");
    // Whoever is linked to it now: it stays, and the other has nothing to hope for.
    let linked = all(&[("a", Idle), ("b", Working)]);
    assert_eq!(trial.at(640, &linked), ("b".to_owned(), None));
    assert_eq!(trial.at(6000, &linked), ("b".to_owned(), None));
    // One of two lost its links long ago; both are judged since the other did.
    let mut trial = Trial::new(2);
    let one = all(&[("a", Idle), ("b", Working), ("c", Idle)]);
    assert_eq!(trial.at(0, &one).0, "a b");
    assert_eq!(trial.at(600, &one), ("a b".to_owned(), None));
    let none = all(&[("a", Idle), ("b", Idle), ("c", Idle)]);
    assert_eq!(trial.at(601, &none), ("a b".to_owned(), Some(631)));
}

/// Nodes dial it anew, which takes its time; what they had before it ended is no sign.
#[test]
fn a_hub_that_begins_anew_has_its_whole_time() {
    let idle = all(&[("a", Idle), ("b", Idle)]);
    for gone in [Unknown, Silent] {
        let mut trial = Trial::new(1);
        assert_eq!(trial.at(0, &all(&[("a", Working), ("b", Nothing)])).0, "a");
        let away = all(&[("a", gone), ("b", Nothing)]);
        assert_eq!(trial.at(100, &away), ("a".to_owned(), None));
        assert_eq!(trial.at(200, &idle), ("a".to_owned(), Some(230)), "{gone:?}");
        assert_eq!(trial.at(220, &away), ("a".to_owned(), None));
        assert_eq!(trial.at(221, &idle), ("a".to_owned(), Some(251)), "{gone:?}");
    }
    // What a new leader takes over was seen by nobody.
    let mut trial = Trial::new(1);
    trial.record = Record::of(["b".to_owned()], trial.start);
    assert_eq!(trial.at(5, &idle), ("b".to_owned(), Some(35)));
}

#[test]
fn who_can_be_dialled_goes_first_among_equals() {
    let list = |evidence: [Evidence; 3]| -> Vec<Candidate> {
        let made = ["a", "b", "c"].into_iter().zip(evidence);
        made.map(|(node, evidence)| Candidate { addressed: node != "a", ..candidate(node, evidence, true) })
            .collect()
    };
    assert_eq!(Trial::new(1).at(0, &list([Idle, Idle, Idle])).0, "b");
    assert_eq!(Trial::new(2).at(0, &list([Idle, Idle, Idle])).0, "b c");
    assert_eq!(Trial::new(3).at(0, &list([Idle, Idle, Idle])).0, "a b c");
    // Fewer places than before.
    let mut trial = Trial::new(3);
    trial.at(0, &list([Idle, Idle, Idle]));
    trial.replicas = 1;
    assert_eq!(trial.at(1, &list([Idle, Idle, Idle])).0, "b");
    // Who is elected stays as long as nobody misses a link, and is the first to go then.
    let mut trial = Trial::new(2);
    assert_eq!(trial.at(0, &list([Idle, Idle, Nothing])).0, "a b");
    assert_eq!(trial.at(10, &list([Idle, Working, Idle])).0, "a b");
    assert_eq!(trial.at(600, &list([Idle, Idle, Idle])), ("a b".to_owned(), Some(630)));
    assert_eq!(trial.at(630, &list([Idle, Idle, Idle])).0, "b c");
}

proptest! {
    /// Nobody is linked to anybody, whenever that is looked at: at most one endpoint changes at a time, never within a minute, and ever more
    /// rarely.
    #[test]
    fn elections_settle_though_nobody_has_a_link(
        addressed in proptest::collection::vec(any::<bool>(), 5),
        replicas in 1_usize..5,
        steps in proptest::collection::vec(1_u64..40, 200..1500),
    ) {
        let mut now = Instant::now();
        let start = now;
        let judgement = Judgement::Strict(Some(start));
        let list: Vec<Candidate> = ["d", "b", "e", "a", "c"]
            .iter()
            .zip(addressed)
            .map(|(node, addressed)| Candidate { addressed, ..candidate(node, Idle, true) })
            .collect();
        let first = elect(&list, replicas, judgement, &Record::default(), now);
        let (mut record, mut elected, mut changes) = (first.record, first.elected, Vec::new());
        for seconds in steps {
            now += SECOND * u32::try_from(seconds).unwrap();
            let outcome = elect(&list, replicas, judgement, &record, now);
            prop_assert_eq!(&outcome, &elect(&list, replicas, judgement, &record, now));
            prop_assert_eq!(outcome.elected.len(), replicas);
            prop_assert!(outcome.look_at.is_none_or(|at| at > now), "it is due, and not done");
            let lost = elected.iter().filter(|node| !outcome.elected.contains(node)).count();
            prop_assert!(lost <= 1, "{:?} {:?}", elected, outcome.elected);
            if lost > 0 {
                let last = changes.last().copied();
                prop_assert!(last.is_none_or(|last| now - last >= SECOND * 60));
                changes.push(now);
            }
            elected = outcome.elected;
            record = outcome.record;
        }
        // Each has five shorter pauses at most, of 1, 2, 4 and 8 minutes; then ten.
        let minutes = usize::try_from((now - start).as_secs() / 60).unwrap();
        prop_assert!(changes.len() <= 1 + 5 * list.len() + minutes / 10, "{} in {} minutes", changes.len(), minutes);
    }
}
