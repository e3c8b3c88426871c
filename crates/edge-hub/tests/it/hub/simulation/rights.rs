//! A second identity beside the node's, whose rights come and go, and from when on the hub has to know that one has gone.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use testkit::{
    api_server::{Cluster, access::User},
    history::{Denial, Doubtful},
};
use tokio::time::Instant;

use super::super::history_clients::WIDGET_ID;

/// Its token.
pub(super) const TOKEN: &str = "second";

/// What it may read or not, each by itself, as the test kit calls it.
pub(super) const RESOURCES: [&str; 2] = ["services", WIDGET_ID];

/// How long the hub of a history relies on what it was told of a right, for open watches as for new requests: shorter than by itself, so that a
/// history has room for rights that come and go.
pub(super) const REVIEWED: Duration = Duration::from_secs(10);

/// How long a link that broke takes to be one again: that is noticed, and then it is dialled.
const LINKED: Duration = Duration::from_secs(20);

/// Which rights it has, and since when there has been nothing that kept the hub from asking.
#[derive(Debug)]
pub(super) struct Rights {
    denied: Arc<Mutex<BTreeSet<&'static str>>>,
    /// What it was denied so that the hub knew it.
    denials: Vec<Denial>,
    /// What it was denied, whether the hub knew it or not.
    taken: Vec<Doubtful>,
    /// What was denied, and when, of which the hub need not know yet.
    unnoticed: Vec<(&'static str, Instant)>,
    /// Since when the link was let be; nothing while there is none.
    calm: Option<Instant>,
}

impl Rights {
    /// All of them.
    pub(super) fn new(cluster: &Cluster) -> Self {
        let denied = Arc::<Mutex<BTreeSet<&'static str>>>::default();
        let user = User::service_account("a", TOKEN);
        let (name, now_denied) = (user.name.clone(), denied.clone());
        cluster.access().add_token(TOKEN, user);
        cluster.access().set_authorizer(move |asked| {
            asked.user.name != name || !now_denied.lock().iter().any(|id| plural(id) == asked.resource)
        });
        Self {
            denied,
            denials: Vec::new(),
            taken: Vec::new(),
            unnoticed: Vec::new(),
            calm: Some(Instant::now()),
        }
    }

    /// Takes one away.
    pub(super) fn deny(&mut self, id: &'static str) {
        self.elapse();
        if self.denied.lock().insert(id) {
            let (resource, from) = (Some(plural(id).to_owned()), Instant::now());
            self.taken.push(Doubtful { resource, from, until: None });
            self.unnoticed.push((id, from));
        }
    }

    /// Gives one back.
    pub(super) fn allow(&mut self, id: &'static str) {
        self.elapse();
        self.denied.lock().remove(id);
        self.unnoticed.retain(|(denied, _)| *denied != id);
        let back = Instant::now() + Self::noticed();
        for taken in self.taken.iter_mut().filter(|taken| taken.resource.as_deref() == Some(plural(id))) {
            taken.until.get_or_insert(back);
        }
        let open = self.denials.iter_mut().filter(|denial| denial.resource == plural(id));
        for denial in open {
            denial.until.get_or_insert_with(Instant::now);
        }
    }

    /// Something was done to the hub or its link, which is up or not since then.
    pub(super) fn disturb(&mut self, linked: bool) {
        self.elapse();
        self.calm = linked.then(Instant::now);
    }

    /// When what is carried in its name may have ended with a right of it: from when one was taken until the hub had to know that it is back.
    pub(super) fn taken(&self) -> &[Doubtful] {
        &self.taken
    }

    /// What it was denied until now, and the hub had to know it.
    pub(super) fn denials(mut self) -> Vec<Denial> {
        self.elapse();
        self.denials
    }

    /// How long after a right has gone the hub has to know, if nothing keeps it from asking.
    pub(super) fn noticed() -> Duration {
        REVIEWED + LINKED
    }

    /// Moves on what the hub had the time to learn. It does not forget that when it is killed or its link breaks.
    fn elapse(&mut self) {
        let Some(calm) = self.calm else { return };
        let now = Instant::now();
        self.unnoticed.retain(|(id, denied)| {
            let from = calm.max(*denied) + Self::noticed();
            if from <= now {
                let (user, resource) = (TOKEN.to_owned(), plural(id).to_owned());
                self.denials.push(Denial { user, resource, from, until: None });
            }
            from > now
        });
    }
}

/// As requests and sessions name it.
pub(super) fn plural(id: &str) -> &str {
    id.split('.').next().unwrap_or(id)
}
