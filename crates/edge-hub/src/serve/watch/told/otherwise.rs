//! A filter takes the place of another while a watch is open: what its client sees otherwise is told, and the watch goes on.
//!
//! Were it to end with 410 instead, a client of client-go would list anew only after a pause that grows with each such end.

use std::sync::Arc;

use kube_wire::{
    request::Verb, resource::GroupVersionResource, resource_version::ResourceVersion, status::Status,
    transcode::TranscodeError,
};
use tokio::task::yield_now;
use tracing::debug;
use watch_cache::{Delivery, Objects};

use super::{LENGTH, Outgoing, Watch, view_changed};
use crate::{
    authorize::Attributes,
    filters::{Difference, Filter, View},
    serve::filtered,
};

/// How many bytes may be told so; a list says more than that better.
const MOST: usize = 256 << 10;

/// After how many objects others have their turn: that have nothing to do with what changed, and that are shown by both filters.
const PASSED: usize = 1024;
const COMPARED: usize = 16;

/// How often what came meanwhile is told before.
const TRIES: usize = 8;

impl Watch {
    /// Whether another filter may have taken the place of the one that the watch goes by.
    pub(super) fn is_to_turn(&self) -> bool {
        self.revision.has_changed().unwrap_or(false) || self.is_behind_the_rules()
    }

    fn is_behind_the_rules(&self) -> bool {
        self.in_force.as_ref().map(Arc::as_ptr) != self.filter().map(Arc::as_ptr)
    }

    /// Goes by the filter in force from here on, having told what there was to tell by the one before, and then what differs. A status ends the
    /// watch: too much differs, or its client has no use for bookmarks, or the stream outruns it.
    ///
    /// What differs is told at the versions of a state ([`crate::filters::Telling`]), which are no versions to go on from. A bookmark behind it
    /// is. A client that goes away between the two is told to list anew when it comes back, as is one that comes from no later version.
    pub(super) async fn turn(&mut self, out: &mut Outgoing) -> Option<Status> {
        self.revision.borrow_and_update();
        let Attributes { resource, group, version, namespace, .. } = &self.attributes;
        let resource = GroupVersionResource::new(group, version, resource);
        let (in_force, view) = self.hub.filters.in_force(&self.client, Verb::Watch, &resource, namespace);
        self.in_force = in_force;
        if !self.is_behind_the_rules() {
            return None;
        }
        if self.encoder.is_of_lists() {
            self.untold = true;
            return None;
        }
        let now = self.in_force.clone();
        let mut tries = 0..TRIES;
        let objects = loop {
            if let Some(objects) = self.known() {
                break objects;
            }
            // The rest comes with the next call. What its client heard by the filter before is remembered as of that.
            if out.len() >= LENGTH {
                return None;
            }
            // Unless it ends by itself: nothing more is told by this filter without what differs.
            let ends = self.fill(out);
            if ends.is_some() || self.untold {
                return ends;
            }
            if tries.next().is_none() {
                return Some(self.ends(&Untold::Behind));
            }
        };
        let (at, known) = (objects.resource_version(), self.cursor.resource_version());
        let differences = match self.differences(objects, now.as_deref(), &view).await {
            Ok(differences) => differences,
            Err(why) => return Some(self.ends(&why)),
        };
        let Differences { told: differs, newest, at_its_own } = differences;
        if let Some(at) = at_its_own {
            self.see_otherwise(at);
        }
        let differs = differs.take();
        // Also where nothing differs, of one that is ahead: it could not come back from where it is while there is no link.
        if self.cursor.has_bookmarks() && (differs.is_some() || at < known) {
            if let Some(differs) = differs {
                out.push(differs);
            }
            // It cannot fail: there is no object in it.
            out.push(self.encoder.delivery(&Delivery::Bookmark(at), false, &self.hub.meters).ok()?);
            if at < known {
                let cursor = &mut self.cursor;
                self.subscription.read(|cache| cursor.rewind(cache, at));
                // What comes after is an event, from which its client goes on.
                (self.began, self.ahead) = (at, None);
            }
        }
        let heard = newest.map_or(known, |newest| newest.max(known));
        let before = self.filter().map(Arc::as_ref);
        // Before it goes out: a hub that was killed would take its client for one that was not told, should the view be as before when it comes back.
        if self.hub.filters.retell(&self.reader, before, now.as_deref(), heard) {
            self.hub.shown_is_stored().await;
        }
        self.cursor.selects_mut().set_filter(now);
        None
    }

