//! Carries writes out, several at a time and what is not urgent for a while only. Slices must follow the hubs within seconds, and an API server may
//! take long for each of the many objects that a thousand pools bring at once.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use tokio::time::Instant;

/// How many are under way at a time.
const CONCURRENT: usize = 16;

/// For how long a reconciliation begins writes of one kind that can wait. What is left is for the next one, which looks at slices first.
const TURN: Duration = Duration::from_secs(1);

/// Writes of one object, or of several that follow one another: what is noted of it beforehand, and the writes, which have not begun.
pub(super) type Write<'a, T> = (String, BoxFuture<'a, T>);

/// What was carried out.
#[derive(Debug)]
pub(super) struct Done<T> {
    /// What came of each.
    pub(super) outcomes: Vec<(String, T)>,
    /// Those that were not begun.
    pub(super) left: Vec<String>,
}

/// What was not begun in a turn, in its order. It comes first in the next one: so all have their turn, however long others take.
#[derive(Debug, Default)]
pub(super) struct Backlog(Vec<String>);

impl Backlog {
    /// Begins writes that can wait, and keeps those that were not begun.
    pub(super) async fn take_turn<T>(&mut self, mut writes: Vec<Write<'_, T>>) -> Done<T> {
        let places: HashMap<&str, usize> = self.0.iter().map(String::as_str).zip(0..).collect();
        writes.sort_by_key(|(title, _)| places.get(title.as_str()).copied().unwrap_or(usize::MAX));
        let done = carry_out(writes, Some(TURN)).await;
        self.0.clone_from(&done.left);
        done
    }
}

/// Begins the writes in their order, none after `turn`, if there is one; and waits for those that were begun.
pub(super) async fn carry_out<T>(writes: Vec<Write<'_, T>>, turn: Option<Duration>) -> Done<T> {
    let until = turn.map(|turn| Instant::now() + turn);
    let mut writes = writes.into_iter();
    let (mut under_way, mut outcomes) = (FuturesUnordered::new(), Vec::new());
    loop {
        let is_over = until.is_some_and(|until| until <= Instant::now());
        while !is_over
            && under_way.len() < CONCURRENT
            && let Some((title, write)) = writes.next()
        {
            under_way.push(async move { (title, write.await) });
        }
        match under_way.next().await {
            Some(outcome) => outcomes.push(outcome),
            None => return Done { outcomes, left: writes.map(|(title, _)| title).collect() },
        }
    }
}

/// Slices in rows of which each is written one after the other, for a backend is to be in two of a Service for a moment, and not in none. Those of
/// different Services do not wait for one another.
pub(super) fn rows(slices: &[EndpointSlice]) -> Vec<Vec<&EndpointSlice>> {
    let mut rows: Vec<Vec<&EndpointSlice>> = Vec::new();
    let service = |slice: &EndpointSlice| slice.labels().get(api::labels::SERVICE_NAME).cloned();
    for slice in slices {
        let same = |row: &&mut Vec<&EndpointSlice>| {
            row.first().is_some_and(|first| service(first) == service(slice))
        };
        match rows.iter_mut().find(same) {
            Some(row) => row.push(slice),
            None => rows.push(vec![slice]),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_are_under_way_at_a_time_and_what_can_wait_does() {
        let write = |number: usize| {
            let write = async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                number
            };
            (number.to_string(), write.boxed())
        };
        for (turn, begun, took) in [
            (None, 90, 1800),
            (Some(Duration::from_mins(1)), 90, 1800),
            (Some(Duration::from_secs(1)), 64, 1200),
            (Some(Duration::from_millis(1)), 16, 300),
        ] {
            let began = Instant::now();
            let Done { outcomes, left } = carry_out((0..90).map(write).collect(), turn).await;
            let mut numbers: Vec<usize> = outcomes.iter().map(|(_, number)| *number).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..begun).collect::<Vec<_>>(), "{turn:?}");
            assert!(outcomes.iter().all(|(title, number)| *title == number.to_string()));
            assert_eq!(left, (begun..90).map(|number| number.to_string()).collect::<Vec<_>>(), "{turn:?}");
            assert_eq!(began.elapsed().as_millis(), took, "{turn:?}");
        }
        let none = carry_out::<()>(Vec::new(), Some(TURN)).await;
        assert!(none.outcomes.is_empty() && none.left.is_empty());
    }

    /// All are to be written each time, as those are that fail.
    #[tokio::test(start_paused = true)]
    async fn all_have_their_turn_though_each_takes_longer_than_one() {
        let write = |number: usize| {
            let write = async move {
                tokio::time::sleep(TURN * 2).await;
                number
            };
            (number.to_string(), write.boxed())
        };
        let mut backlog = Backlog::default();
        for expected in [0..16, 16..32, 32..48, 48..64] {
            let Done { outcomes, left } = backlog.take_turn((0..40).map(write).collect()).await;
            let mut numbers: Vec<usize> = outcomes.iter().map(|(_, number)| *number).collect();
            let mut expected: Vec<usize> = expected.map(|place| place % 40).collect();
            numbers.sort_unstable();
            expected.sort_unstable();
            assert_eq!((numbers, left.len()), (expected, 24));
        }
        // What is no more to be written is forgotten.
        let done = backlog.take_turn((0..3).map(write).collect()).await;
        assert_eq!((done.outcomes.len(), backlog.0), (3, Vec::new()));
    }

    #[test]
    fn slices_of_one_service_are_written_one_after_the_other() {
        let slice = |name: &str, service: &str| -> EndpointSlice {
            let labels = json!({ (api::labels::SERVICE_NAME): service });
            serde_json::from_value(json!({
                "metadata": { "name": name, "labels": labels }, "addressType": "IPv4", "endpoints": [],
            }))
            .unwrap()
        };
        let slices = [slice("2", "x"), slice("1", "y"), slice("1", "x"), slice("3", "x")];
        let names = |row: &Vec<&EndpointSlice>| {
            row.iter().map(|slice| slice.name_any()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(rows(&slices).iter().map(names).collect::<Vec<_>>(), ["2 1 3", "1"]);
        assert!(rows(&[]).is_empty());
    }
}
