//! Stock clients over many changes of leader: nothing is deleted, no list is empty or lacks a node, no version goes back; and the next leader has a copy
//! of the one before, so that reads and reports flow again within seconds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::SYSTEM;
use e2e::hub::token;

use super::discovery;
use super::figures::Figures;
use super::flow::{self, Flow};
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
    let (figures, reader) = (Figures::new().await?, token(SYSTEM, "e2e-reader", "view").await?);
    let count = if e2e::ground::long() { LONG_TAKE_OVERS } else { TAKE_OVERS };
    let began = Instant::now();
    // Of leaders that were asked to end, and of those that were killed.
    let mut gaps = [Vec::new(), Vec::new()];
    for number in 1..=count {
        let before = ground.holder().await?;
        let cold = figures.standbys_are_warm(&ground).await?;
        // Asked to end, and killed, in turn.
        let kill = number.is_multiple_of(2);
        let leader = ground.leader().await?;
        let flow = Flow::new(&ground, &leader, &reader).await?;
        gaps[usize::from(kill)].push(flow.over(ground.end(&leader, kill)).await?);
        ground.recovered(&before).await?;
        figures.took_over_warm(&ground, &cold).await.with_context(|| format!("take-over {number}"))?;
        observers.check(&format!("after {number} take-overs"))?;
        observers
            .was_discovered(if kill { discovery::AFTER_A_KILL } else { Duration::ZERO })
            .await
            .with_context(|| format!("take-over {number}"))?;
    }
    observers.up_to_date(&ground).await?;
    observers.check("at the end")?;
    let unavailable = observers.unavailable();
    println!("{count} take-overs in {:.0} s; {}", began.elapsed().as_secs_f64(), observers.summary());
    println!("asked to end: {:?}\nkilled: {:?}", gaps[0], gaps[1]);
    flow::are_within(&gaps[0], flow::TERM).context("asked to end")?;
    flow::are_within(&gaps[1], flow::KILL).context("killed")?;
    ensure!(unavailable.is_empty(), "the APIService was not available: {unavailable:?}");
    Ok(())
}
