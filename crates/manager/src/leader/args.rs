//! The flags of leader election, named as Kubernetes' own components name them.

use std::time::Duration;

use jiff::SignedDuration;

use super::timing::{Timing, TimingError};

/// Flags of leader election.
#[derive(Clone, Debug, clap::Args)]
pub struct LeaderArgs {
    /// How long a standby leaves the lease of a silent leader alone, in whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,

    /// How long a leader goes on without a successful renewal before it gives up and exits; below nine tenths of the
    /// lease duration.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,

    /// The time between two renewals, and between two looks of a standby; at most half the renew deadline.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,

    /// The name of the Lease that the replicas share.
    #[arg(long, value_name = "NAME", default_value = "isthmus-manager")]
    pub leader_elect_resource_name: String,
}

impl LeaderArgs {
    /// The durations, checked against each other.
    pub fn timing(&self) -> Result<Timing, TimingError> {
        Timing::new(
            self.leader_elect_lease_duration,
            self.leader_elect_renew_deadline,
            self.leader_elect_retry_period,
        )
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    duration.try_into().map_err(|_| "a duration cannot be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        leader: LeaderArgs,
    }

    #[test]
    fn no_flags_mean_the_defaults_of_kubernetes() {
        let cli = Cli::try_parse_from(["test"]).unwrap();
        assert_eq!(cli.leader.timing(), Ok(Timing::default()));
    }

    #[test]
    fn durations_are_read_as_kubernetes_writes_them() {
        for (text, millis) in [("15s", 15_000), ("1m30s", 90_000), ("500ms", 500), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "15", "-1s", "soon"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn flags_that_do_not_fit_together_are_refused() {
        let cli = Cli::try_parse_from(["test", "--leader-elect-renew-deadline", "20s"]).unwrap();
        let error = cli.leader.timing().unwrap_err().to_string();
        assert!(error.contains("renew deadline 20s"), "{error}");
    }
}
