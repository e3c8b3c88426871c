//! What was allowed while there was a link, for the time without one. Pure: time comes in as a parameter.

use std::{collections::HashMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::Question;
use crate::make_room::make_room;

/// How many are kept. When there are more, one of whoever has most goes: nobody drives out what others were allowed.
const KEPT: usize = 4096;

/// How long an allowance holds without a link.
const OFFLINE: Duration = Duration::from_hours(720);

/// The time of a review that says nothing new is not worth a write each few minutes.
const RENEWED: u64 = OFFLINE.as_secs() / 30;

/// An allowance as it is kept over a restart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Allowance {
    question: Question,
    /// Unix seconds of the review.
    at: u64,
}

/// The questions that were answered with yes, and when.
#[derive(Debug, Default)]
pub(super) struct Allowances {
    at: HashMap<Question, u64>,
    /// Whether there are others than at the last export.
    changed: bool,
    /// How often anything was refused.
    refusals: u64,
}

impl Allowances {
    /// Those that [`Allowances::export`] gave before a restart.
    pub(super) fn restore(stored: Vec<Allowance>) -> Self {
        let at = stored.into_iter().map(|Allowance { question, at }| (question, at)).collect();
        Self { at, changed: false, refusals: 0 }
    }

    /// All that hold, if there are others than at the last call.
    pub(super) fn export(&mut self, now: u64) -> Option<Vec<Allowance>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        self.at.retain(|_, at| holds(*at, now));
        let all = self.at.iter();
        Some(all.map(|(question, at)| Allowance { question: question.clone(), at: *at }).collect())
    }

    /// This was allowed.
    pub(super) fn allow(&mut self, question: &Question, now: u64) {
        if let Some(at) = self.at.get_mut(question) {
            if now.saturating_sub(*at) >= RENEWED {
                *at = now;
                self.changed = true;
            }
            return;
        }
        // The oldest goes, of single objects first: a list tells more.
        let of = |question: &Question, at: &u64| (question.is_of_scope(), *at);
        make_room(
            &mut self.at,
            KEPT,
            |at| !holds(*at, now),
            |question, at| (&question.user, of(question, at)),
        );
        self.at.insert(question.clone(), now);
        self.changed = true;
    }

    /// This was not allowed any more, nor is what would have allowed it.
    pub(super) fn refuse(&mut self, question: &Question) {
        self.refusals += 1;
        let before = self.at.len();
        self.at.retain(|kept, _| !kept.falls_with(question));
        self.changed |= self.at.len() < before;
    }

    /// How often anything was refused in this run.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Whether this was allowed, or what it is a part of.
    pub(super) fn hold(&self, question: &Question, now: u64) -> bool {
        self.at.get(question).is_some_and(|at| holds(*at, now))
            || self.at.iter().any(|(allowed, at)| holds(*at, now) && allowed.implies(question))
    }
}

fn holds(at: u64, now: u64) -> bool {
    at.saturating_add(OFFLINE.as_secs()) >= now
}

#[cfg(test)]
mod tests {
    use super::{super::tests::question, *};

    const NOW: u64 = 2_000_000_000;

    fn of(user: &str, verb: &str, name: &str) -> Question {
        Question { user: user.into(), ..question(verb, "", name, "") }
    }

    #[test]
    fn who_asks_for_ever_more_drives_out_nobody_else_and_new_ones_are_kept() {
        let mut allowances = Allowances::default();
        allowances.allow(&of("other", "get", "x"), NOW - 9);
        allowances.allow(&of("many", "list", ""), NOW - 8);
        for n in 0..KEPT as u64 + 10 {
            allowances.allow(&of("many", "get", &n.to_string()), NOW + n);
        }
        assert_eq!(allowances.at.len(), KEPT);
        assert!(allowances.hold(&of("other", "get", "x"), NOW), "it is another's");
        assert!(allowances.hold(&of("many", "list", ""), NOW), "objects go before lists");
        assert!(
            !allowances.hold(&of("many", "get", "0"), NOW)
                && allowances.hold(&of("many", "get", "4105"), NOW)
        );
        allowances.allow(&of("late", "list", ""), NOW);
        assert!(allowances.hold(&of("late", "list", ""), NOW));
        assert_eq!(allowances.export(NOW).unwrap().len(), KEPT);
    }

    #[test]
    fn what_is_asked_again_is_renewed_when_there_is_no_room_too() {
        let mut allowances = Allowances::default();
        for n in 0..KEPT as u64 {
            allowances.allow(&of("u", "get", &n.to_string()), NOW);
        }
        let later = NOW + OFFLINE.as_secs() - 1;
        allowances.allow(&of("u", "get", "7"), later);
        assert!(allowances.hold(&of("u", "get", "7"), later + RENEWED), "renewed");
        assert!(!allowances.hold(&of("u", "get", "8"), later + RENEWED), "expired");
        allowances.allow(&of("u", "get", "new"), later + RENEWED);
        assert_eq!(allowances.at.len(), 2, "what expired makes room");
    }

    #[test]
    fn a_review_that_says_nothing_new_is_not_stored_again() {
        let mut allowances = Allowances::default();
        allowances.allow(&of("u", "list", ""), NOW);
        assert_eq!(allowances.export(NOW).map(|all| all.len()), Some(1));
        allowances.allow(&of("u", "list", ""), NOW + RENEWED - 1);
        assert!(allowances.export(NOW + RENEWED).is_none());
        allowances.allow(&of("u", "list", ""), NOW + RENEWED);
        assert!(allowances.export(NOW + RENEWED).is_some());
        allowances.refuse(&of("u", "watch", ""));
        assert_eq!(allowances.export(NOW + RENEWED).map(|all| all.len()), Some(0));
    }
}
