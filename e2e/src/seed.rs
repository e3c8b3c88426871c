//! What chance decides in these tests, it decides by a seed.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// The seed of this run: of `ISTHMUS_SEED`; with `--long` a new one; or the same as ever, for a difference that chance finds is for whoever
/// looks for one, not for whoever changed something else. It is printed, so that a failure can be had again.
#[allow(clippy::print_stdout, reason = "whoever reads a failure needs the seed")]
pub fn seed() -> Result<u64> {
    let seed = match std::env::var("ISTHMUS_SEED") {
        Ok(text) => text.parse().context("ISTHMUS_SEED is no number")?,
        Err(_) if crate::ground::long() => {
            SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_micros().into()
        }
        Err(_) => 1,
    };
    println!("by chance of ISTHMUS_SEED={seed}");
    Ok(seed)
}
