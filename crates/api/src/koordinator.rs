//! Koordinator's vocabulary on pods: by it Isthmus says which pods are to be served first.

/// Label: quality of service, `LSE`, `LSR`, `LS`, `BE` or `SYSTEM`.
pub const QOS_CLASS: &str = "koordinator.sh/qosClass";

/// Label: priority class, one of [`PRIORITY_CLASSES`], in place of the pod's priority.
pub const PRIORITY_CLASS: &str = "koordinator.sh/priority-class";

/// Priority classes from the first to be served to the last, each with its band of priorities.
pub const PRIORITY_CLASSES: [(&str, std::ops::RangeInclusive<i64>); 4] = [
    ("koord-prod", 9_000..=9_999),
    ("koord-mid", 7_000..=7_999),
    ("koord-batch", 5_000..=5_999),
    ("koord-free", 3_000..=3_999),
];
