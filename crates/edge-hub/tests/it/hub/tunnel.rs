//! The tunnel between two hubs of one cluster, a gateway and an agent, with a kubelet at each end that only TLS clients of its own
//! authority reach: through every way in and out, with the API server and without it.

mod http_proxy;
mod site;
mod soak;

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls_pki_types::ServerName;
use serde_json::Value;
use testkit::api_server::{RequestRecord, access::User};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    signal::unix::{SignalKind, signal},
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;

use self::http_proxy::HttpProxy;
use self::site::{Tunnelled, client_config, read_head};
use super::site::SOON;

/// Asks a proxy for a stream; gives the status.
async fn connect(client: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), target: &str) -> String {
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let head = timeout(SOON, read_head(client)).await.unwrap();
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_ways_lead_to_the_kubelet_by_its_name() {
    let site = Tunnelled::new().await;
    let (mut cloud, mut edge) = (site.cloud().await, site.edge().await);
    site.linked(&cloud).await;
    let kubelet = format!("a1:{}", site.kubelet);
    // By the server's name, as whoever dials the internal Service.
    let stream = TcpStream::connect((site.address, site.tls_way)).await.unwrap();
    assert_eq!(site.ask_kubelet(stream).await, "you are prober");
    // By Host.
    let mut stream = TcpStream::connect((site.address, site.http_way)).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: a1:{}\r\n\r\n", site.exporter);
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(timeout(SOON, read_head(&mut stream)).await.unwrap().starts_with("HTTP/1.1 200 "));
    // As an API server on the gateway's node.
    let mut stream = UnixStream::connect(site.socket()).await.unwrap();
    assert_eq!(connect(&mut stream, &kubelet).await, "200");
    assert_eq!(site.ask_kubelet(stream).await, "you are prober");
    // As a client with a certificate.
    let mut stream = site.client("kube-apiserver").await.unwrap();
    assert_eq!(connect(&mut stream, &kubelet).await, "200");
    assert_eq!(site.ask_kubelet(stream).await, "you are prober");
    // Out of the edge, by a program of the node; a node that is in its own domain, and one in the cloud whose port is listed.
    for node in ["a1", "c1"] {
        let mut stream = TcpStream::connect(("127.0.0.1", site.loopback)).await.unwrap();
        assert_eq!(connect(&mut stream, &format!("{node}:{}", site.kubelet)).await, "200", "{node}");
        assert_eq!(site.ask_kubelet(stream).await, "you are prober");
    }
    // What is on no list is told of and not reached. Nor are other ports of the cloud's nodes, though Gateways list them for the cloud.
    for (target, status) in [
        ("a1:22".to_owned(), "403"),
        ("169.254.169.254:80".to_owned(), "403"),
        (format!("c1:{}", site.exporter), "403"),
        (format!("nobody:{}", site.kubelet), "404"),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", site.loopback)).await.unwrap();
        assert_eq!(connect(&mut stream, &target).await, status, "{target}");
    }
    let status = cloud.status().await;
    assert_eq!((&status["role"], &status["problems"]), (&"gateway".into(), &Value::Array(vec![])));
    let links = status["links"].as_array().unwrap();
    assert_eq!(links.len(), 4, "{links:?}");
    assert!(links.iter().all(|link| link["peer"] == "a1" && link["domain"] == "pool/a"), "{links:?}");
    let links = edge.status().await["links"].clone();
    let links = links.as_array().unwrap();
    assert!(links.iter().all(|link| link["peer"] == "c1" && link["domain"] == "cloud"), "{links:?}");
    let metrics = edge.metrics().await;
    for line in [
        "isthmus_hub_tunnel_role{role=\"agent\"} 1",
        "isthmus_hub_tunnel_links{direction=\"reverse\"} 2",
        "isthmus_hub_tasks ",
        "isthmus_hub_tunnel_streams_total{outcome=\"not_allowed\"} 3",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    // The cluster is told of the link, and at the end that the gateway goes.
    site.until("the report", || site.report().is_some_and(|(_, links)| links == ["a1"])).await;
    assert!(site.report().unwrap().0.starts_with("c1_"));
    edge.end().await;
    cloud.end().await;
    assert_eq!(site.report().unwrap().0, "");
}

/// Ways follow from what is watched: the API server is asked nothing for a stream, wherever it goes.
#[tokio::test(flavor = "multi_thread")]
async fn streams_ask_nothing_of_the_api_server() {
    let site = Tunnelled::new().await;
    let (cloud, _edge) = (site.cloud().await, site.edge().await);
    site.linked(&cloud).await;
    // Last of what each of the two asks for by itself once it has a link.
    let ready = || site.server().log().requests().iter().filter(|asked| asked.path == "/readyz").count();
    site.until("both have asked for what clients ask first", || ready() == 2).await;
    site.server().log().clear();
    for number in 0..50 {
        let targets = [
            (format!("a1:{}", site.kubelet), "200"),
            (format!("a2:{}", site.kubelet), "200"),
            (format!("nobody-{number}:{}", site.kubelet), "404"),
            ("a1:22".to_owned(), "403"),
        ];
        for (target, status) in targets {
            let mut stream = UnixStream::connect(site.socket()).await.unwrap();
            assert_eq!(connect(&mut stream, &target).await, status, "{target}");
            let mut stream = TcpStream::connect(("127.0.0.1", site.loopback)).await.unwrap();
            assert_eq!(connect(&mut stream, &target).await, status, "{target}");
        }
    }
    // The gateway's own report goes on by the clock, as does what each hub keeps of the API's discovery; a watch may end meanwhile, and
    // with each one, and after a silence, the version is asked for.
    let requests = site.server().log().requests();
    let by_the_clock = |path: &str| {
        let documents = ["/api", "/apis", "/version", "/openapi/v3", "/openapi/v2"];
        path.contains("isthmus-gateway-") || documents.contains(&path)
    };
    let asked = requests.iter().filter(|asked| !by_the_clock(&asked.path));
    let is_version = |asked: &RequestRecord| {
        asked.accept.contains("as=PartialObjectMetadataList") && asked.query.ends_with("limit=1")
    };
    let (watches, asked): (Vec<_>, Vec<_>) = asked.partition(|asked| asked.watch);
    let (versions, others): (Vec<_>, Vec<_>) = asked.into_iter().partition(|asked| is_version(asked));
    assert!(others.is_empty(), "400 streams asked for nodes, pods or anything else: {others:?}");
    assert!(watches.len() < 10, "{watches:?}");
    assert!(versions.len() < 50, "{versions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_known_gets_nowhere() {
    let site = Tunnelled::new().await;
    let cloud = site.cloud().await;
    site.until("the gateway listens", || site.report().is_some()).await;
    // Clients: without a certificate, of another authority, of another name.
    let anonymous = client_config(site.authority(), None);
    assert!(site.is_refused(anonymous).await, "no certificate");
    let stranger = site.kubelet_authority.client(&User::new("kube-apiserver", &[])).unwrap();
    assert!(site.is_refused(client_config(site.authority(), Some(stranger))).await, "of another authority");
    let mut stream = site.client("somebody").await.unwrap();
    assert_eq!(connect(&mut stream, "c1:10250").await, "403");
    // Nodes: one that stands for nothing, a user that is no node, and a node of another authority. None gets a link.
    let gateway = (site.authority(), &site.kubelet_authority);
    for (authority, name, group) in [
        (gateway.0, "system:node:a2", "system:nodes"),
        (gateway.0, "system:node:x", "system:nodes"),
        (gateway.0, "system:node:a1", "people"),
        (gateway.1, "system:node:a1", "system:nodes"),
    ] {
        let identity = authority.client(&User::new(name, &[group])).unwrap();
        let mut config = client_config(site.authority(), Some(identity));
        config.alpn_protocols = vec![b"isthmus-reverse/1".to_vec()];
        let stream = TcpStream::connect(("127.0.0.1", site.gateway)).await.unwrap();
        let server = ServerName::try_from(api::names::GATEWAY_SERVER_NAME).unwrap();
        let ended = async {
            let Ok(mut stream) = TlsConnector::from(Arc::new(config)).connect(server, stream).await else {
                return;
            };
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert_eq!(answer, b"", "{name}: not even a preface");
        };
        timeout(SOON, ended).await.unwrap();
    }
    assert_eq!(cloud.status().await["links"], Value::Array(vec![]));
    // The ways in ask nobody who they are: they are at the node's internal address and at no other.
    for way in [site.tls_way, site.http_way] {
        site.until_async("the way in is open", async || {
            TcpStream::connect((site.address, way)).await.is_ok()
        })
        .await;
        for other in ["127.0.0.1", "127.0.0.2"] {
            let refused = TcpStream::connect((other, way)).await.map_err(|error| error.kind());
            assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused), "{other}:{way}");
        }
    }
    // A way in is no proxy, and leads to nodes only.
    let mut stream = TcpStream::connect((site.address, site.http_way)).await.unwrap();
    assert_eq!(connect(&mut stream, &format!("c1:{}", site.kubelet)).await, "400");
    // The way to a pool without a tunnel fails at once.
    let mut stream = UnixStream::connect(site.socket()).await.unwrap();
    assert_eq!(connect(&mut stream, &format!("a1:{}", site.kubelet)).await, "503");
}

#[tokio::test(flavor = "multi_thread")]
async fn known_nodes_are_reached_while_the_api_server_is_away() {
    let site = Tunnelled::new().await;
    let (mut cloud, mut edge) = (site.cloud().await, site.edge().await);
    site.linked(&cloud).await;
    site.server().cut();
    // Also after both hubs were started anew, from what they keep.
    edge.end().await;
    cloud.end().await;
    cloud.start().await;
    edge.start().await;
    site.until_async("a way to the kubelet", async || {
        let Ok(mut stream) = UnixStream::connect(site.socket()).await else { return false };
        connect(&mut stream, &format!("a1:{}", site.kubelet)).await == "200"
            && site.ask_kubelet(stream).await == "you are prober"
    })
    .await;
    // The role follows the cluster once it is back: the pool has another endpoint, and this hub's links go.
    site.server().heal();
    site.elect("a", "a2");
    site.until_async("the links are gone", async || {
        let status = edge.status().await;
        status["role"] == "none" && status["links"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
    site.elect("a", "a1");
    site.until_async("the links are back", async || {
        edge.status().await["links"].as_array().is_some_and(|links| links.len() == 4)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_node_goes_out_by_its_pools_endpoint() {
    let site = Tunnelled::new().await;
    let (cloud, edge, ordinary) = (site.cloud().await, site.edge().await, site.ordinary().await);
    site.linked(&cloud).await;
    let status = ordinary.status().await;
    assert_eq!((&status["role"], &status["links"]), (&"none".into(), &Value::Array(vec![])));
    site.until_async("it says why it has none", async || {
        ordinary.status().await["idle"] == "spare: a1 is its pool's endpoint"
    })
    .await;
    site.until_async("a way to the cloud", async || {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", site.ordinary_loopback)).await else {
            return false;
        };
        connect(&mut stream, &format!("c1:{}", site.kubelet)).await == "200"
            && site.ask_kubelet(stream).await == "you are prober"
    })
    .await;
    // Over the pool's own network, and by nobody else: the cloud's gateway knows the endpoint alone.
    let links = ordinary.status().await["links"].as_array().unwrap().clone();
    assert!(!links.is_empty());
    for link in &links {
        assert_eq!((&link["peer"], &link["domain"]), (&"a1".into(), &"pool/a".into()), "{links:?}");
        assert_eq!(link["direction"], "forward", "{links:?}");
    }
    let links = cloud.status().await["links"].as_array().unwrap().clone();
    assert!(links.iter().all(|link| link["peer"] == "a1"), "{links:?}");
    // What is on no list is refused here, as on any other node.
    let mut stream = TcpStream::connect(("127.0.0.1", site.ordinary_loopback)).await.unwrap();
    assert_eq!(connect(&mut stream, "c1:22").await, "403");
    // The endpoint accepts its pool alone, and is asked only, not reached by these links.
    let of = |node: &'static str, links: Value| {
        links.as_array().unwrap().iter().filter(|link| link["peer"] == node).count()
    };
    let before = of("c1", edge.status().await["links"].clone());
    for (node, protocol) in [("c1", "h2"), ("c1", "isthmus-reverse/1"), ("a2", "isthmus-reverse/1")] {
        drop(site.shown(site.pool, node, protocol).await);
    }
    let links = edge.status().await["links"].clone();
    assert_eq!(of("c1", links.clone()), before, "{links}");
    assert!(
        links.as_array().unwrap().iter().all(|link| link["peer"] != "a2" || link["direction"] == "forward"),
        "{links}"
    );
    assert_eq!(edge.status().await["role"], "agent");
}

/// Each node of it stands for itself, and its programs reach the others at once: over no link, and while there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_pool_without_a_gateway_dials_its_neighbours() {
    let site = Tunnelled::new().await;
    let (cloud, (mut hub, loopback)) = (site.cloud().await, site.of_pool_without_gateway().await);
    site.until_async("its own links", async || {
        hub.status().await["links"].as_array().is_some_and(|links| links.len() == 4)
    })
    .await;
    let asked = async |target: &str| {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", loopback)).await else {
            return ("no proxy".to_owned(), None);
        };
        (connect(&mut stream, target).await, Some(stream))
    };
    let kubelet = format!("p2:{}", site.kubelet);
    // As long as nobody says where it is, the cloud is its way, and not at a port of kubelets.
    assert_eq!(asked(&kubelet).await.0, "403");
    let told = format!("p1/192.0.2.1,p2/{}", site.address);
    site.tell_pool(&told);
    let answers = async || match asked(&kubelet).await {
        (status, Some(stream)) if status == "200" => site.ask_kubelet(stream).await == "you are prober",
        _ => false,
    };
    site.until_async("the neighbour's kubelet", answers).await;
    assert_eq!(asked("p2:22").await.0, "403");
    assert!(cloud.metrics().await.contains("isthmus_hub_tunnel_streams_total{outcome=\"opened\"} 0"));
    // It forwards for nobody: to the cloud the neighbour is a node without a link.
    let mut stream = UnixStream::connect(site.socket()).await.unwrap();
    assert_eq!(connect(&mut stream, &kubelet).await, "503");
    assert_eq!(hub.status().await["role"], "agent");
    site.tell_pool("");
    site.until_async("it is forgotten", async || asked(&kubelet).await.0 == "403").await;
    site.tell_pool(&told);
    site.until_async("it is back", answers).await;
    // From the disk.
    site.server().cut();
    hub.end().await;
    hub.start().await;
    site.until_async("the neighbour, by what was told before", answers).await;
}

/// The hub goes by the pool that it was told, the tunnel by that of the label: what it reads of this one is closed with it, and of that one it is not.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_of_a_pool_ends_when_the_label_names_another() {
    let site = Tunnelled::new().await;
    let told = [("--nodepool-name", "shop".to_owned())];
    let (_hub, _) = site.of_pool_without_gateway_with(&told).await;
    let open = |pool: &str| {
        let of = |end: &str, name: &str| {
            let log = site.server().log();
            log.totals(|record| record.path.ends_with(end) && record.query.contains(name)).open_watches
        };
        (of("/configmaps", &format!("leader-hub-{pool}")), of("/nodepools", pool))
    };
    let label = |pool: &str| {
        let labels = serde_json::json!({ "metadata": { "labels": { "apps.openyurt.io/nodepool": pool } } });
        site.server().cluster().merge_patch("nodes", "p1", &labels).unwrap();
    };
    site.until("both are read", || open("plain") == (1, 1) && open("shop") == (1, 1)).await;
    for (after, before) in [("other", "plain"), ("shop", "other"), ("plain", "shop")] {
        label(after);
        site.until(after, || open(after) == (1, 1)).await;
        if before != "shop" {
            site.until("the one of before is closed", || open(before) == (0, 0)).await;
        }
        assert_eq!(open("shop"), (1, 1), "{after}");
    }
}

/// Its API server has no other way to the edge.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_not_elected_goes_by_one_that_is() {
    let site = Tunnelled::new().await;
    let (cloud, _edge) = (site.cloud().await, site.edge().await);
    site.linked(&cloud).await;
    let (spare, socket) = site.spare().await;
    site.until_async("it knows the cluster", async || spare.status().await["role"] == "gateway").await;
    assert_eq!(spare.status().await["links"], Value::Array(vec![]), "it holds none at rest");
    // Once it has its certificate.
    site.until_async("the edge", async || {
        let Ok(mut stream) = UnixStream::connect(&socket).await else { return false };
        connect(&mut stream, &format!("a1:{}", site.kubelet)).await == "200"
            && site.ask_kubelet(stream).await == "you are prober"
    })
    .await;
    let links = spare.status().await["links"].as_array().unwrap().clone();
    assert!(links.iter().all(|link| link["peer"] == "c1" && link["direction"] == "forward"), "{links:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_has_a_new_certificate_at_sighup_and_cuts_no_stream() {
    let site = Tunnelled::new().await;
    let (cloud, _edge) = (site.cloud().await, site.edge().await);
    site.linked(&cloud).await;
    let mut stream = UnixStream::connect(site.socket()).await.unwrap();
    assert_eq!(connect(&mut stream, &format!("a1:{}", site.kubelet)).await, "200");
    let gateway = SocketAddr::from(([127, 0, 0, 1], site.gateway));
    let before = site.shown(gateway, "a1", "h2").await.unwrap();
    // All hubs of this process take it for theirs, which is what an operator means by it.
    let process = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-HUP", &process]).status().unwrap().success());
    site.until_async("a new certificate", async || {
        site.shown(gateway, "a1", "h2").await.is_some_and(|shown| shown != before)
    })
    .await;
    assert_eq!(site.ask_kubelet(stream).await, "you are prober");
    assert_eq!(cloud.status().await["problems"], Value::Array(vec![]));
}

/// Nobody asks for it: the certificate is good for twenty seconds. A stream of before goes on when that has passed, and so do new ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_renews_its_certificate_in_time_and_cuts_no_stream() {
    const LIFE: Duration = Duration::from_secs(20);
    let mut site = Tunnelled::new().await;
    site.life = Some(LIFE);
    // Another test of this process may send one: then the next certificate counts.
    let mut hangup = signal(SignalKind::hangup()).unwrap();
    let (cloud, _edge) = (site.cloud().await, site.edge().await);
    site.linked(&cloud).await;
    let kubelet = format!("a1:{}", site.kubelet);
    let mut stream = UnixStream::connect(site.socket()).await.unwrap();
    assert_eq!(connect(&mut stream, &kubelet).await, "200");
    let gateway = SocketAddr::from(([127, 0, 0, 1], site.gateway));
    let mut shown = site.shown(gateway, "a1", "h2").await.unwrap();
    let (began, mut unasked) = (Instant::now(), false);
    while !unasked || began.elapsed() <= LIFE {
        site.until_async("another certificate", async || {
            let now = site.shown(gateway, "a1", "h2").await;
            now.is_some_and(|now| now != shown)
        })
        .await;
        shown = site.shown(gateway, "a1", "h2").await.unwrap();
        unasked |= timeout(Duration::ZERO, hangup.recv()).await.is_err();
    }
    assert_eq!(site.ask_kubelet(stream).await, "you are prober", "the certificate of its link has expired");
    site.until_async("a new stream", async || {
        let mut stream = UnixStream::connect(site.socket()).await.unwrap();
        connect(&mut stream, &kubelet).await == "200"
    })
    .await;
    assert_eq!(cloud.status().await["problems"], Value::Array(vec![]));
}

/// Nobody but the proxy knows the gateway's name.
#[tokio::test(flavor = "multi_thread")]
async fn links_come_up_through_an_http_proxy_and_not_without_it() {
    let site = Tunnelled::new().await;
    site.expose_at("gateway.invalid");
    let gateway = SocketAddr::from(([127, 0, 0, 1], site.gateway));
    let proxy = HttpProxy::start(format!("gateway.invalid:{}", site.gateway), gateway).await;
    let cloud = site.cloud().await;
    let mut edge = site.edge().await;
    site.until_async("it has tried", async || failed_links(&edge.metrics().await) > 0).await;
    assert_eq!(edge.status().await["links"], Value::Array(vec![]));
    assert_eq!(proxy.granted(), 0);
    edge.end().await;
    let edge = site.edge_behind(proxy.address).await;
    site.linked(&cloud).await;
    assert!(proxy.granted() > 0);
    assert_eq!(edge.status().await["problems"], Value::Array(vec![]));
    let mut stream = UnixStream::connect(site.socket()).await.unwrap();
    assert_eq!(connect(&mut stream, &format!("a1:{}", site.kubelet)).await, "200");
    assert_eq!(site.ask_kubelet(stream).await, "you are prober");
}

/// How many links did not come up.
fn failed_links(metrics: &str) -> u32 {
    let series = "isthmus_hub_tunnel_link_events_total{event=\"failed\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(series)?.parse().ok()).unwrap_or_default()
}

/// It takes what is sent to it until those who send have heard of it. Only a gateway knows the node that is alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_unlisted_cuts_no_stream() {
    let site = Tunnelled::new().await;
    let (cloud, _edge) = (site.cloud().await, site.edge().await);
    site.linked(&cloud).await;
    let _solo = site.solo().await;
    site.until("both", || site.report().is_some_and(|(_, links)| links == ["a1", "s1"])).await;
    let mut held = Vec::new();
    for node in ["a1", "s1"] {
        let mut stream = UnixStream::connect(site.socket()).await.unwrap();
        assert_eq!(connect(&mut stream, &format!("{node}:{}", site.kubelet)).await, "200", "{node}");
        held.push(stream);
    }
    let open = async || TcpStream::connect((site.address, site.tls_way)).await.is_ok();
    site.unlist();
    site.until_async("no gateway", async || cloud.status().await["role"] == "none").await;
    assert!(open().await, "nobody has heard of it yet");
    // Something that has it look at everything anew.
    let label = serde_json::json!({ "metadata": { "labels": { "new": "true" } } });
    site.server().cluster().merge_patch("nodes", "c1", &label).unwrap();
    site.until_async("the ways in are closed", async || !open().await).await;
    for stream in held {
        assert_eq!(site.ask_kubelet(stream).await, "you are prober");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_load_balancers_are_counted_and_no_more() {
    let site = Tunnelled::new().await;
    let (cloud, _edge) = (site.cloud().await, site.edge().await);
    site.linked(&cloud).await;
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let ways = [(site.address, site.tls_way), (site.address, site.http_way)];
    for listener in [(loopback, site.gateway), (loopback, site.clients)].into_iter().chain(ways) {
        for _ in 0..3 {
            drop(TcpStream::connect(listener).await.unwrap());
        }
    }
    let value = |metrics: &str, listener: &str| {
        let series = format!("isthmus_hub_tunnel_silent_connections_total{{listener=\"{listener}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series)).map(str::to_owned);
        line.and_then(|value| value.parse::<u32>().ok()).unwrap_or_default()
    };
    // `linked` asked two of them as well.
    site.until_async("all are counted", async || {
        let metrics = cloud.metrics().await;
        ["links", "internal-tls", "internal-http", "clients"]
            .iter()
            .all(|listener| value(&metrics, listener) >= 3)
    })
    .await;
    let metrics = cloud.metrics().await;
    assert!(metrics.contains("isthmus_hub_tunnel_link_events_total{event=\"failed\"} 0"), "{metrics}");
}
