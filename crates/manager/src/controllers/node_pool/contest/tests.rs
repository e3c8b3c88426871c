use proptest::prelude::*;
use serde_json::json;

use super::*;

const NODE: &str = "n1";

fn patch(key: &str, value: &str) -> NodePatch {
    NodePatch {
        node: NODE.to_owned(),
        resource_version: "1".to_owned(),
        labels: [(key.to_owned(), Some(value.to_owned()))].into(),
        annotations: BTreeMap::new(),
        taints: None,
        taint_changes: BTreeMap::new(),
    }
}

/// What a pool wants that says `zone: value`.
fn zone(value: &str) -> Attributes {
    Attributes { labels: [("zone".to_owned(), value.to_owned())].into(), ..Attributes::default() }
}

/// A node on which one label is wanted, as a reconciliation sees it.
struct World {
    contests: Contests,
    start: Instant,
    now: Duration,
    value: String,
    wanted: String,
    writes: Vec<Duration>,
}

impl World {
    fn new() -> Self {
        let (contests, start) = (Contests::default(), Instant::now());
        let (value, wanted) = (String::new(), "a".to_owned());
        Self { contests, start, now: Duration::ZERO, value, wanted, writes: Vec::new() }
    }

    /// A look at the node; returns its contest.
    fn look(&mut self) -> Option<Contest> {
        let now = self.start + self.now;
        let mut patches: Vec<_> =
            (self.value != self.wanted).then(|| patch("zone", &self.wanted)).into_iter().collect();
        let contests =
            self.contests.review("box", &zone(&self.wanted), &mut patches, [NODE].into_iter(), now);
        for patch in patches {
            self.value.clone_from(&self.wanted);
            self.writes.push(self.now);
            self.contests.note_written(&patch, now);
        }
        contests.into_values().next()
    }

    /// Somebody undoes each write after `delay`, until `until`. The node is looked at on each change, and when asked to.
    fn fight(&mut self, delay: Duration, until: Duration) -> Option<Contest> {
        loop {
            let contest = self.look();
            let undone = (self.value == self.wanted).then(|| self.now + delay);
            let asked = contest.as_ref().map(|contest| contest.look_at() - self.start);
            let Some(next) = undone.into_iter().chain(asked).min().filter(|next| *next <= until) else {
                return contest;
            };
            self.now = next.max(self.now + Duration::from_millis(1));
            if undone == Some(next) {
                "theirs".clone_into(&mut self.value);
            }
        }
    }
}

#[test]
fn a_fight_is_noticed_and_its_writes_get_rare() {
    let mut world = World::new();
    let contest = world.fight(Duration::from_millis(50), Duration::from_mins(30)).unwrap();
    assert_eq!(contest.fields, BTreeSet::from([Field::Label("zone".to_owned())]));
    // The first write and five repairs within a second, and then after 10, 20, 40, 80, 160 and each 300 seconds.
    let seconds: Vec<u64> = world.writes.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [0, 0, 0, 0, 0, 0, 10, 30, 70, 150, 310, 610, 910, 1210, 1510]);
}

#[test]
fn when_the_other_stops_the_node_is_written_and_the_contest_ends() {
    let mut world = World::new();
    let contest = world.fight(Duration::from_millis(50), Duration::from_secs(100)).unwrap();
    world.now = contest.look_at() - world.start;
    let contest = world.look().expect("written, but not yet calm");
    assert_eq!(world.value, world.wanted);
    world.now = contest.look_at() - world.start;
    assert_eq!(world.look(), None);
    // Nothing of it is held against the node.
    "drift".clone_into(&mut world.value);
    assert_eq!(world.look(), None);
    assert_eq!(world.value, world.wanted);
}

#[test]
fn a_pool_that_is_edited_often_contests_nothing() {
    let mut world = World::new();
    for round in 0..100 {
        world.now += Duration::from_millis(200);
        world.wanted = format!("v{}", round % 2);
        assert_eq!(world.look(), None);
        assert_eq!(world.value, world.wanted);
    }
}

#[test]
fn drift_now_and_then_is_repaired_at_once() {
    let mut world = World::new();
    assert_eq!(world.fight(Duration::from_secs(13), Duration::from_hours(1)), None);
    assert!(world.writes.windows(2).all(|pair| pair[1] == pair[0] + Duration::from_secs(13)));
}

#[test]
fn another_node_and_what_is_old_are_not_affected() {
    let mut world = World::new();
    world.fight(Duration::from_millis(50), Duration::from_secs(5)).unwrap();
    let other = NodePatch { node: "n2".to_owned(), ..patch("zone", "a") };
    let mut patches = vec![other];
    let contests =
        world.contests.review("box", &zone("a"), &mut patches, ["n2"].into_iter(), world.start + world.now);
    assert_eq!((patches.len(), contests.len()), (1, 0));
    // A node that is gone is forgotten in the end.
    let later = world.start + Duration::from_hours(1);
    world.contests.note_written(&patches[0], later);
    assert_eq!(world.contests.nodes.keys().collect::<Vec<_>>(), ["n2"]);
}

