//! The status for people.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use crate::{
    hub::UnreadKeys,
    identity::{IdentityState, IdentityView},
    node_metric::NodeMetricView,
    offline::documents::KeptOpenApi,
    tunnel_roles::TunnelView,
};

use super::configuration;
use super::view::{
    HubView, IdleFilters, LinkView, ServerConnection, ServerView, State, StoreView, SubscriptionView,
};

/// Prints the hub as a few lines and a table.
pub(super) fn print(view: &HubView, out: &mut dyn Write) -> io::Result<()> {
    let HubView {
        version,
        link,
        identity,
        unread_keys,
        configuration,
        corrected_pods,
        idle_filters,
        tunnel,
        node_metric,
        crowded_out,
        subscriptions,
        store,
    } = view;
    let LinkView {
        up,
        server,
        for_seconds,
        reason,
        ended_before_this_start,
        sent_bytes,
        received_bytes,
        servers,
    } = link;
    let since = duration(*for_seconds);
    writeln!(out, "edge-hub {version}")?;
    match (up, server) {
        (true, Some(server)) => writeln!(out, "link   up for {since}: {server}")?,
        _ => writeln!(out, "link   DOWN for {since}: {}", reason.as_deref().unwrap_or("no reason is known"))?,
    }
    if let Some(at) = ended_before_this_start {
        writeln!(out, "       the last one ended at {at}, before this start")?;
    }
    writeln!(out, "       {} sent, {} received", bytes(*sent_bytes), bytes(*received_bytes))?;
    print_servers(servers, *up, out)?;
    print_identity(identity, out)?;
    unread_keys.as_ref().map_or(Ok(()), |view| print_unread_keys(view, out))?;
    configuration.as_ref().map_or(Ok(()), |view| configuration::print(view, out))?;
    if *corrected_pods > 0 {
        writeln!(
            out,
            "pods   {corrected_pods} of this node are shown where the kubelet says: the API server does not know it yet"
        )?;
    }
    if let Some(IdleFilters { names, reason }) = idle_filters {
        writeln!(out, "filter {} do nothing: {reason}", names.join(", "))?;
    }
    if *crowded_out > 0 {
        writeln!(out, "room   {crowded_out} requests found none: users have as many streams as they may")?;
    }
    if let Some(tunnel) = tunnel {
        print_tunnel(tunnel, out)?;
    }
    node_metric.as_ref().map_or(Ok(()), |view| print_node_metric(view, out))?;
    print_store(store, out)?;
    let head = ["RESOURCE", "SCOPE", "OWNER", "OBJECTS", "VERSION", "AGE", "WATCHERS", "STATE", "SAVED"]
        .map(str::to_owned);
    let rows: Vec<[String; 9]> = std::iter::once(head).chain(subscriptions.iter().map(row)).collect();
    columns(&rows, out)?;
    for refused in subscriptions.iter().filter(|one| one.state == State::Refused) {
        let reason = refused.reason.as_deref().unwrap_or_default();
        writeln!(out, "\n{} is refused: {reason}", refused.resource)?;
    }
    Ok(())
}

fn print_store(view: &StoreView, out: &mut dyn Write) -> io::Result<()> {
    let StoreView { given_bytes, written_bytes, length_bytes, openapi, unreadable, unstored } = view;
    writeln!(
        out,
        "store  {} of objects in files; {} given, {} written since the start",
        bytes(*length_bytes),
        bytes(*given_bytes),
        bytes(*written_bytes)
    )?;
    if let Some(KeptOpenApi { documents, bytes: kept }) = openapi {
        writeln!(out, "       {documents} documents of OpenAPI, {}", bytes(*kept))?;
    }
    for problem in unreadable {
        writeln!(out, "       UNREADABLE {problem}")?;
    }
    for problem in unstored {
        writeln!(out, "       UNSTORED {problem}")?;
    }
    writeln!(out)
}

