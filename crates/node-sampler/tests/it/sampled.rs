//! A node that is sampled from the start.

use node_report::Sample;
use node_sampler::Sampler;

use crate::fixture::{Layout, Tree, at, facts};

/// What is reported of a node of that layout with so many pods at the second `end`, sampled each second from its start; `each` makes it as
/// it is in a second.
pub(crate) fn sampled(layout: Layout, pods: usize, end: u64, each: impl Fn(&Tree, u64)) -> Sample {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path(), layout);
    let mut sampler = Sampler::new(&tree.roots());
    for second in 0..=end {
        each(&tree, second);
        sampler.tick(at(second), &facts(pods));
    }
    sampler.sample(at(end), &facts(pods), 1, None).unwrap()
}