    /// Ends, for its client to list anew.
    fn ends(&self, why: &Untold) -> Status {
        debug!(key = %self.subscription.key(), %why, "a watch ends: its client is shown objects otherwise");
        let (known, now) = (self.cursor.resource_version(), self.in_force.as_deref());
        // Another of its watches may have turned before, at an earlier version than this one came to by the filter before.
        self.hub.filters.retell(&self.reader, self.filter().map(Arc::as_ref), now, known);
        self.see_otherwise(known);
        view_changed()
    }

    /// Up to that version its client was told by events what a list through the filter in force shows otherwise at the same versions.
    fn see_otherwise(&self, at: ResourceVersion) {
        let (before, now) = (self.filter().map(Arc::as_ref), self.in_force.as_deref());
        self.hub.filters.see_otherwise(&self.reader, before, now, at);
    }

    /// The objects that its client knows; nothing while there is something to tell before. Of a watch that is ahead of what is held as they are held: its client
    /// has a bookmark that was not stored before a restart of the hub, and no event that was not.
    fn known(&self) -> Option<Objects> {
        self.subscription.read(|cache| self.cursor.state(cache).or_else(|| self.cursor.held(cache)))
    }

    /// What of these objects is shown otherwise; an error if that cannot be told.
    async fn differences(
        &mut self,
        objects: Objects,
        now: Option<&Filter>,
        view: &View,
    ) -> Result<Differences, Untold> {
        let shown = self.cursor.selects();
        let difference = Difference::between(shown.filter().map(Arc::as_ref), now);
        let mut differs = Differences::default();
        let (mut passed, mut compared) = (0, 0);
        for object in objects {
            passed += difference.cost();
            if difference.may_concern(&object) {
                compared += 1;
                if let Some(delivery) = shown.retold(&object, now, view) {
                    if !self.cursor.has_bookmarks() {
                        return Err(Untold::WithoutBookmarks);
                    }
                    let text = self.encoder.delivery(&delivery, false, &self.hub.meters)?;
                    if differs.told.len() + text.len() > MOST {
                        return Err(Untold::TooMuch);
                    }
                    differs.told.push(text);
                    let version = Some(object.resource_version());
                    differs.newest = differs.newest.max(version);
                    if matches!(delivery, Delivery::Modified(_)) && filtered::stands_at_its_own(now, &object)
                    {
                        differs.at_its_own = differs.at_its_own.max(version);
                    }
                }
            }
            if passed >= PASSED || compared == COMPARED {
                (passed, compared) = (0, 0);
                yield_now().await;
            }
        }
        Ok(differs)
    }
}

/// What is shown otherwise.
#[derive(Default)]
struct Differences {
    /// As it is told.
    told: Outgoing,
    /// The version of the newest of these objects.
    newest: Option<ResourceVersion>,
    /// That of the newest that a list shows at that version all the same.
    at_its_own: Option<ResourceVersion>,
}

/// Why what differs is told by a list.
#[derive(Debug, thiserror::Error)]
enum Untold {
    #[error("it is too far behind")]
    Behind,
    #[error("its client did not ask for bookmarks")]
    WithoutBookmarks,
    #[error("too much of it")]
    TooMuch,
    #[error("an object cannot be shown as JSON: {0}")]
    AsJson(#[from] TranscodeError),
}
