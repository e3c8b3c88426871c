//! The filters in force: one for all clients that share a set, replaced when its view or the rules change, and who was shown
//! what through which.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use kube_wire::{request::Verb, resource::GroupVersionResource, resource_version::ResourceVersion};
use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

use super::{
    Client, Filter, FilterName, Filtered, Otherwise, Rules, View,
    shown::{Place, Shown},
};

/// How long a request waits, after the start, for what filters look at.
const SETTLE: Duration = Duration::from_secs(5);

type SetOf = (Filtered, Box<[FilterName]>);

/// The filters in force.
pub struct Filters {
    state: Mutex<State>,
    /// Counts changes of rules and views.
    revision: watch::Sender<u64>,
    settled: watch::Sender<bool>,
    /// Through which filter a client was last shown the whole of a subscription.
    shown: Mutex<Shown>,
}

struct State {
    rules: Arc<Rules>,
    view: Arc<View>,
    filters: BTreeMap<SetOf, Arc<Filter>>,
}

impl Filters {
    /// The filters of `rules` with what is known at the start. The view's turn is to be another than any before the start: clients
    /// remember versions that were shown then. `stored` is what [`Filters::export`] gave in an earlier run.
    pub fn new(rules: Rules, view: View, stored: Option<&[u8]>) -> Self {
        let state = State { rules: Arc::new(rules), view: Arc::new(view), filters: BTreeMap::new() };
        Self {
            state: Mutex::new(state),
            revision: watch::Sender::new(0),
            settled: watch::Sender::new(false),
            shown: Mutex::new(stored.map(Shown::restore).unwrap_or_default()),
        }
    }

    /// The filter that a request passes through; `None` if it passes through none.
    pub fn choose(
        &self,
        client: &Client,
        verb: Verb,
        resource: &GroupVersionResource,
        namespace: &str,
    ) -> Option<Arc<Filter>> {
        self.in_force(client, verb, resource, namespace).0
    }

    /// The same, and the view of that moment: the filter may have been made with an earlier one, by which it answers the same.
    pub fn in_force(
        &self,
        client: &Client,
        verb: Verb,
        resource: &GroupVersionResource,
        namespace: &str,
    ) -> (Option<Arc<Filter>>, Arc<View>) {
        let mut state = self.state.lock();
        let Some(resource) = Filtered::of(resource) else { return (None, state.view.clone()) };
        let names = state.rules.choose(client, verb, resource, namespace);
        // One that cannot do anything would only be one more thing that may change.
        let mut names: Box<[FilterName]> = names.into_iter().filter(|name| name.acts(&state.view)).collect();
        let local = FilterName::LocalPods;
        let corrects = !state.view.local_pods.pods.is_empty() && state.rules.enabled.contains(&local);
        if corrects && local.applies(resource, verb, namespace) && !names.contains(&local) {
            names = names.into_iter().chain([local]).collect();
        }
        let State { view, filters, rules: _ } = &mut *state;
        if names.is_empty() {
            return (None, view.clone());
        }
        let filter = filters
            .entry((resource, names.clone()))
            .or_insert_with(|| Arc::new(Filter::new(resource, names, view.clone())));
        (Some(filter.clone()), view.clone())
    }

    /// Whether some client's request would pass through a filter.
    pub fn concern(&self, verb: Verb, resource: &GroupVersionResource, namespace: &str) -> bool {
        let Some(resource) = Filtered::of(resource) else { return false };
        let state = self.state.lock();
        state
            .rules
            .enabled
            .iter()
            .any(|name| name.applies(resource, verb, namespace) && name.acts(&state.view))
    }

    /// Whether a filter applies to anybody.
    pub fn has(&self, name: FilterName) -> bool {
        self.state.lock().rules.enabled.contains(&name)
    }

    /// Waits for a while, after the start, until what filters look at was read, or cannot be. Whether that is so.
    pub async fn settled(&self) -> bool {
        timeout(SETTLE, self.settled.subscribe().wait_for(|settled| *settled))
            .await
            .is_ok_and(|seen| seen.is_ok())
    }

