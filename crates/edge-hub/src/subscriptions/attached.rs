//! Who has a watch open.

use std::sync::Arc;

use super::{Owner, Subscription};

/// An open watch of a user: for as long the user may carry the subscription before those who only ask now and then.
pub struct Attached {
    pub(super) subscription: Arc<Subscription>,
    pub(super) user: Owner,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.subscription.change_carriers(|carriers| {
            carriers.detach(&self.user);
            carriers.has_next()
        });
    }
}
