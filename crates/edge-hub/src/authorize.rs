//! Whether a caller may read what the hub would answer from what it holds.
//!
//! The API server decides, by an access review with the caller's own credential; the decision is kept for a while, and an
//! allowance also over a restart, so that a caller that was served before the cut is served during it. What was never allowed
//! while there was a link is not allowed without one. Requests that are handed on are not reviewed: the API server sees them, and
//! what it answers or refuses is remembered.
//!
//! A review that comes to nothing while there is a link is no time without one: that may be its subject's doing, who asks for more than the API server
//! answers, and would be believed for a month.
//!
//! What was answered to one credential is not believed of another of the same user, for either may be revoked alone. Allowances
//! for the time without a link are the user's.

mod allowances;
mod review;
mod undecided;

use std::collections::HashMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tls::digest::Sha256Digest;
use tokio::time::Instant;
use tracing::{debug, warn};

use self::allowances::{Allowance, Allowances};
pub use self::{review::Subject, undecided::Undecided};
use crate::{
    make_room::make_room,
    metrics::{Meters, Review},
    offline::documents::unix_seconds,
    run::Lifetimes,
    upstream::Upstream,
};

/// How many decisions are kept. When there are more, the oldest of whoever has most goes: nobody has others' requests reviewed anew.
const KEPT: usize = 4096;

/// What is to be read, as an access review names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attributes {
    /// `get`, `list` or `watch`.
    pub verb: Box<str>,
    /// The API group.
    pub group: Box<str>,
    /// The version.
    pub version: Box<str>,
    /// The resource.
    pub resource: Box<str>,
    /// The namespace; empty for all, and for cluster-scoped resources.
    pub namespace: Box<str>,
    /// The name; empty for a list.
    pub name: Box<str>,
    /// The label selector as it was sent.
    pub labels: Box<str>,
    /// The field selector as it was sent: the node authorizer allows only some (KEP-4601).
    pub fields: Box<str>,
}

/// What may be done with the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Answer it.
    Allowed,
    /// 403, for this reason.
    Denied(String),
    /// 401: the API server does not take the credential that the caller asks with.
    Unauthorized(String),
    /// Nobody can say: no link, and no allowance from an earlier one. 503.
    Unknown(String),
    /// The API server cannot say just now. 429, but to the node, which is believed as without a link.
    Passing(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Question {
    user: Box<str>,
    /// Sorted. Two certificates of one name may have others, and a right may be a group's.
    #[serde(default)]
    groups: Vec<Box<str>>,
    attributes: Attributes,
}

impl Question {
    fn new(subject: &Subject, attributes: &Attributes) -> Self {
        let mut groups = subject.groups().to_vec();
        groups.sort_unstable();
        Self { user: subject.name().into(), groups, attributes: attributes.clone() }
    }

    /// Whether it is about a whole scope: who may list it may see as much as who may watch it.
    fn is_of_scope(&self) -> bool {
        ["list", "watch"].contains(&&*self.attributes.verb)
    }

    /// The same with another verb.
    fn with_verb(&self, verb: &str) -> Self {
        let attributes = Attributes { verb: verb.into(), ..self.attributes.clone() };
        Self { user: self.user.clone(), groups: self.groups.clone(), attributes }
    }

    /// Whether that `refused` is not allowed says that this is not any more either.
    fn falls_with(&self, refused: &Self) -> bool {
        let same_sight = self.is_of_scope() && refused.is_of_scope();
        (same_sight || self.attributes.verb == refused.attributes.verb) && self.is_over(refused)
    }

    /// Whether who may do this may also do `other`: the same, in a part of the place, with more selectors.
    fn implies(&self, other: &Self) -> bool {
        self.attributes.verb == other.attributes.verb && self.is_over(other)
    }

    /// The same, whatever the verbs.
    fn is_over(&self, other: &Self) -> bool {
        let Self { user, groups, attributes: wide } = self;
        let narrow = &other.attributes;
        let within = |wide: &str, narrow: &str| wide.is_empty() || wide == narrow;
        (user, groups) == (&other.user, &other.groups)
            && (&wide.group, &wide.version, &wide.resource)
                == (&narrow.group, &narrow.version, &narrow.resource)
            && within(&wide.namespace, &narrow.namespace)
            && within(&wide.name, &narrow.name)
            && within(&wide.labels, &narrow.labels)
            && within(&wide.fields, &narrow.fields)
    }
}

/// `u may list pods in the namespace "a"`
impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { user, groups: _, attributes: Attributes { verb, group, resource, namespace, name, .. } } =
            self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{user} may {verb} {resource}{dot}{group}")?;
        if !name.is_empty() {
            write!(f, " {name:?}")?;
        }
        if namespace.is_empty() { Ok(()) } else { write!(f, " in the namespace {namespace:?}") }
    }
}

