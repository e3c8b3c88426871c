//! What in a history explains that a client is told 410.

use std::{
    slice,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use testkit::{
    api_server::Cluster,
    client::{ClientOptions, Recorder},
    history::{
        Doubtful, Epoch, Forgotten, Model, Observation, Reasons, Request, Revision, Session, check_expired,
    },
};
use tokio::time::Instant;

use super::{
    super::{history_clients::WIDGET_ID, site::widget_kind},
    rights::{TOKEN, plural},
    world::{CRDS, World},
};

/// How long after a server has caught up what it had not told may still be doubted: the hub's connection to it may be there only then, it waits for a
/// second silence of three seconds, and lists.
const DOUBTED: Duration = Duration::from_secs(30);

/// How long after a resource is defined anew the hub may still withdraw what it held of it.
const WITHDRAWN: Duration = Duration::from_mins(1);

/// How many changes of a resource the hub's disk keeps at least, of objects as small as these: it is 32 KiB.
const KEPT: usize = 40;

/// How many sessions of a client are shown before the one that is wrong.
const EARLIER: usize = 6;

/// How many watches of all histories went on from a version whose expiry nothing would have explained, by what answered them.
pub(super) static RESUMED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Gathers them.
pub(super) struct Gathered {
    reasons: Reasons,
    /// Which servers may know less than another has told.
    lag: [bool; 2],
}

impl Gathered {
    pub(super) fn new() -> Self {
        Self { reasons: Reasons { kept: KEPT, ..Reasons::default() }, lag: [false; 2] }
    }

    pub(super) fn compacted(&mut self, below: u64) {
        self.reasons.forgotten.push(Forgotten { resource: None, since: Instant::now(), below });
    }

    /// The custom resource is gone, until it is defined.
    pub(super) fn undefined(&mut self) {
        self.begin(Some(plural(WIDGET_ID)));
    }

    pub(super) fn defined(&mut self, cluster: &Cluster) {
        let (resource, since) = (Some(plural(WIDGET_ID).to_owned()), Instant::now());
        self.end(resource.as_deref(), since + WITHDRAWN);
        self.reasons.forgotten.push(Forgotten { resource, since, below: cluster.revision() });
    }

    /// A server lags from now on, or does not any more.
    pub(super) fn lags(&mut self, server: usize, lags: bool) {
        self.lag[server] = lags;
        if lags {
            self.begin(None);
        } else if self.lag == [false; 2] {
            self.end(None, Instant::now() + DOUBTED);
        }
    }

    /// The cluster goes back, which the hub has noticed when it has ended.
    pub(super) fn restores(&mut self) {
        self.begin(None);
    }

    pub(super) fn restored(&mut self) {
        self.end(None, Instant::now() + DOUBTED);
    }

    pub(super) fn restarted(&mut self) {
        self.reasons.restarts.push(Instant::now());
    }

    fn begin(&mut self, resource: Option<&str>) {
        let (resource, from) = (resource.map(str::to_owned), Instant::now());
        self.reasons.doubtful.push(Doubtful { resource, from, until: None });
    }

    fn end(&mut self, resource: Option<&str>, at: Instant) {
        for doubtful in self.reasons.doubtful.iter_mut().filter(|one| one.resource.as_deref() == resource) {
            doubtful.until.get_or_insert(at);
        }
    }

    pub(super) fn reasons(&self) -> &Reasons {
        &self.reasons
    }
}

/// What is a reason is noted when it is done.
impl World {
    pub(super) fn compact(&mut self, back: u64) {
        let version = self.cluster.revision().saturating_sub(back);
        self.cluster.compact(version);
        self.gathered.compacted(version);
    }

    pub(super) fn lag(&mut self, server: usize, behind: Option<u64>) {
        self.server(server).lag(behind);
        self.gathered.lags(server, behind.is_some());
    }

    pub(super) fn undefine(&mut self) {
        if self.cluster.delete(CRDS, WIDGET_ID).is_ok() {
            self.gathered.undefined();
        }
    }

    pub(super) fn define(&mut self) {
        if self.cluster.get(CRDS, WIDGET_ID).is_none() {
            self.cluster.create(CRDS, widget_kind().crd()).unwrap();
            self.gathered.defined(&self.cluster);
        }
    }
}

/// Why a client may be told 410, by what it may be answered from. What is pooled is held whole in one stream, and answers all of the node and
/// users alike, whatever they select: for them nothing more is a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answered {
    /// From one and the same stream: what is selected, too, from the wider one that there is, also after a restart.
    Always,
    /// From what the node reads, or from what users have among themselves, which ends where nobody may carry it and is begun anew.
    NodeOrUsers,
}

impl Answered {
    /// None of who does not read what comes when it comes.
    fn of(session: &Session) -> Option<Self> {
        let is_pooled = session.resource == "services";
        if session.client.starts_with("reader ") {
            None
        } else if is_pooled || session.user.is_empty() {
            Some(Self::Always)
        } else {
            Some(Self::NodeOrUsers)
        }
    }

