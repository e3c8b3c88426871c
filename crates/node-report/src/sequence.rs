//! Which reports a server takes. Pure: what is held and what came in, the verdict out.
//!
//! - A later incarnation replaces an earlier one, and begins with a full report.
//! - Within an incarnation `seq` only grows; what is not newer than what is held is dropped, so that duplicates and stragglers change nothing.
//! - A full report is taken whatever is held. A delta is taken on any report from its `base_seq` on: the encoder puts into a delta all
//!   that changed after `base_seq`, so that a lost answer costs no full report.
//! - A delta after which there would be more pods than a full report may have ([`crate::report::MAX_PODS`]) is not taken either: a full one is asked for.
//!   That is for who holds the pods to see.
//! - A reporter that has heard a leader of a later epoch tells an old leader so, which must then answer 421.
//!
//! A server keeps [`Held`] beside each node's state; a reporter with another node UID than the Node object's is as one of which nothing is held.

use crate::report::Report;

/// Which report of a node a server holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Its reporter's incarnation.
    pub incarnation: u64,
    /// Its number.
    pub seq: u64,
}

/// What becomes of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take it: all of it is the node's state (full), or it changes what is held (delta). 200.
    Take,
    /// It is no newer than what is held. 200 with `dropped` and what is held.
    Drop,
    /// The delta's base is not held, or it would lead to too many pods. 409.
    NeedFull,
    /// The reporter knows a later leader than this one. 421.
    Superseded,
}

/// What to do with `report` for a server of term `epoch` that holds `held` of its node.
pub fn judge(epoch: u64, held: Option<Held>, report: &Report) -> Verdict {
    if report.epoch.is_some_and(|heard| heard > epoch) {
        return Verdict::Superseded;
    }
    let unheld = if report.is_full() { Verdict::Take } else { Verdict::NeedFull };
    let Some(held) = held else { return unheld };
    if report.incarnation > held.incarnation {
        return unheld;
    }
    if report.incarnation < held.incarnation || report.seq <= held.seq {
        return Verdict::Drop;
    }
    match report.base_seq {
        Some(base) if base > held.seq => Verdict::NeedFull,
        _ => Verdict::Take,
    }
}

#[cfg(test)]
mod tests {
    use super::{Held, Verdict, judge};
    use crate::report::Report;

    #[test]
    fn each_report_has_its_verdict() {
        let held = |incarnation, seq| Some(Held { incarnation, seq });
        // name; held; incarnation, seq, base, epoch heard of the report; verdict of a leader of epoch 4
        let cases = [
            ("first", None, (7, 0, None, None), Verdict::Take),
            ("full later", None, (7, 9, None, Some(3)), Verdict::Take),
            ("delta on nothing", None, (7, 9, Some(8), Some(4)), Verdict::NeedFull),
            ("next", held(7, 8), (7, 9, Some(8), Some(4)), Verdict::Take),
            ("answer was lost", held(7, 8), (7, 9, Some(5), Some(4)), Verdict::Take),
            ("held is behind the base", held(7, 4), (7, 9, Some(5), Some(4)), Verdict::NeedFull),
            ("full when behind", held(7, 4), (7, 9, None, Some(4)), Verdict::Take),
            ("again", held(7, 9), (7, 9, Some(8), Some(4)), Verdict::Drop),
            ("full again", held(7, 9), (7, 9, None, Some(4)), Verdict::Drop),
            ("straggler", held(7, 9), (7, 6, None, Some(4)), Verdict::Drop),
            ("old life", held(7, 9), (6, 99, None, Some(4)), Verdict::Drop),
            ("new life", held(7, 9), (8, 0, None, None), Verdict::Take),
            ("new life's delta", held(7, 9), (8, 1, Some(0), Some(4)), Verdict::NeedFull),
            ("later leader", held(7, 8), (7, 9, Some(8), Some(5)), Verdict::Superseded),
        ];
        for (name, held, (incarnation, seq, base_seq, epoch), expected) in cases {
            let report = Report { incarnation, seq, base_seq, epoch, ..Report::default() };
            assert_eq!(judge(4, held, &report), expected, "{name}");
        }
    }
}