/// A question, and the credential that it was asked with if it is the subject's own.
type Asked = (Option<Sha256Digest>, Question);

fn asked(subject: &Subject, attributes: &Attributes) -> Asked {
    (subject.credential_digest(), Question::new(subject, attributes))
}

struct Kept {
    decision: Decision,
    until: Instant,
}

/// The decisions that hold for a while.
#[derive(Default)]
struct Decisions(HashMap<Asked, Kept>);

impl Decisions {
    fn keep(&mut self, asked: Asked, kept: Kept, now: Instant) {
        let is_over = |kept: &Kept| kept.until <= now;
        make_room(&mut self.0, KEPT, is_over, |(_, question), kept| (&question.user, kept.until));
        self.0.insert(asked, kept);
    }
}

/// Decides, and remembers decisions.
pub struct Authorizer {
    upstream: Upstream,
    lifetimes: Lifetimes,
    meters: Meters,
    kept: Mutex<Decisions>,
    allowances: Mutex<Allowances>,
}

impl Authorizer {
    /// An authorizer with the allowances that [`Authorizer::export`] gave before a restart.
    pub fn new(upstream: Upstream, lifetimes: Lifetimes, stored: Option<&[u8]>, meters: Meters) -> Self {
        let stored: Vec<Allowance> = stored
            .map(|bytes| {
                serde_json::from_slice(bytes).unwrap_or_else(|error| {
                    warn!(%error, "stored allowances cannot be read; callers are reviewed anew");
                    Vec::new()
                })
            })
            .unwrap_or_default();
        Self {
            upstream,
            lifetimes,
            meters,
            kept: Mutex::default(),
            allowances: Mutex::new(Allowances::restore(stored)),
        }
    }

    /// The allowances, to be stored, if there are others than at the last call; they name users and resources, and hold no
    /// secret.
    pub fn export(&self) -> Option<Vec<u8>> {
        let all = self.allowances.lock().export(unix_seconds())?;
        serde_json::to_vec(&all).ok()
    }

    /// Whether `subject` may read what `attributes` say.
    pub async fn decide(&self, subject: &Subject, attributes: &Attributes) -> Decision {
        let asked = asked(subject, attributes);
        if let Some(kept) = self.kept.lock().0.get(&asked).filter(|kept| kept.until > Instant::now()) {
            return kept.decision.clone();
        }
        match review::ask(&self.upstream, subject, attributes).await {
            Ok(allowed) => {
                self.meters.review(if allowed { Review::Allowed } else { Review::Denied });
                let decision =
                    if allowed { Decision::Allowed } else { Decision::Denied(refusal(subject, attributes)) };
                self.remember(subject, &asked.1, allowed);
                self.keep(asked, &decision, allowed);
                decision
            }
            // The credential itself is no longer good: that it was once does not matter. Of its owner, who may have another, it says
            // nothing.
            Err(error) if error.is_unauthorized() => {
                self.meters.review(Review::Denied);
                self.kept.lock().0.remove(&asked);
                Decision::Unauthorized(error.to_string())
            }
            Err(error) => {
                self.meters.review(Review::Failed);
                self.undecided(subject, &asked, &error)
            }
        }
    }

