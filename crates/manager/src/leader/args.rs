//! The flags of leader election, named as Kubernetes' own components name them.

use std::time::Duration;

use super::timing::{Timing, TimingError};
use crate::duration;

/// Flags of leader election.
#[derive(Clone, Debug, clap::Args)]
pub struct LeaderArgs {
    /// How long a standby leaves the lease of a silent leader alone; at least a second.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse)]
    pub leader_elect_lease_duration: Duration,

    /// How long a leader goes on without a successful renewal before it gives up and exits; below nine tenths of the
    /// lease duration.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub leader_elect_renew_deadline: Duration,

    /// The time between two renewals, and between two looks of a standby; at most half the renew deadline.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub leader_elect_retry_period: Duration,

    /// The name of the Lease that the replicas share.
    #[arg(long, value_name = "NAME", default_value = "isthmus-manager")]
    pub leader_elect_resource_name: String,

    /// The Deployment of the replicas, in their namespace: the Lease is deleted with it. Without it the Lease stays.
    #[arg(long, value_name = "NAME")]
    pub leader_elect_deployment: Option<String>,
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
    fn flags_that_do_not_fit_together_are_refused() {
        let cli = Cli::try_parse_from(["test", "--leader-elect-renew-deadline", "20s"]).unwrap();
        let error = cli.leader.timing().unwrap_err().to_string();
        assert!(error.contains("renew deadline 20s"), "{error}");
    }
}
