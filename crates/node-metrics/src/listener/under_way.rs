//! How many reports of each node are being read: a body waits in memory until all of it is there, and who sends many at once and ends none would fill it,
//! over one connection or over many.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// So many at a time. A hub sends one after the other, and those of its connections that broke end after [`super::READING`].
pub(super) const MOST: usize = 4;

/// The count by node; of those alone that have any.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<HashMap<Arc<str>, usize>>);

/// One that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    of: &'a UnderWay,
    node: Arc<str>,
}

impl UnderWay {
    /// Begins one; `None` if there are [`MOST`] of this node.
    pub(super) fn begin(&self, node: &Arc<str>) -> Option<Reading<'_>> {
        let mut counts = self.0.lock();
        let count = counts.entry(Arc::clone(node)).or_default();
        if *count >= MOST {
            return None;
        }
        *count += 1;
        Some(Reading { of: self, node: Arc::clone(node) })
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut counts = self.of.0.lock();
        if let Some(count) = counts.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_some_and_nothing_is_kept_of_those_that_ended() {
        let under_way = UnderWay::default();
        let [a, b] = ["a", "b"].map(Arc::from);
        let mut of_a: Vec<_> = (0..MOST).map(|_| under_way.begin(&a).unwrap()).collect();
        assert!(under_way.begin(&a).is_none());
        let of_b = under_way.begin(&b);
        assert!(of_b.is_some());
        of_a.pop();
        of_a.extend(under_way.begin(&a));
        assert_eq!(of_a.len(), MOST);
        drop((of_a, of_b));
        assert!(under_way.0.lock().is_empty());
    }
}