    /// The API server refused the request itself, which was handed on to it: that is as good as a review.
    pub fn refused(&self, subject: &Subject, attributes: &Attributes) {
        let asked = asked(subject, attributes);
        self.remember(subject, &asked.1, false);
        let now = Instant::now();
        // Over at once, as it is asked again while there is a link.
        let kept = Kept { decision: Decision::Denied(refusal(subject, attributes)), until: now };
        self.kept.lock().keep(asked, kept, now);
    }

    /// How often anything was refused: whoever learns late of an answer looks whether it has been since.
    pub fn refusals(&self) -> u64 {
        self.allowances.lock().refusals()
    }

    /// The API server answered the request itself, when there were so many [`Authorizer::refusals`]: that is as good for the time without a link.
    pub fn answered(&self, subject: &Subject, attributes: &Attributes, refusals: u64) {
        let asked = asked(subject, attributes);
        let mut allowances = self.allowances.lock();
        if allowances.refusals() == refusals {
            allow(&mut allowances, subject, &asked.1);
            if self.was_refused(&asked) {
                self.kept.lock().0.remove(&asked);
            }
        }
    }

    /// For the time without a link.
    fn remember(&self, subject: &Subject, question: &Question, allowed: bool) {
        let mut allowances = self.allowances.lock();
        if allowed {
            allow(&mut allowances, subject, question);
        } else {
            allowances.refuse(question);
        }
    }

    fn keep(&self, asked: Asked, decision: &Decision, allowed: bool) {
        let now = Instant::now();
        let until = now + if allowed { self.lifetimes.allowed } else { self.lifetimes.refused };
        let kept = Kept { decision: decision.clone(), until };
        self.kept.lock().keep(asked, kept, now);
    }

    /// Whether `subject` was allowed to list or watch a scope, or one that it is a part of, and was not refused that since; of one object
    /// to get it is as good. That says what it may see without a link; `scope` has a verb of no meaning.
    pub fn remembers(&self, subject: &Subject, scope: &Attributes) -> bool {
        let question = Question::new(subject, scope);
        let verbs = if scope.name.is_empty() { &["list", "watch"][..] } else { &["list", "watch", "get"] };
        verbs.iter().any(|verb| self.was_allowed(&question.with_verb(verb)))
    }

    fn was_allowed(&self, question: &Question) -> bool {
        self.allowances.lock().hold(question, unix_seconds())
    }

    /// Whether the API server refused it when it was last asked with this credential, as far as that is known: a restart forgets it.
    fn was_refused(&self, asked: &Asked) -> bool {
        let kept = self.kept.lock();
        kept.0.get(asked).is_some_and(|kept| matches!(kept.decision, Decision::Denied(_)))
    }

    /// What was allowed before counts while there is no link. The node's counts always: what is held for it comes with its own certificate.
    fn undecided(&self, subject: &Subject, asked: &Asked, error: &review::ReviewError) -> Decision {
        let (_, question) = asked;
        let linked = error.is_undecided() && self.upstream.is_up();
        if linked && !matches!(subject, Subject::Node { .. }) {
            return Decision::Passing(format!("whether {question} cannot be asked now: {error}"));
        }
        if self.was_allowed(question) {
            debug!(user = %question.user, "allowed as before the link was lost");
            return Decision::Allowed;
        }
        let seen = if self.was_refused(asked) {
            "the API server refused it when it was last asked"
        } else {
            "it was not seen to be allowed while there was a link"
        };
        let why = format!("whether {question} cannot be asked, and {seen}: {error}");
        if linked || error.is_passing() { Decision::Passing(why) } else { Decision::Unknown(why) }
    }
}

