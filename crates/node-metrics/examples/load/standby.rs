//! The process that follows.

use std::io::BufRead;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::AuthInfo;
use node_metrics::follow;
use node_metrics::storage::NodeMetrics;
use node_metrics::store::{Settings, Store};
use tls::certificate::bundle;

use crate::{Files, NAME, nodes::println_to_people};

/// How long to wait before a leader that broke off is asked again, as the manager does.
const RETRY: Duration = Duration::from_millis(500);

/// Follows from the first line on that it reads, and answers it when its copy is whole.
pub(crate) fn run(files: &Files) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut config = kube::Config::new(format!("https://{}", files.read("api")?).parse()?);
    let authorities = bundle(&files.read("ca.crt")?)?;
    config.root_cert = Some(authorities.iter().map(|authority| authority.der().to_vec()).collect());
    config.tls_server_name = Some(NAME.to_owned());
    config.connect_timeout = Some(Duration::from_secs(1));
    config.read_timeout = None;
    config.default_retry = false;
    config.auth_info = AuthInfo {
        client_certificate_data: Some(STANDARD.encode(files.read("tls.crt")?)),
        client_key_data: Some(STANDARD.encode(files.read("tls.key")?).into()),
        ..AuthInfo::default()
    };
    let mut lines = std::io::stdin().lock().lines();
    lines.next().context("nobody wants to be followed")??;
    runtime.block_on(async {
        let client = kube::Client::try_from(config)?;
        let store = Store::new(Settings::default());
        let copy = NodeMetrics::new(store, "slo.koordinator.sh/v1beta1", crate::leader::clock(), || false);
        let mut told = false;
        // A leader that has all processors to itself may not answer in time: that ends no measurement.
        loop {
            let whole = || {
                if !std::mem::replace(&mut told, true) {
                    println!("whole");
                }
            };
            let ended = follow::follow(&client, &copy, whole).await;
            println_to_people(&format!("the standby's stream ended and begins anew: {ended:?}"));
            tokio::time::sleep(RETRY).await;
        }
    })
}
