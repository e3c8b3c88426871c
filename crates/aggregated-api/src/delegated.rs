//! Questions that the API server decides: each asked once in a while, whoever else asks meanwhile, few at a time, and not waited for without an
//! end.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tls::digest::Sha256Digest;
use tokio::{
    sync::{Mutex as Turn, Semaphore},
    time::{Instant, timeout},
};

use crate::remembered::Remembered;

/// How long an answer is remembered, good or bad: also how long what was taken back still holds.
const LIFE: Duration = Duration::from_secs(10);
/// How many are remembered.
const CAPACITY: usize = 4096;
/// How many reviews may be under way, and for how long.
const CONCURRENT: usize = 32;
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
pub(crate) type Unanswered = Box<dyn std::error::Error + Send + Sync>;

/// The answers to one kind of question.
pub(crate) struct Delegated<V> {
    answers: Mutex<Remembered<Sha256Digest, V>>,
    /// Questions that somebody has asked and not heard the answer to. Who asks the same waits for that one.
    asked: Mutex<HashMap<Sha256Digest, Weak<Turn<()>>>>,
    slots: Semaphore,
}

impl<V: Clone> Delegated<V> {
    pub(crate) fn new() -> Self {
        Self {
            answers: Mutex::new(Remembered::new(CAPACITY, LIFE)),
            asked: Mutex::default(),
            slots: Semaphore::new(CONCURRENT),
        }
    }

    /// The answer to the question with that digest: what is remembered, or what `review` says. Refusals are the first to be forgotten.
    pub(crate) async fn answer<F>(
        &self,
        question: Sha256Digest,
        review: impl FnOnce() -> F,
        is_refusal: impl FnOnce(&V) -> bool,
    ) -> Result<V, Unanswered>
    where
        F: Future<Output = Result<V, Unanswered>>,
    {
        if let Some(known) = self.known(&question) {
            return Ok(known);
        }
        let reviewed = async {
            let turn = self.turn(&question);
            let _turn = turn.lock().await;
            // Who had the turn before may have heard it; one that went away or failed leaves it to the next.
            if let Some(known) = self.known(&question) {
                return Ok(known);
            }
            let _slot = self.slots.acquire().await?;
            let answer = review().await?;
            let spare = is_refusal(&answer);
            self.answers.lock().insert(question, answer.clone(), spare, Instant::now());
            Ok(answer)
        };
        timeout(PATIENCE, reviewed).await?
    }

    fn known(&self, question: &Sha256Digest) -> Option<V> {
        self.answers.lock().get(question, Instant::now())
    }

    /// The turns of those who ask this. The entry is as good as gone when nobody asks any more, and is cleared away by who asks next.
    fn turn(&self, question: &Sha256Digest) -> Arc<Turn<()>> {
        let mut asked = self.asked.lock();
        if let Some(turn) = asked.get(question).and_then(Weak::upgrade) {
            return turn;
        }
        if asked.len() >= CONCURRENT {
            asked.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        asked.insert(*question, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt, future::join_all};

    use super::*;

    fn question(text: &str) -> Sha256Digest {
        Sha256Digest::of(text.as_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn what_many_ask_at_once_is_asked_once() {
        let (delegated, count) = (Delegated::new(), AtomicUsize::new(0));
        let (delegated, count) = (&delegated, &count);
        let ask = |text: &'static str| {
            let review = move || async move {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(text)
            };
            delegated.answer(question(text), review, |_| false)
        };
        let began = Instant::now();
        let of_all = (0..200).map(|number| ask(if number % 2 == 0 { "even" } else { "odd" }));
        let answers = join_all(of_all).await;
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), if number % 2 == 0 { "even" } else { "odd" });
        }
        assert_eq!(count.load(Ordering::Relaxed), 2);
        assert_eq!(began.elapsed(), Duration::from_secs(1), "different questions do not wait for each other");
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_or_hears_nothing_leaves_it_to_the_next() {
        let delegated = Delegated::new();
        let mut gone = Box::pin(delegated.answer(question("q"), std::future::pending, |()| false));
        assert!(gone.as_mut().now_or_never().is_none());
        let fails = delegated.answer(question("q"), || async { Err("nobody answers".into()) }, |()| false);
        let next = delegated.answer(question("q"), || async { Ok(()) }, |()| false);
        let ends = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(gone);
        };
        let ((), failed, heard) = tokio::join!(ends, fails, next);
        assert!(failed.is_err() && heard.is_ok());
    }

    #[tokio::test]
    async fn no_question_is_kept_in_mind_that_nobody_asks() {
        let delegated = Delegated::new();
        for number in 0..10 * CONCURRENT {
            delegated.answer(question(&number.to_string()), || async { Ok(()) }, |()| false).await.unwrap();
            assert!(delegated.asked.lock().len() <= CONCURRENT);
        }
    }
}