/// The node's reads of single objects are left out: a kubelet asks for each pod by name, and what was fetched with the node's own credential
/// needs no allowance.
fn allow(allowances: &mut Allowances, subject: &Subject, question: &Question) {
    if question.is_of_scope() || !matches!(subject, Subject::Node { .. }) {
        allowances.allow(question, unix_seconds());
    }
}

/// In the words of the API server (`errors.NewForbidden` with the RBAC authorizer's message).
fn refusal(subject: &Subject, attributes: &Attributes) -> String {
    let Attributes { verb, group, version: _, resource, namespace, name: _, labels: _, fields: _ } =
        attributes;
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    format!("User {:?} cannot {verb} resource {resource:?} in API group {group:?} {place}", subject.name())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Attributes, Decision, Decisions, Instant, KEPT, Kept, Question};

    pub(super) fn question(verb: &str, namespace: &str, name: &str, fields: &str) -> Question {
        let text = Box::<str>::from;
        let attributes = Attributes {
            verb: text(verb),
            group: text(""),
            version: text("v1"),
            resource: text("pods"),
            namespace: text(namespace),
            name: text(name),
            labels: text(""),
            fields: text(fields),
        };
        Question { user: text("u"), groups: vec![text("g")], attributes }
    }

    #[test]
    fn what_cannot_be_asked_is_named() {
        assert_eq!(question("get", "a", "x", "").to_string(), r#"u may get pods "x" in the namespace "a""#);
        let mut all = question("list", "", "", "");
        (all.attributes.group, all.attributes.resource) = ("apps".into(), "deployments".into());
        assert_eq!(all.to_string(), "u may list deployments.apps");
    }

    #[test]
    fn who_may_read_all_may_read_a_part_and_not_the_other_way() {
        let all = question("list", "", "", "");
        assert!(all.implies(&question("list", "a", "b", "x=y")) && all.implies(&all));
        assert!(!question("list", "a", "", "").implies(&all));
        assert!(
            !question("list", "", "", "spec.nodeName=n").implies(&all),
            "a selector may be the reason for the allowance"
        );
        assert!(!all.implies(&question("watch", "", "", "")));
        assert!(!all.implies(&Question { user: "v".into(), ..all.clone() }));
        assert!(
            !all.implies(&Question { groups: vec!["h".into()], ..all.clone() }),
            "a right may be a group's"
        );
    }

    #[test]
    fn a_refusal_ends_what_would_have_allowed_it_under_either_verb() {
        let all = question("list", "", "", "");
        assert!(all.falls_with(&all) && all.falls_with(&question("watch", "a", "", "x=y")));
        assert!(!question("list", "a", "", "").falls_with(&question("watch", "", "", "")));
        assert!(!question("get", "", "x", "").falls_with(&question("list", "", "", "")));
        assert!(!all.falls_with(&question("get", "", "x", "")));
        assert!(!all.falls_with(&Question { user: "v".into(), ..question("watch", "", "", "") }));
    }

    #[test]
    fn who_asks_for_ever_more_drives_out_nobody_elses_decisions() {
        let (mut decisions, now) = (Decisions::default(), Instant::now());
        let keep = |decisions: &mut Decisions, user: &str, name: &str| {
            let asked = (None, Question { user: user.into(), ..question("get", "a", name, "") });
            let until = now + Duration::from_secs(60 + decisions.0.len() as u64);
            decisions.keep(asked.clone(), Kept { decision: Decision::Allowed, until }, now);
            asked
        };
        let early = keep(&mut decisions, "early", "x");
        for n in 0..KEPT + 10 {
            keep(&mut decisions, "many", &n.to_string());
        }
        let late = keep(&mut decisions, "late", "x");
        assert!(decisions.0.contains_key(&early) && decisions.0.contains_key(&late));
        assert_eq!(decisions.0.len(), KEPT);
    }
}
