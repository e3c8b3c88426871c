//! References of the command lines, as Markdown, from the arguments' own comments.

use super::Generated;

/// One file a binary.
pub(super) fn files() -> Vec<Generated> {
    Vec::new()
}