    /// The same reasons, and those that it has beside. `taken`: when a user's right was.
    fn reasons(self, common: &Reasons, taken: &[Doubtful]) -> Reasons {
        let mut reasons = common.clone();
        if self == Self::NodeOrUsers {
            let restarts = common.restarts.iter();
            let begun = |at: &Instant| Doubtful { resource: None, from: *at, until: Some(*at) };
            reasons.doubtful.extend(restarts.map(begun));
            reasons.doubtful.extend_from_slice(taken);
        }
        reasons
    }
}

/// Checks all clients that read what comes when it comes: of the node and of the second identity, of all and of what they select.
pub(super) fn check(
    reasons: &Reasons,
    taken: &[Doubtful],
    models: &[(&str, Model)],
    sessions: &[Session],
) -> Result<(), String> {
    for (id, model) in models {
        for answered in [Answered::Always, Answered::NodeOrUsers] {
            let reasons = answered.reasons(reasons, taken);
            let of = |session: &&Session| {
                session.resource == plural(id) && Answered::of(session) == Some(answered)
            };
            let sessions: Vec<Session> = sessions.iter().filter(of).cloned().collect();
            match check_expired(model, &reasons, &sessions) {
                Ok(resumed) => _ = RESUMED[answered as usize].fetch_add(resumed, Ordering::Relaxed),
                Err(violation) => {
                    let wrong = &sessions[violation.session];
                    let earlier = sessions[..violation.session].iter().rev();
                    let earlier = earlier.filter(|session| session.client == wrong.client).take(EARLIER);
                    let earlier: Vec<_> = earlier.collect();
                    return Err(format!(
                        "{violation}\n{wrong:#?}\nbefore it, the last first: {earlier:#?}\n{answered:?} {reasons:#?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// A session of that client, as its user and with these labels.
fn session(client: &str, user: &str, resource: &str, labels: &str) -> Session {
    let mut options = ClientOptions::new(client, &format!("/apis/example.com/v1/namespaces/a/{resource}"));
    labels.clone_into(&mut options.labels);
    let recorder = Recorder::default().of_user(user);
    drop(recorder.begin(client, resource, &options.scope().unwrap(), Request::WatchAfter(3)));
    recorder.sessions().remove(0)
}

/// Nobody is left out who reads what comes when it comes, and a 410 that nothing explains is found with each.
#[test]
fn a_410_without_a_reason_is_found_whoever_is_told() {
    let at = Instant::now();
    let later = at + Duration::from_mins(1);
    let told = |client: &str, user: &str, resource: &str, labels: &str| {
        let mut first = session(client, user, resource, labels);
        first.observations = vec![Observation::Bookmark { rv: 4, initial_end: false }];
        first.times = vec![at];
        let mut back = first.clone();
        back.request = Request::WatchAfter(4);
        back.observations = vec![Observation::Error { code: 410, message: String::new() }];
        back.times = vec![later];
        [first, back]
    };
    let revision = Revision { rv: 3, key: "a/o".to_owned(), object: None };
    let model = Model { epochs: vec![Epoch { revisions: vec![revision] }] };
    let between = Instant::now() + Duration::from_secs(30);
    let restarted = Reasons { restarts: vec![between], kept: KEPT, ..Reasons::default() };
    let taken = Doubtful { resource: Some("widgets".to_owned()), from: between, until: Some(between) };
    let others = Doubtful { resource: Some("services".to_owned()), ..taken.clone() };
    // Who is told; whether a restart explains it, and whether it does that a right was taken.
    for (client, user, resource, labels, by_restart, by_right) in [
        ("plain", "", "services", "", false, false),
        ("odd", "", "services", "n=odd", false, false),
        ("another", TOKEN, "services", "", false, false),
        ("widgets", "", "widgets", "", false, false),
        ("streaming", "", "widgets", "n!=even", false, false),
        ("another", TOKEN, "widgets", "", true, true),
    ] {
        let who = format!("{client} {user} {resource} {labels}");
        let sessions = told(client, user, resource, labels);
        let models = [(if resource == "widgets" { WIDGET_ID } else { resource }, model.clone())];
        let is_explained =
            |reasons: &Reasons, taken: &[Doubtful]| check(reasons, taken, &models, &sessions).is_ok();
        assert!(!is_explained(&Reasons::default(), &[]), "{who}");
        assert_eq!(is_explained(&restarted, &[]), by_restart, "{who}");
        assert_eq!(is_explained(&Reasons::default(), slice::from_ref(&taken)), by_right, "{who}");
        assert!(!is_explained(&Reasons::default(), slice::from_ref(&others)), "{who}");
    }
    let slow = told("reader 1 0", "", "services", "");
    assert!(check(&Reasons::default(), &[], &[("services", model)], &slow).is_ok(), "it reads late");
}
