//! States that are sent to somebody: what a list shows, and what a watch begins with. They stay what they are while their readers take
//! them, and so hold versions that nobody else needs any more. Who takes nothing for a while loses the rest: a connection that stands
//! still is not asked for anything, so nobody else would end it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use aggregated_api::StorageError;
use parking_lot::Mutex;

use super::unavailable;
use crate::ledger::Stored;

/// For how long a reader may take nothing.
const STILL: Duration = Duration::from_mins(1);

/// What is left of one state, as long as it is taken.
pub(super) struct Sending<T>(Mutex<Option<Rest<T>>>);

/// Some values, and whether they were the last.
type First<T> = (Vec<Arc<Stored<T>>>, bool);

struct Rest<T> {
    values: VecDeque<Arc<Stored<T>>>,
    /// When the reader last took something.
    at: Duration,
}

impl<T> Sending<T> {
    /// One of them; all stay.
    pub(super) fn get(&self, index: usize, now: Duration) -> Result<Arc<Stored<T>>, StorageError> {
        self.read(now, |values| values.get(index).map(Arc::clone))?.ok_or_else(stood_still)
    }

    /// The first of them, which go, and whether they were the last.
    pub(super) fn take(&self, most: usize, now: Duration) -> Result<First<T>, StorageError> {
        self.read(now, |values| (values.drain(..most.min(values.len())).collect(), values.is_empty()))
    }

    fn read<R>(
        &self,
        now: Duration,
        what: impl FnOnce(&mut VecDeque<Arc<Stored<T>>>) -> R,
    ) -> Result<R, StorageError> {
        let mut rest = self.0.lock();
        let Rest { values, at } = rest.as_mut().ok_or_else(stood_still)?;
        *at = now;
        Ok(what(values))
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
#[derive(Default)]
pub(super) struct Readers(Mutex<Vec<Weak<dyn LetGo>>>);

impl Readers {
    /// One more.
    pub(super) fn begin<T: Send + Sync + 'static>(
        &self,
        values: Vec<Arc<Stored<T>>>,
        now: Duration,
    ) -> Arc<Sending<T>> {
        let sending = Arc::new(Sending(Mutex::new(Some(Rest { values: values.into(), at: now }))));
        let reader: Weak<Sending<T>> = Arc::downgrade(&sending);
        self.0.lock().push(reader);
        sending
    }

    /// Takes away what is left of those who stand still. To be called now and then.
    pub(super) fn release(&self, now: Duration) {
        let mut readers = self.0.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        for reader in readers.iter().filter_map(Weak::upgrade) {
            reader.let_go(now);
        }
    }
}