    /// Says whether what filters look at was read, or cannot be.
    pub fn settle(&self, is_settled: bool) {
        self.settled.send_if_modified(|settled| std::mem::replace(settled, is_settled) != is_settled);
    }

    /// What filters look at now.
    pub fn view(&self) -> Arc<View> {
        self.state.lock().view.clone()
    }

    /// Filters that are on and do nothing, and why.
    pub fn idle(&self) -> Option<(Box<[FilterName]>, String)> {
        let (rules, view) = {
            let state = self.state.lock();
            (state.rules.clone(), state.view.clone())
        };
        let idle = rules.idle(&view);
        let reason = view.unreached.as_ref().filter(|_| !idle.is_empty())?.to_string();
        Some((idle, reason))
    }

    /// Changes the view, but for its turn, which changes by itself, as it does with the rules. Filters that answer the same with it stay.
    pub fn change_view(&self, change: impl FnOnce(&mut View)) {
        {
            let mut state = self.state.lock();
            let mut view = View::clone(&state.view);
            change(&mut view);
            if *state.view == view {
                return;
            }
            if !FilterName::ALL.iter().all(|name| name.indifferent(&state.view, &view)) {
                view.turn = view.turn.wrapping_add(1);
            }
            state.filters.retain(|_, filter| filter.is_indifferent(&view));
            state.view = Arc::new(view);
        }
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Takes other rules.
    pub fn set_rules(&self, rules: Rules) {
        {
            let mut state = self.state.lock();
            if *state.rules == rules {
                return;
            }
            state.rules = Arc::new(rules);
            let turn = state.view.turn.wrapping_add(1);
            state.view = Arc::new(View { turn, ..View::clone(&state.view) });
        }
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// The rules by which they are chosen.
    pub fn rules(&self) -> Arc<Rules> {
        self.state.lock().rules.clone()
    }

    /// Tells when a filter may have been replaced: to be chosen anew.
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// A reader ([`super::reader`]) is being shown what it asks for at that version through `filter`, or a page of it. Says whether something is to be stored.
    pub fn show(&self, reader: &str, filter: Option<&Filter>, at: ResourceVersion, place: Place) -> bool {
        let mut shown = self.shown.lock();
        shown.show(reader, filter, at, place);
        shown.has_changed()
    }

    /// What a reader may know otherwise than `filter` shows it, at the version that it has; `turn`: that of the view when the filter was chosen
    /// ([`Filters::in_force`]). By a later turn what the next filter shows by its view would stand at that same version. To be asked before [`Filters::show`] says
    /// what it is shown now.
    pub fn saw_otherwise(&self, reader: &str, filter: Option<&Filter>, turn: u64) -> Otherwise {
        let before = self.shown.lock().saw_otherwise(reader, filter, Instant::now());
        Otherwise { before, turn }
    }

    /// By an event of up to that version `before` showed a reader what a list through `now` shows it otherwise at the same version.
    pub fn see_otherwise(
        &self,
        reader: &str,
        before: Option<&Filter>,
        now: Option<&Filter>,
        at: ResourceVersion,
    ) {
        self.shown.lock().see_otherwise(reader, before, now, at);
    }

    /// Whether what a reader saw at that version is what it would see now through `filter`: its watch goes on from there.
    pub fn goes_on(&self, reader: &str, filter: Option<&Filter>, at: ResourceVersion) -> bool {
        self.shown.lock().goes_on(reader, filter, at)
    }

    /// A reader that saw the whole through `before` is being told what `now` shows otherwise at that version. Says whether something is to be stored.
    pub fn retell(
        &self,
        reader: &str,
        before: Option<&Filter>,
        now: Option<&Filter>,
        at: ResourceVersion,
    ) -> bool {
        let mut shown = self.shown.lock();
        shown.retell(reader, before, now, at);
        shown.has_changed()
    }

    /// Who saw what, to be stored, if it changed since the last call.
    pub fn export(&self) -> Option<Vec<u8>> {
        self.shown.lock().export()
    }
}
