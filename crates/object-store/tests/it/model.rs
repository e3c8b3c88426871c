//! What a store must hold: all whole states that each subscription ever had, in their order.

use std::collections::BTreeMap;

use bytes::Bytes;
use object_store::{Change, Record, Restored, Stored, StoredEvent, SubscriptionId};

/// A whole state of a subscription.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) objects: BTreeMap<Bytes, Stored>,
    /// All events since the list, and the list's version.
    pub(crate) events: Vec<StoredEvent>,
    pub(crate) listed: u64,
}

/// A subscription's past.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    /// `None`: nothing that may be shown.
    pub(crate) states: Vec<Option<State>>,
    /// The index of the state that the last sync made durable.
    synced: usize,
    /// The index of the state that the system was given last.
    handed_over: usize,
    list: Option<BTreeMap<Bytes, Stored>>,
}

impl Default for Past {
    fn default() -> Self {
        Past { states: vec![None], synced: 0, handed_over: 0, list: None }
    }
}

/// All subscriptions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model(pub(crate) BTreeMap<SubscriptionId, Past>);

impl Model {
    pub(crate) fn append(&mut self, subscription: &SubscriptionId, records: &[Record]) {
        let past = self.0.entry(subscription.clone()).or_default();
        for record in records {
            past.append(record);
        }
    }

    pub(crate) fn synced(&mut self) {
        self.0.values_mut().for_each(|past| past.synced = past.states.len() - 1);
    }

    /// A subscription's states outlive the process.
    pub(crate) fn handed_over(&mut self, subscription: &SubscriptionId) {
        if let Some(past) = self.0.get_mut(subscription) {
            past.handed_over = past.states.len() - 1;
        }
    }

    /// The process was killed, and what it gave the system is there: that is to be found, too.
    pub(crate) fn killed(&mut self) {
        self.0.values_mut().for_each(|past| past.synced = past.synced.max(past.handed_over));
    }

    /// After a crash: each subscription is in a state at or after the last that was synced. Goes on from there.
    pub(crate) fn check_crash(&mut self, restored: &[Restored]) {
        for (subscription, past) in &mut self.0 {
            let found = past.find(subscription, restored);
            assert!(
                found >= past.synced,
                "{subscription}: state {found} is before the synced {}",
                past.synced
            );
            *past = Past { states: vec![past.states[found].clone()], ..Past::default() };
        }
        self.check_known(restored);
    }

    /// After damage: each subscription is in some state of its past, or not there.
    pub(crate) fn check_damage(&self, restored: &[Restored]) {
        for (subscription, past) in &self.0 {
            past.find(subscription, restored);
        }
        self.check_known(restored);
    }

    fn check_known(&self, restored: &[Restored]) {
        for one in restored {
            assert!(self.0.contains_key(&one.subscription), "{} was never written", one.subscription);
            let twice = restored.iter().filter(|other| other.subscription == one.subscription).count();
            assert_eq!(twice, 1, "{}", one.subscription);
        }
    }
}

impl Past {
    /// The version that the next event must be after.
    pub(crate) fn version(&self) -> Option<u64> {
        self.states.last().unwrap().as_ref().map(|state| state.version)
    }

    pub(crate) fn is_listing(&self) -> bool {
        self.list.is_some()
    }

    fn append(&mut self, record: &Record) {
        let mut state = self.states.last().unwrap().clone();
        match record {
            Record::Begin | Record::BeginSealed => self.list = Some(BTreeMap::new()),
            Record::Drop => (self.list, state) = (None, None),
            Record::Complete { version } => {
                let objects = self.list.take().unwrap();
                state = Some(State { version: *version, objects, events: Vec::new(), listed: *version });
            }
            Record::Bookmark { version } => {
                let state = state.as_mut().unwrap();
                state.version = state.version.max(*version);
            }
            Record::Put { key, version, body, change } => {
                let object = Stored { key: key.clone(), version: *version, body: body.clone() };
                match (&mut self.list, &mut state) {
                    (Some(list), _) => drop(list.insert(key.clone(), object)),
                    (None, Some(state)) => {
                        let previous = state.objects.insert(key.clone(), object.clone());
                        state.version = *version;
                        state.events.push(StoredEvent { change: *change, object, previous });
                    }
                    (None, None) => panic!("not begun"),
                }
            }
            Record::Delete { key, version, body } => {
                let object = Stored { key: key.clone(), version: *version, body: body.clone() };
                match (&mut self.list, &mut state) {
                    (Some(list), _) => drop(list.remove(key)),
                    (None, Some(state)) => {
                        let previous = state.objects.remove(key);
                        state.version = *version;
                        state.events.push(StoredEvent { change: Change::Deleted, object, previous });
                    }
                    (None, None) => panic!("not begun"),
                }
            }
        }
        self.states.push(state);
    }

    /// The last state that is what was restored.
    fn find(&self, subscription: &SubscriptionId, restored: &[Restored]) -> usize {
        let restored = restored.iter().find(|restored| restored.subscription == *subscription);
        let found = self.states.iter().rposition(|state| match (state, restored) {
            (None, None) => true,
            (Some(state), Some(restored)) => state.is(restored),
            _ => false,
        });
        // What is damaged may be not there, which is before all states.
        found.or(restored.is_none().then_some(0)).unwrap_or_else(|| {
            panic!(
                "{subscription}: restored what it never was:\n{restored:#?}\nlast: {:#?}\nsynced: {:#?}",
                self.states.last(),
                self.states[self.synced]
            )
        })
    }
}

impl State {
    fn is(&self, restored: &Restored) -> bool {
        let mut objects = restored.objects.clone();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        if restored.version != self.version || !objects.iter().eq(self.objects.values()) {
            return false;
        }
        // The history may begin later than the list, but from where it begins it has no hole.
        let after = self.events.iter().filter(|event| event.object.version > restored.history_after);
        restored.history_after >= self.listed && after.eq(restored.history.iter())
    }
}
