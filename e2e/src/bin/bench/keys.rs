//! The keys of each benchmark's JSON, which its users go by. They stand in the sources as they are written: to run a benchmark takes
//! minutes and a cluster.

use crate::report::{Figure, Report};

/// A benchmark's source, and the keys that were promised of it.
const PROMISED: [(&str, &str); 5] = [
    (include_str!("nodepool.rs"), "converge_s cpu_s resident_mb api_writes"),
    (include_str!("webhook.rs"), "p50_ms p99_ms base_p50_ms base_p99_ms per_s"),
    (
        concat!(
            include_str!("hub.rs"),
            include_str!("hub/told.rs"),
            include_str!("hub/disk.rs"),
            include_str!("hub/kit.rs")
        ),
        "resident_mb idle_link_bytes_per_min idle_disk_bytes_per_min offline_restart_ms offline_restart_objects link_ratio_6_clients \
         watchers_cut cpu_us_per_event_watcher p99_delivery_ms kb_per_watcher lists20_added_mb list16mb_ms disk_bytes_per_changed_byte \
         reconnect_bytes_per_changed_byte binary_mb idle_window_s peak_mb resident_end_mb disk_bytes_per_changed_byte_10_streams \
         link_ratio_6_clients_at_rest watchers_cut_by_events tls_watchers_cut_by_events watchers_cut_without_link fast_watchers_cut",
    ),
    (
        include_str!("node_metric.rs"),
        "cpu_cores resident_mb p99_direct_ms p99_aggregated_ms etcd_writes_per_s takeover_term_s takeover_kill_s takeover_frozen_s \
         crd_reports_per_s crd_cpu_cores",
    ),
    (
        include_str!("../../../../hack/bench-tunnel"),
        "stream_mb_s plain_mb_s cpu_s_per_gb idle_mb streams1000_mb connect_p50_ms connect_p50_ms_50_stalled connect_p99_ms \
         connect_p99_ms_50_stalled scrape_at_100ms_ms loss_ratio_to_plain nat_rebind_s",
    ),
];

#[test]
fn each_benchmark_writes_the_keys_that_were_promised() {
    for (source, keys) in PROMISED {
        for key in keys.split(' ') {
            // A string of its own in Rust; in hack/bench-tunnel the first word of a row.
            let written = source.contains(&format!("\"{key}\"")) || source.contains(&format!("\n  \"{key} "));
            assert!(written, "no figure {key}");
        }
    }
}

#[test]
fn the_figures_are_one_flat_object() {
    let figures =
        vec![Figure::new("p50_ms", 1.5).against(1.0, "theirs").target(2.0), Figure::new("per_s", 400.0)];
    let report =
        Report { title: "title".to_owned(), figures, notes: vec!["note".to_owned()], missing: Vec::new() };
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json, serde_json::json!({ "p50_ms": 1.5, "per_s": 400.0 }));
}
