//! Who has a watch open.

use std::sync::Arc;

use super::{Owner, Subscription};

/// An open watch of a user: for as long the user may carry the subscription before those who only ask now and then.
pub struct Attached {
    subscription: Arc<Subscription>,
    user: Owner,
}

impl Subscription {
    /// A watch of this user is open, until what is given back is dropped.
    pub fn attach(self: &Arc<Self>, user: &Owner) -> Attached {
        self.change_carriers(|carriers| {
            carriers.attach(user);
            carriers.has_next()
        });
        Attached { subscription: self.clone(), user: user.clone() }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.subscription.change_carriers(|carriers| {
            carriers.detach(&self.user);
            carriers.has_next()
        });
    }
}
