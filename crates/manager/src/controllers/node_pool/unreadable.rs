//! A pool that cannot be read is left alone, and its users are told in its condition `Ready` and in an event, once for each reason.

use api::{NodePool, conditions};
use tracing::warn;

use super::Context;
use crate::controllers::unreadable::Teller;

/// Tells that the pool cannot be read because of `error`, unless that was the last that was told of it.
pub(super) async fn tell(context: &Context, name: &str, error: &str) {
    if context.progress.is_news(&topic(name), &topic(name), error).is_none() {
        return;
    }
    warn!(pool = name, error, "pool cannot be read and is left alone");
    let Context { client, leadership, events, metrics, .. } = context;
    let teller = Teller { client, leadership, events, writes: &metrics.writes };
    if let Err(failure) = teller.tell::<NodePool>(name, conditions::READY, &message(error)).await {
        warn!(pool = name, error = %failure, "cannot tell that the pool is unreadable; it is tried again");
        context.progress.forget_told(&topic(name), |_| false);
    }
}

/// The pool can be read, or is gone.
pub(super) fn forget(context: &Context, name: &str) {
    context.progress.forget_told(&topic(name), |_| false);
}

/// Nodes and pools share what was told; no node has a name with a slash.
fn topic(name: &str) -> String {
    format!("nodepools/{name}")
}

/// What is wrong and what to do, short enough for an event, whose API takes 1,024 bytes.
fn message(error: &str) -> String {
    let reason: String = error.chars().take(200).collect();
    format!(
        "the pool cannot be read: {reason}; its nodes are left as they are, and pods that want it are refused or \
         admitted as the webhook's failurePolicy says: put the field right (kubectl edit nodepool)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_fits_an_event_and_says_why() {
        let message = message(&"ä".repeat(5000));
        assert!(message.len() <= 1024, "{}", message.len());
        assert!(super::message("invalid type: string").contains("invalid type: string"));
    }
}