#[test]
fn what_is_not_contested_does_not_wait() {
    let mut world = World::new();
    world.fight(Duration::from_millis(50), Duration::from_secs(5)).unwrap();
    let now = world.start + world.now;
    let review = |world: &mut World, patch: NodePatch| {
        let mut patches = vec![patch];
        let contests = world.contests.review("box", &zone("a"), &mut patches, [NODE].into_iter(), now);
        (patches.len(), contests.len())
    };
    assert_eq!(review(&mut world, patch("zone", "a")), (0, 1), "nothing but the contested value");
    let mut both = patch("zone", "a");
    both.labels.insert("fresh".to_owned(), Some("1".to_owned()));
    assert_eq!(review(&mut world, both), (1, 1), "a label that was never written");
    assert_eq!(review(&mut world, patch("zone", "b")), (1, 1), "another value");
    let removal = NodePatch { labels: [("zone".to_owned(), None)].into(), ..patch("zone", "a") };
    assert_eq!(review(&mut world, removal), (1, 1), "the value goes");
    let mut with_record = patch("zone", "a");
    with_record.annotations.insert(PREVIOUS_ATTRIBUTES.to_owned(), Some("{}".to_owned()));
    assert_eq!(review(&mut world, with_record), (0, 1), "the record is no news");
}

#[test]
fn a_contest_ends_with_the_pool_or_with_its_wish() {
    let nothing = Attributes::default();
    for (pool, wanted) in [("shop", zone("a")), ("box", nothing)] {
        let mut world = World::new();
        world.fight(Duration::from_millis(50), Duration::from_secs(5)).unwrap();
        let mut patches = vec![patch("other", "x")];
        let now = world.start + world.now;
        let contests = world.contests.review(pool, &wanted, &mut patches, [NODE].into_iter(), now);
        assert_eq!((patches.len(), contests.len()), (1, 0), "{pool}");
    }
}

#[test]
fn the_other_writers_are_named() {
    let entry = |manager: &str, fields| ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        fields_v1: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1(fields)),
        ..ManagedFieldsEntry::default()
    };
    let managed = [
        entry("us", json!({ "f:metadata": { "f:labels": { "f:zone": {} } } })),
        entry("cloud", json!({ "f:metadata": { "f:labels": { ".": {}, "f:zone": {} } } })),
        entry("kubelet", json!({ "f:metadata": { "f:labels": { "f:other": {} } } })),
        entry("gitops", json!({ "f:metadata": { "f:annotations": { "f:zone": {} } } })),
        entry("tainter", json!({ "f:spec": { "f:taints": {} } })),
    ];
    let of = |field| rivals(&managed, &[field].into(), "us").into_iter().collect::<Vec<_>>();
    assert_eq!(of(Field::Label("zone".into())), ["cloud"]);
    assert_eq!(of(Field::Annotation("zone".into())), ["gitops"]);
    assert_eq!(of(Field::Taint("k:NoSchedule".into())), ["tainter"]);
    assert_eq!(of(Field::Label("none".into())), [""; 0]);

    let contest = Contest::new([Field::Label("zone".into())].into(), Instant::now());
    assert!(contest.to_string().starts_with("label zone is changed again and again by somebody else;"));
    let contest = Contest { rivals: Some(["cloud".to_owned()].into()), ..contest };
    assert!(contest.to_string().contains("by cloud; remove it from the pool"), "{contest}");
}

proptest! {
    /// However the other behaves: no minute sees more than a handful of writes, and when the other stops the node is
    /// soon as it should be, and the contest over.
    #[test]
    fn writes_are_bounded_and_peace_returns(
        delays in proptest::collection::vec((0_u64..20_000, 1_u64..600_000), 1..12),
    ) {
        let mut world = World::new();
        for (delay, length) in delays {
            let until = world.now + Duration::from_millis(length);
            world.fight(Duration::from_millis(delay), until);
            world.now = until;
        }
        for (index, write) in world.writes.iter().enumerate() {
            let within = world.writes[index..].iter().filter(|other| **other < *write + WINDOW).count();
            // Two windows of the count may meet in one minute.
            prop_assert!(within <= 2 * (LIMIT as usize + 1), "{within} writes in a minute from {write:?}");
        }
        let peace = world.now + LAST_HOLD + LAST_HOLD.max(WINDOW);
        while let Some(contest) = world.look() {
            world.now = contest.look_at() - world.start;
            prop_assert!(world.now <= peace, "still contested at {:?}", world.now);
        }
        prop_assert_eq!(world.value, world.wanted);
    }
}
