//! What the hub counts of its answers.

use anyhow::Result;
use testkit::client::connection::Endpoint;

/// Where the hub counts.
const METRICS: &str = "127.0.0.1:10267";

/// What the hub has counted: its metrics as text.
pub(super) struct Answered(String);

impl Answered {
    pub(super) async fn read() -> Result<Self> {
        let mut answer = Endpoint::plain(METRICS.parse()?).get("/metrics", "text/plain").await?;
        Ok(Self(String::from_utf8(answer.bytes().await?.to_vec())?))
    }

    /// How many requests of a verb it answered from what it holds, and how many there were.
    fn count(&self, verb: &str) -> [u64; 2] {
        let mut counts = [0, 0];
        let (verb, held) = (format!("verb=\"{verb}\""), "outcome=\"Held\"");
        for line in self.0.lines().filter(|line| line.contains("hub_requests_total{") && line.contains(&verb))
        {
            let value = line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
            counts[0] += value * u64::from(line.contains(held));
            counts[1] += value;
        }
        counts
    }

    pub(super) fn since(&self, before: &Self, verb: &str) -> [u64; 2] {
        let (now, then) = (self.count(verb), before.count(verb));
        [now[0] - then[0], now[1] - then[1]]
    }
}
