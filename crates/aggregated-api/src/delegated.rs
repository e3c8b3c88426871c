//! Questions that the API server decides: each asked once in a while, few at a time, and not waited for without an end.

use std::time::Duration;

use parking_lot::Mutex;
use tls::digest::Sha256Digest;
use tokio::{
    sync::Semaphore,
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
    slots: Semaphore,
}

impl<V: Clone> Delegated<V> {
    pub(crate) fn new() -> Self {
        Self { answers: Mutex::new(Remembered::new(CAPACITY, LIFE)), slots: Semaphore::new(CONCURRENT) }
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
        if let Some(known) = self.answers.lock().get(&question, Instant::now()) {
            return Ok(known);
        }
        let reviewed = async {
            let _slot = self.slots.acquire().await?;
            review().await
        };
        let answer = timeout(PATIENCE, reviewed).await??;
        let spare = is_refusal(&answer);
        self.answers.lock().insert(question, answer.clone(), spare, Instant::now());
        Ok(answer)
    }
}