/// Each API server with its state; of one alone the link says all. `up`: whether one of them is the link.
fn print_servers(servers: &[ServerView], up: bool, out: &mut dyn Write) -> io::Result<()> {
    if servers.len() < 2 {
        return Ok(());
    }
    let rows: Vec<[String; 2]> = servers
        .iter()
        .map(|view| {
            let ServerView { server, state, for_seconds, reason } = view;
            let since = duration(*for_seconds);
            let state = match state {
                ServerConnection::Connected => format!("connected for {since}"),
                ServerConnection::Failed => {
                    format!("FAILED {since} ago: {}", reason.as_deref().unwrap_or("no reason is known"))
                }
                ServerConnection::Untried if up => "not tried: another answered".to_owned(),
                ServerConnection::Untried => "not tried yet".to_owned(),
            };
            [format!("       {server}"), state]
        })
        .collect();
    columns(&rows, out)
}

fn print_identity(view: &IdentityView, out: &mut dyn Write) -> io::Result<()> {
    let IdentityView { state, user, not_after, renew_at, problem } = view;
    let state = match state {
        IdentityState::Missing => "NONE yet",
        IdentityState::Given => "certificate of the kubelet, or given",
        IdentityState::Own => "certificate of its own",
        IdentityState::Expired => "EXPIRED certificate",
    };
    let end = not_after.as_ref().map_or_else(String::new, |end| format!(", until {end}"));
    let next = renew_at.as_ref().map_or_else(String::new, |next| format!(", renewed from {next}"));
    let user = user.as_ref().map_or_else(String::new, |user| format!(" ({user})"));
    writeln!(out, "ident  {state}{user}{end}{next}")?;
    problem.as_ref().map_or(Ok(()), |problem| writeln!(out, "       {problem}"))
}

fn print_unread_keys(view: &UnreadKeys, out: &mut dyn Write) -> io::Result<()> {
    let UnreadKeys { reason, earlier } = view;
    let without = if *earlier { "are checked with those of before" } else { "cannot be checked" };
    writeln!(out, "tokens {without} while there is no link: the cluster's keys cannot be read: {reason}")
}

fn print_tunnel(view: &TunnelView, out: &mut dyn Write) -> io::Result<()> {
    let TunnelView { role, idle, problems, links } = view;
    let nodes: BTreeSet<&str> = links.iter().map(|link| link.peer.as_str()).collect();
    writeln!(out, "tunnel {role}, {} links with {} nodes", links.len(), nodes.len())?;
    if let Some(why) = idle {
        writeln!(out, "       {why}")?;
    }
    for problem in problems {
        writeln!(out, "       {problem}")?;
    }
    if links.is_empty() {
        return Ok(());
    }
    let head =
        ["       PEER", "DOMAIN", "DIRECTION", "CLASS", "RTT", "STREAMS", "UP", "STATE"].map(str::to_owned);
    let rows: Vec<[String; 8]> = std::iter::once(head)
        .chain(links.iter().map(|link| {
            [
                format!("       {}", link.peer),
                link.domain.clone(),
                link.direction.clone(),
                link.class.clone(),
                link.round_trip_micros.map_or_else(|| "-".to_owned(), milliseconds),
                link.streams.to_string(),
                duration(link.up_seconds),
                if link.draining { "draining" } else { "up" }.to_owned(),
            ]
        }))
        .collect();
    columns(&rows, out)
}

/// `12.3ms`.
fn milliseconds(micros: u64) -> String {
    format!("{}.{}ms", micros / 1000, micros % 1000 / 100)
}

fn print_node_metric(view: &NodeMetricView, out: &mut dyn Write) -> io::Result<()> {
    let NodeMetricView { age_seconds, leader, epoch, seq, interval_ms, refused, problem } = view;
    match (age_seconds, leader, epoch, seq) {
        (Some(age), Some(leader), Some(epoch), Some(seq)) => writeln!(
            out,
            "metric report {seq} taken {} ago by {leader} (epoch {epoch}), one every {interval_ms} ms; {refused} refused",
            duration(*age)
        )?,
        _ => writeln!(out, "metric no report was taken YET; {refused} refused")?,
    }
    problem.as_ref().map_or(Ok(()), |problem| writeln!(out, "       {problem}"))
}

