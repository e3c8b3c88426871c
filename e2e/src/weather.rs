//! Bad weather on a site's link: `hack/tools/wan` carries its frames, and what becomes of the n-th is decided by a seed.

use std::time::Duration;

use anyhow::Result;

use crate::cleanup::Cleanup;
use crate::{hack_cluster, seed};

/// The weather over a site until this is dropped, when its link is as good as a cable again.
#[derive(Debug)]
pub struct Weather {
    site: &'static str,
    seed: String,
    _clear: Cleanup,
}

impl Weather {
    /// A link with a fixed delay each way and nothing else.
    pub async fn over(site: &'static str, delay: Duration) -> Result<Self> {
        let weather = Self {
            site,
            seed: format!("seed={}", seed::seed()?),
            _clear: Cleanup::hack_cluster(&["link", site, "clear"]),
        };
        weather.turns(&[&delay_of(delay)]).await?;
        Ok(weather)
    }

    /// Other weather from now on: `KEY=NUMBER`s of `hack/cluster link SITE weather`. The dice begin anew.
    pub async fn turns(&self, settings: &[&str]) -> Result<()> {
        let words = [&["link", self.site, "weather", &self.seed], settings].concat();
        hack_cluster(&words).await?.ok().map(drop)
    }
}

/// A delay as a setting.
pub fn delay_of(delay: Duration) -> String {
    format!("delay_ms={}", delay.as_millis())
}
