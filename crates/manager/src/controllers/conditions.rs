//! Conditions of our resources: from what a controller found to what stands in a status, and what of it is news.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::runtime::events::{Event, EventType};

/// The longest note of an event, in characters: its API takes 1,024 bytes.
const NOTE_LENGTH: usize = 1000;

/// A condition before its time of transition is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Check {
    pub(crate) type_: &'static str,
    /// `None` if it is not known.
    pub(crate) holds: Option<bool>,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Check {
    /// The condition; its time is that of the same state in `before`, or `now`.
    pub(crate) fn into_condition(
        self,
        before: &[Condition],
        generation: Option<i64>,
        now: Timestamp,
    ) -> Condition {
        let Self { type_, holds, reason, message } = self;
        let status = match holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let since = before
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == status)
            .map_or(Time(whole_second(now)), |condition| condition.last_transition_time.clone());
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: since,
            observed_generation: generation,
        }
    }
}

/// The API keeps times to the second: a finer one would read as a change.
pub(crate) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The events that tell what changed between conditions.
pub(crate) fn changes<'a>(
    before: &'a [Condition],
    after: impl Iterator<Item = &'a Condition> + 'a,
) -> impl Iterator<Item = Event> + 'a {
    let previous = |type_: &str| {
        before.iter().find(|c| c.type_ == type_).map(|c| (c.status.as_str(), c.message.as_str()))
    };
    after
        .filter(move |condition| match previous(&condition.type_) {
            // It is no news that something is not known for a moment.
            Some(_) if condition.status == "Unknown" => false,
            // Good news is news only after bad news.
            None | Some(("Unknown", _)) => condition.status == "False",
            Some((status, message)) => {
                status != condition.status || (status == "False" && message != condition.message)
            }
        })
        .map(|condition| {
            event(condition.status == "True", &condition.reason, &condition.message, "Reconcile")
        })
}

/// An event, of good news or bad.
pub(crate) fn event(good: bool, reason: &str, note: &str, action: &str) -> Event {
    Event {
        type_: if good { EventType::Normal } else { EventType::Warning },
        reason: reason.to_owned(),
        note: Some(note.chars().take(NOTE_LENGTH).collect()),
        action: action.to_owned(),
        secondary: None,
    }
}
