//! The gateways that are dialled in vain: what is shown of them, and when the log is told. Each is dialled for several links, all of which fail alike, and
//! again and again.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long the log is told no more of a gateway for a reason that it was told.
const AGAIN: Duration = Duration::from_mins(5);

/// How many reasons it is told in that time: some are others each time, as those that have a time in them.
const REASONS: usize = 4;

/// What came of dialling each gateway at each address, where that is no link.
#[derive(Debug, Default)]
pub(crate) struct Unreached(Mutex<BTreeMap<(String, String), InVain>>);

#[derive(Debug)]
struct InVain {
    // What came of it last. Nothing, if others answered, which is no failure.
    why: Option<String>,
    since: Instant,
    attempts: u64,
    // Since the log was told.
    untold: u64,
    told_from: Instant,
    told: BTreeSet<String>,
}

impl InVain {
    fn new() -> Self {
        let now = Instant::now();
        Self { why: None, since: now, attempts: 0, untold: 0, told_from: now, told: BTreeSet::new() }
    }

    /// Counts an attempt, and says how many the log is to be told of, if it is.
    fn attempt(&mut self, why: &str) -> Option<u64> {
        self.attempts += 1;
        self.untold += 1;
        if self.told_from.elapsed() >= AGAIN {
            self.told_from = Instant::now();
            self.told.clear();
        }
        let is_news = self.told.len() < REASONS && self.told.insert(why.to_owned());
        is_news.then(|| std::mem::take(&mut self.untold))
    }
}

impl Unreached {
    /// It was dialled in vain once more. Gives in how many attempts since the log was told of it, if it is to be told now.
    pub(crate) fn failed(&self, gateway: &str, address: &str, failed: &dyn Error) -> Option<u64> {
        self.noted(gateway, address, |in_vain| {
            let why = chain(failed);
            let told = in_vain.attempt(&why);
            in_vain.why = Some(why);
            told
        })
    }

    /// The same, where another gateway answered at the address that they share.
    pub(crate) fn answered_by_another(
        &self,
        gateway: &str,
        address: &str,
        failed: &dyn Error,
    ) -> Option<u64> {
        self.noted(gateway, address, |in_vain| in_vain.attempt(&chain(failed)))
    }

    /// A link to it broke.
    pub(crate) fn broke(&self, gateway: &str, address: &str, failed: &dyn Error) {
        self.noted(gateway, address, |in_vain| in_vain.why = Some(chain(failed)));
    }

    /// There is a link to it. Gives for how long there was none, and after how many attempts, if there were any.
    pub(crate) fn linked(&self, gateway: &str, address: &str) -> Option<(Duration, u64)> {
        let in_vain = self.0.lock().remove(&at(gateway, address))?;
        (in_vain.attempts > 0).then(|| (in_vain.since.elapsed(), in_vain.attempts))
    }

    /// No link to it is wanted any more.
    pub(crate) fn forget(&self, gateway: &str, address: &str) {
        self.0.lock().remove(&at(gateway, address));
    }

    /// A line for each.
    pub(super) fn all(&self) -> Vec<String> {
        let unreached = self.0.lock();
        let line = |((gateway, address), in_vain): (&(String, String), &InVain)| {
            let why = in_vain.why.as_ref()?;
            Some(format!("no link to {gateway} at {address}: {why}"))
        };
        unreached.iter().filter_map(line).collect()
    }

    fn noted<T>(&self, gateway: &str, address: &str, note: impl FnOnce(&mut InVain) -> T) -> T {
        note(self.0.lock().entry(at(gateway, address)).or_insert_with(InVain::new))
    }
}

fn at(gateway: &str, address: &str) -> (String, String) {
    (gateway.to_owned(), address.to_owned())
}

/// An error and what is behind it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::link::LinkError;

    const FIRST: (&str, &str) = ("c1", "192.0.2.1:10262");
    const SECOND: (&str, &str) = ("c2", "192.0.2.2:10262");

    fn refused() -> io::Error {
        io::ErrorKind::ConnectionRefused.into()
    }

    #[tokio::test]
    async fn what_is_in_vain_is_shown_until_it_is_not() {
        let unreached = Unreached::default();
        assert_eq!(unreached.failed(FIRST.0, FIRST.1, &refused()), Some(1));
        unreached.broke(SECOND.0, SECOND.1, &LinkError::Silent);
        let first = "no link to c1 at 192.0.2.1:10262: connection refused";
        assert_eq!(unreached.all(), [first, "no link to c2 at 192.0.2.2:10262: the peer fell silent"]);
        assert_eq!(unreached.linked(SECOND.0, SECOND.1), None, "it broke and was made again at once");
        assert_eq!(unreached.all(), [first]);
        // That another one answers is no failure, and does not take away one of before.
        for (gateway, address) in [FIRST, SECOND] {
            assert_eq!(unreached.answered_by_another(gateway, address, &LinkError::Silent), Some(1));
        }
        assert_eq!(unreached.all(), [first]);
        unreached.forget(FIRST.0, FIRST.1);
        assert_eq!(unreached.all(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_is_told_of_what_is_new_and_each_five_minutes() {
        let unreached = Unreached::default();
        let failed = |why: &dyn Error| unreached.failed(FIRST.0, FIRST.1, why);
        // Four links, each tried every four seconds.
        let mut told = Vec::new();
        for second in 0..600_u64 {
            if second % 4 == 0 {
                told.extend((0..4).filter_map(|_| failed(&refused())).map(|attempts| (second, attempts)));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(told, [(0, 1), (300, 300)]);
        // Ten minutes after the first. Those of before are told with it; the two reasons may take turns.
        assert_eq!(failed(&LinkError::Silent), Some(300));
        assert_eq!((failed(&refused()), failed(&LinkError::Silent)), (Some(1), None));
        // Reasons that have a number in them, say.
        let others = (0..100).filter(|number| failed(&io::Error::other(number.to_string())).is_some());
        assert_eq!(others.count(), REASONS - 2);
        assert_eq!(unreached.linked(FIRST.0, FIRST.1), Some((Duration::from_mins(10), 703)));
        // It is gone again: that is news.
        assert_eq!(failed(&refused()), Some(1));
    }
}
