//! Stock clients over many changes of leader: nothing is deleted, no list is empty or lacks a node, no version goes back.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::ground::Ground;
use super::observers::Observers;

/// How often the leader is ended, and with `--long`.
const TAKE_OVERS: usize = 3;
const LONG_TAKE_OVERS: usize = 100;

#[tokio::test]
// How long it took is what the run is read for.
#[allow(clippy::print_stdout)]
async fn stock_clients_stay_right_over_take_overs() -> Result<()> {
    let ground = Ground::new().await?;
    let observers = Observers::start(&ground).await?;
    let count = if e2e::ground::long() { LONG_TAKE_OVERS } else { TAKE_OVERS };
    let began = Instant::now();
    for number in 1..=count {
        let before = ground.holder().await?;
        // Asked to end, and killed, in turn.
        ground.end_leader(number.is_multiple_of(2).then_some(0)).await?;
        ground.recovered(&before).await?;
        observers.check(&format!("after {number} take-overs"))?;
    }
    observers.up_to_date(&ground).await?;
    observers.check("at the end")?;
    let unavailable = observers.unavailable();
    println!("{count} take-overs in {:.0} s; {}", began.elapsed().as_secs_f64(), observers.summary());
    ensure!(unavailable.is_empty(), "the APIService was not available: {unavailable:?}");
    Ok(())
}
