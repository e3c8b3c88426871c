//! States that are sent to somebody: what a list shows, and what a watch begins with. They stay what they are while their readers take
//! them, and so hold versions that nobody else needs any more. Who takes nothing for a while loses the rest: a connection that stands
//! still is not asked for anything, so nobody else would end it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use aggregated_api::{Place, Places, STILL, StorageError, User};
use parking_lot::Mutex;

use super::unavailable;
use crate::ledger::Stored;

/// How many watches may be on their way through the state with which they begin, of each user a part of that; of lists the API takes so many at a
/// time by itself. A watch that has begun holds nothing.
const BEGINNING: usize = 400;

/// What is left of one state, as long as it is taken.
pub(super) struct Sending<T>(Mutex<Option<Rest<T>>>);

/// Some values, and whether they were the last.
type First<T> = (Vec<Arc<Stored<T>>>, bool);

struct Rest<T> {
    values: VecDeque<Arc<Stored<T>>>,
    /// How many went before them.
    gone: usize,
    /// When the reader last took something.
    at: Duration,
    _room: Option<Place>,
}

impl<T> Sending<T> {
    /// One of them, by its place among all that there were; all stay.
    pub(super) fn get(&self, index: usize, now: Duration) -> Result<Arc<Stored<T>>, StorageError> {
        let held = self.read(now, |rest| rest.values.get(index.checked_sub(rest.gone)?).map(Arc::clone));
        held?.ok_or_else(stood_still)
    }

    /// The same; it goes, and those before it.
    pub(super) fn reach(&self, index: usize, now: Duration) -> Result<Arc<Stored<T>>, StorageError> {
        let reached = self.read(now, |rest| rest.first((index + 1).saturating_sub(rest.gone)).pop());
        reached?.ok_or_else(stood_still)
    }

    /// The first of them, which go, and whether they were the last.
    pub(super) fn take(&self, most: usize, now: Duration) -> Result<First<T>, StorageError> {
        self.read(now, |rest| (rest.first(most), rest.values.is_empty()))
    }

    fn read<R>(&self, now: Duration, what: impl FnOnce(&mut Rest<T>) -> R) -> Result<R, StorageError> {
        let mut rest = self.0.lock();
        let rest = rest.as_mut().ok_or_else(stood_still)?;
        rest.at = now;
        Ok(what(rest))
    }
}

impl<T> Rest<T> {
    /// Takes the first away.
    fn first(&mut self, most: usize) -> Vec<Arc<Stored<T>>> {
        let count = most.min(self.values.len());
        self.gone += count;
        self.values.drain(..count).collect()
    }
}

fn stood_still() -> StorageError {
    unavailable("nothing was read of the state for a minute")
}

trait LetGo: Send + Sync {
    fn let_go(&self, now: Duration);
}

impl<T: Send + Sync> LetGo for Sending<T> {
    fn let_go(&self, now: Duration) {
        let still = |rest: &mut Rest<T>| now.saturating_sub(rest.at) > STILL;
        // The values are dropped behind the lock.
        let rest = self.0.lock().take_if(still);
        drop(rest);
    }
}

/// All who read a state.
pub(super) struct Readers {
    all: Mutex<Vec<Weak<dyn LetGo>>>,
    beginning: Arc<Places>,
}

impl Default for Readers {
    fn default() -> Self {
        Self { all: Mutex::default(), beginning: Places::new(BEGINNING) }
    }
}

impl Readers {
    /// Room for a watch of this user that begins with a state.
    pub(super) fn room(&self, user: &User) -> Result<Place, StorageError> {
        let room = self.beginning.take(user);
        room.ok_or_else(|| unavailable("too many watches begin at the same time"))
    }

    /// One more, in the room that it has.
    pub(super) fn begin<T: Send + Sync + 'static>(
        &self,
        values: Vec<Arc<Stored<T>>>,
        room: Option<Place>,
        now: Duration,
    ) -> Arc<Sending<T>> {
        let rest = Rest { values: values.into(), gone: 0, at: now, _room: room };
        let sending = Arc::new(Sending(Mutex::new(Some(rest))));
        let reader: Weak<Sending<T>> = Arc::downgrade(&sending);
        self.all.lock().push(reader);
        sending
    }

    /// Takes away what is left of those who stand still. To be called now and then.
    pub(super) fn release(&self, now: Duration) {
        let mut readers = self.all.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        for reader in readers.iter().filter_map(Weak::upgrade) {
            reader.let_go(now);
        }
    }
}