fn row(view: &SubscriptionView) -> [String; 9] {
    let SubscriptionView {
        resource,
        scope,
        owner,
        objects,
        version,
        age_seconds,
        watchers,
        state,
        reason: _,
        saved_bytes,
    } = view;
    let unknown = || "-".to_owned();
    [
        resource.clone(),
        if scope.is_empty() { unknown() } else { scope.clone() },
        owner.clone(),
        objects.to_string(),
        version.map_or_else(unknown, |version| version.to_string()),
        age_seconds.map_or_else(unknown, duration),
        watchers.to_string(),
        format!("{state:?}").to_lowercase(),
        bytes(*saved_bytes),
    ]
}

/// Prints rows with their columns one below the other.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], out: &mut dyn Write) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// `12s`, `3m20s`, `5h10m`, `3d4h`: two units, as kubectl prints ages.
fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m{}s", seconds / 60, seconds % 60),
        7200..172_800 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// `512 B`, `1.5 MB`: decimal units.
fn bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1000 => return format!("{bytes} B"),
        1000..1_000_000 => (1000, "kB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{status::configuration::ConfigurationView, tunnel_roles::TunnelLinkView};

    #[test]
    fn figures_are_short() {
        for (seconds, text) in
            [(0, "0s"), (119, "119s"), (200, "3m20s"), (18_600, "5h10m"), (273_600, "3d4h")]
        {
            assert_eq!(duration(seconds), text);
        }
        for (count, text) in
            [(999, "999 B"), (1500, "1.5 kB"), (2_345_678, "2.3 MB"), (7_000_000_000, "7.0 GB")]
        {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn a_server_that_nobody_tried_is_told_with_the_reason_if_there_is_one() {
        for (up, expected) in [(true, "not tried: another answered"), (false, "not tried yet")] {
            let mut out = Vec::new();
            print_servers(&servers(), up, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert_eq!(
                text.lines().next_back(),
                Some(&*format!("       https://api.example:6443  {expected}"))
            );
        }
    }

    /// One of each state.
    fn servers() -> Vec<ServerView> {
        let failed = Some("no connection within 4s".to_owned());
        [
            ("https://10.0.0.1:6443", ServerConnection::Failed, 3, failed),
            ("https://10.0.0.2:6443", ServerConnection::Connected, 61, None),
            ("https://api.example:6443", ServerConnection::Untried, 61, None),
        ]
        .map(|(server, state, for_seconds, reason)| ServerView {
            server: server.to_owned(),
            state,
            for_seconds,
            reason,
        })
        .into()
    }

    /// All that there may be.
    fn view() -> HubView {
        let subscription = |resource: &str, state, reason: Option<&str>| SubscriptionView {
            resource: resource.to_owned(),
            scope: String::new(),
            owner: "node".to_owned(),
            objects: 12,
            version: Some(345),
            age_seconds: Some(4),
            watchers: 2,
            state,
            reason: reason.map(str::to_owned),
            saved_bytes: 1_200_000,
        };
        let link = |direction: &str| TunnelLinkView {
            peer: "cloud-1".to_owned(),
            domain: "cloud".to_owned(),
            direction: direction.to_owned(),
            class: "bulk".to_owned(),
            round_trip_micros: (direction == "forward").then_some(12_345),
            streams: 3,
            up_seconds: 200,
            draining: direction == "reverse",
            received_bytes: 0,
            sent_bytes: 0,
        };
        HubView {
            version: "0.1.0".to_owned(),
            link: LinkView {
                up: false,
                server: None,
                for_seconds: 61,
                reason: Some("no connection within 4s".to_owned()),
                ended_before_this_start: Some("2026-11-29T06:30:00Z".to_owned()),
                sent_bytes: 10,
                received_bytes: 2000,
                servers: servers(),
            },
            identity: IdentityView {
                state: IdentityState::Given,
                user: Some("system:node:shop-1".to_owned()),
                not_after: Some("2027-01-01T00:00:00Z".to_owned()),
                renew_at: Some("2026-10-01T00:00:00Z".to_owned()),
                problem: Some("denied".to_owned()),
            },
            unread_keys: Some(UnreadKeys {
                reason: "the API server answered 403 Forbidden".to_owned(),
                earlier: false,
            }),
            configuration: Some(ConfigurationView {
                freshness: "any".to_owned(),
                ..ConfigurationView::default()
            }),
            corrected_pods: 2,
            crowded_out: 3,
            idle_filters: Some(IdleFilters {
                names: vec!["masterservice".to_owned(), "serviceenvupdater".to_owned()],
                reason: "the HTTPS proxy is off".to_owned(),
            }),
            tunnel: Some(TunnelView {
                role: "agent".to_owned(),
                idle: None,
                problems: vec!["Gateways: forbidden".to_owned()],
                links: ["reverse", "forward"].map(link).to_vec(),
            }),
            node_metric: Some(NodeMetricView {
                age_seconds: Some(7),
                leader: Some("10.0.0.2:9443".to_owned()),
                epoch: Some(3),
                seq: Some(41),
                interval_ms: 10_000,
                refused: 1,
                problem: None,
            }),
            subscriptions: vec![
                subscription("services", State::Interrupted, None),
                subscription("nodepools.apps.openyurt.io", State::Refused, Some("no such resource")),
            ],
            store: StoreView {
                given_bytes: 1,
                written_bytes: 2,
                length_bytes: 3,
                openapi: Some(KeptOpenApi { documents: 14, bytes: 2_100_000 }),
                unreadable: vec!["node /api/v1/services: damaged".to_owned()],
                unstored: vec!["node /api/v1/pods: full".to_owned()],
            },
        }
    }

    #[test]
    fn a_tunnel_without_links_says_why() {
        let why = "spare: shop-1 is its pool's endpoint".to_owned();
        let view = TunnelView { role: "none".to_owned(), idle: Some(why), problems: vec![], links: vec![] };
        let mut out = Vec::new();
        print_tunnel(&view, &mut out).unwrap();
        let expected = "tunnel none, 0 links with 0 nodes\n       spare: shop-1 is its pool's endpoint\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_table_is_printed() {
        let view = view();
        let mut out = Vec::new();
        print(&view, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "edge-hub 0.1.0\nlink   DOWN for 61s: no connection within 4s\n       the last one ended at 2026-11-29T06:30:00Z, before this start\n       \
            10 B sent, 2.0 kB received\n       \
            https://10.0.0.1:6443     FAILED 3s ago: no connection within 4s\n       \
            https://10.0.0.2:6443     connected for 61s\n       \
            https://api.example:6443  not tried yet\n\
            ident  certificate of the kubelet, or given (system:node:shop-1), until 2027-01-01T00:00:00Z, renewed from 2026-10-01T00:00:00Z\n       denied\n\
            tokens cannot be checked while there is no link: the cluster's keys cannot be read: the API server answered 403 Forbidden\n\
            config shared: nothing\n       passed through: nothing\n       freshness: any\n\
            pods   2 of this node are shown where the kubelet says: the API server does not know it yet\n\
            filter masterservice, serviceenvupdater do nothing: the HTTPS proxy is off\n\
            room   3 requests found none: users have as many streams as they may\n\
            tunnel agent, 2 links with 1 nodes\n       Gateways: forbidden\n       \
            PEER     DOMAIN  DIRECTION  CLASS  RTT     STREAMS  UP     STATE\n       \
            cloud-1  cloud   reverse    bulk   -       3        3m20s  draining\n       \
            cloud-1  cloud   forward    bulk   12.3ms  3        3m20s  up\n\
            metric report 41 taken 7s ago by 10.0.0.2:9443 (epoch 3), one every 10000 ms; 1 refused\n\
            store  3 B of objects in files; 1 B given, 2 B written since the start\n       \
            14 documents of OpenAPI, 2.1 MB\n       \
            UNREADABLE node /api/v1/services: damaged\n       \
            UNSTORED node /api/v1/pods: full\n\n\
            RESOURCE                    SCOPE  OWNER  OBJECTS  VERSION  AGE  WATCHERS  STATE        SAVED\n\
            services                    -      node   12       345      4s   2         interrupted  1.2 MB\n\
            nodepools.apps.openyurt.io  -      node   12       345      4s   2         refused      1.2 MB\n\n\
            nodepools.apps.openyurt.io is refused: no such resource\n";
        assert_eq!(text, expected);
        let json = serde_json::to_string(&view).unwrap();
        assert_eq!(serde_json::from_str::<HubView>(&json).unwrap(), view);
    }
}
