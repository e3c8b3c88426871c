//! Pure: the ports of the internal Service, from what the exposed Gateways list.

use std::collections::{BTreeMap, BTreeSet};

use api::Gateway;
use api::names::{
    KUBELET_PORT, PROXY_EXTERNAL_ADDR, PROXY_INTERNAL_INSECURE_ADDR, PROXY_INTERNAL_INSECURE_PORT,
    PROXY_INTERNAL_SECURE_ADDR, PROXY_INTERNAL_SECURE_PORT, PROXY_INTERNAL_SECURE_PORTS, PROXY_PORT,
};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;

/// Starts of the names of ports by HTTP and by HTTPS.
pub(crate) const NAMES: [&str; 2] = ["http-", "https-"];

/// Where raven's ConfigMap has links accepted. Hubs do not go by it, so it matters whether somebody said it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum External {
    /// It says nothing.
    Unsaid,
    /// What it says has no port.
    Unreadable,
    /// At this port.
    At(u16),
}

impl External {
    /// The port; the usual one where none is said.
    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Unsaid | Self::Unreadable => u16::try_from(PROXY_PORT).unwrap_or_default(),
            Self::At(port) => port,
        }
    }
}

/// Where the hubs of exposed gateways listen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Listeners {
    /// For links.
    pub(crate) external: External,
    /// For HTTPS to kubelets.
    pub(crate) secure: u16,
    /// For HTTP.
    pub(crate) insecure: u16,
}

impl Listeners {
    /// As raven's agents are configured; the usual ones where nothing, or nothing readable, is said.
    pub(crate) fn of(config: Option<&ConfigMap>) -> Self {
        let data = config.and_then(|config| config.data.as_ref());
        let said = |key: &str| data.and_then(|data| data.get(key)).map(|address| address.trim());
        let read = |key: &str| {
            let set = said(key).and_then(|address| address.rsplit(':').next());
            set.and_then(|port| port.parse::<u16>().ok()).filter(|port| *port != 0)
        };
        let port =
            |key: &str, usual: i32| read(key).or_else(|| u16::try_from(usual).ok()).unwrap_or_default();
        let external = match read(PROXY_EXTERNAL_ADDR) {
            Some(port) => External::At(port),
            None if said(PROXY_EXTERNAL_ADDR).is_some_and(|address| !address.is_empty()) => {
                External::Unreadable
            }
            None => External::Unsaid,
        };
        Self {
            external,
            secure: port(PROXY_INTERNAL_SECURE_ADDR, PROXY_INTERNAL_SECURE_PORT),
            insecure: port(PROXY_INTERNAL_INSECURE_ADDR, PROXY_INTERNAL_INSECURE_PORT),
        }
    }
}

/// Where a load balancer leads for links: where raven's agents are configured to accept them if a hub does, else where hubs do. What they
/// listen on is a matter of their `--tunnel-address`, so the Service follows them and not the ConfigMap.
pub(crate) fn links(configured: u16, reported: &BTreeSet<u16>) -> u16 {
    if reported.contains(&configured) { configured } else { reported.first().copied().unwrap_or(configured) }
}

/// A port of the internal Service.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct ProxyPort {
    /// `http-<port>` or `https-<port>`.
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) target: u16,
}

/// The ports of the internal Service, and by whose word each is what it is.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// Sorted by number.
    pub(crate) ports: Vec<ProxyPort>,
    /// Which Gateway lists a port as what it is, of several the first; none, if that cannot be read.
    listers: BTreeMap<u16, String>,
}

impl Merged {
    /// Whether a port is by HTTPS, if there is one of that number.
    pub(crate) fn is_secure(&self, port: u16) -> Option<bool> {
        let found = self.ports.iter().find(|found| found.port == port)?;
        Some(found.name.starts_with(NAMES[1]))
    }

    /// Who lists a port as what it is.
    pub(crate) fn lister(&self, port: u16) -> Option<&str> {
        self.listers.get(&port).map(String::as_str)
    }
}

/// The ports that Gateways list, each once, sorted by number, and those of these `names`. `active` are the Gateways that have an active endpoint. What
/// the others, `idle`, list is served by nobody of theirs: it changes nothing for whom `active` serve, so of it counts what is there and nobody
/// else lists; and all, while there are none but these. A port that is listed for both is what it is, and at first by HTTPS: a Gateway that
/// comes breaks no port of one that is there. `present` are the target ports by name as they are: a port keeps its own as long as it is listed.
pub(crate) fn ports<'a>(
    active: &[&Gateway],
    idle: &[&Gateway],
    names: impl Iterator<Item = &'a str>,
    listeners: Listeners,
    present: &BTreeMap<String, u16>,
) -> Merged {
    let is_there = |port: u16, secure: bool| present.contains_key(&name(secure, port));
    let mut all = listed(active);
    for (port, secure) in names.filter_map(named) {
        all.entry((port, secure)).or_insert(None);
    }
    let mut others = listed(idle);
    others.retain(|(port, secure), _| {
        let is_listed = [false, true].iter().any(|secure| all.contains_key(&(*port, *secure)));
        !is_listed && (active.is_empty() || is_there(*port, *secure))
    });
    all.extend(others);
    let is_secure = |port: u16| match [false, true].map(|secure| all.contains_key(&(port, secure))) {
        [true, true] => is_there(port, true) || !is_there(port, false),
        [_, secure] => secure,
    };
    let served: BTreeMap<u16, bool> = all.keys().map(|(port, _)| (*port, is_secure(*port))).collect();
    let lister = |(port, secure): (&u16, &bool)| Some((*port, all.get(&(*port, *secure))?.clone()?));
    let listers = served.iter().filter_map(lister).collect();
    let (https, http): (BTreeSet<u16>, BTreeSet<u16>) =
        served.keys().copied().partition(|port| served.get(port) == Some(&true));
    let mut taken = BTreeSet::from([listeners.external.port(), listeners.secure, listeners.insecure]);
    let mut targets = BTreeMap::new();
    for port in https.iter().filter(|port| **port != KUBELET_PORT) {
        let kept = present.get(&name(true, *port)).filter(|kept| **kept >= PROXY_INTERNAL_SECURE_PORTS);
        if let Some(kept) = kept.filter(|kept| !taken.contains(*kept)) {
            taken.insert(*kept);
            targets.insert(*port, *kept);
        }
    }
    let mut free = PROXY_INTERNAL_SECURE_PORTS..=u16::MAX;
    for port in https.iter().filter(|port| **port != KUBELET_PORT) {
        if !targets.contains_key(port)
            && let Some(target) = free.find(|target| !taken.contains(target))
        {
            targets.insert(*port, target);
        }
    }
    let secure = https.iter().filter_map(|port| {
        let target = if *port == KUBELET_PORT { listeners.secure } else { targets.get(port).copied()? };
        Some(ProxyPort { name: name(true, *port), port: *port, target })
    });
    let insecure = http.iter().map(|port| ProxyPort {
        name: name(false, *port),
        port: *port,
        target: listeners.insecure,
    });
    let mut ports: Vec<ProxyPort> = secure.chain(insecure).collect();
    ports.sort_by_key(|port| port.port);
    Merged { ports, listers }
}

fn name(secure: bool, port: u16) -> String {
    format!("{}{port}", NAMES[usize::from(secure)])
}

/// The port of such a name, and whether it is by HTTPS.
fn named(name: &str) -> Option<(u16, bool)> {
    let of = |secure: bool| {
        let port = name.strip_prefix(NAMES[usize::from(secure)])?.parse::<u16>().ok()?;
        Some((port, secure))
    };
    of(false).or_else(|| of(true))
}

/// The ports that these list, each with whether it is by HTTPS, and who lists it, of several the first.
fn listed(gateways: &[&Gateway]) -> BTreeMap<(u16, bool), Option<String>> {
    let mut listed = BTreeMap::new();
    for gateway in gateways.iter().filter(|gateway| gateway.spec.proxy_config.replicas > 0) {
        let config = &gateway.spec.proxy_config;
        for (text, secure) in [(&config.proxy_http_port, false), (&config.proxy_https_port, true)] {
            for port in list(text) {
                listed.entry((port, secure)).or_insert_with(|| Some(gateway.name_any()));
            }
        }
    }
    listed
}

/// The numbers in a list such as "10250, 9100". What is no port is left out: the API server refuses such lists, but keeps old ones.
pub(super) fn list(text: &str) -> impl Iterator<Item = u16> {
    text.split(',').filter_map(|port| port.trim().parse::<u16>().ok()).filter(|port| *port != 0)
}

/// The target ports by name, as the Service has them.
pub(crate) fn present(service: Option<&Service>) -> BTreeMap<String, u16> {
    let ports = service.and_then(|service| service.spec.as_ref()).and_then(|spec| spec.ports.as_ref());
    let target = |port: &k8s_openapi::api::core::v1::ServicePort| match &port.target_port {
        Some(IntOrString::Int(target)) => Some((port.name.clone()?, u16::try_from(*target).ok()?)),
        Some(IntOrString::String(_)) | None => None,
    };
    ports.into_iter().flatten().filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_are_led_to_where_hubs_listen() {
        assert_eq!(links(10262, &[].into()), 10262);
        assert_eq!(links(10262, &[443, 10262].into()), 10262);
        assert_eq!(links(10300, &[10262].into()), 10262);
        assert_eq!(links(10300, &[10262, 443].into()), 443);
    }

    fn gateway(http: &str, https: &str) -> Gateway {
        serde_json::from_value(json!({
            "metadata": { "name": "g" },
            "spec": { "proxyConfig": { "Replicas": 1, "proxyHTTPPort": http, "proxyHTTPSPort": https } },
        }))
        .unwrap()
    }

    fn of(lists: &[(&str, &str)], present: &[(&str, u16)]) -> Vec<String> {
        merged(lists, &[], present)
    }

    fn merged(active: &[(&str, &str)], idle: &[(&str, &str)], present: &[(&str, u16)]) -> Vec<String> {
        let gateways = |lists: &[(&str, &str)]| -> Vec<Gateway> {
            lists.iter().map(|(http, https)| gateway(http, https)).collect()
        };
        let [active, idle] = [active, idle].map(gateways);
        let [active, idle]: [Vec<&Gateway>; 2] = [active.iter().collect(), idle.iter().collect()];
        let present = present.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
        ports(&active, &idle, std::iter::empty(), Listeners::of(None), &present)
            .ports
            .iter()
            .map(|port| format!("{} {} {}", port.name, port.port, port.target))
            .collect()
    }

    #[test]
    fn who_elects_nobody_changes_no_port_of_others() {
        let http = ["http-9100 9100 10264"];
        let https = ["https-9100 9100 20263"];
        let there = [("http-9100", 10264)];
        assert_eq!(merged(&[("9100", "")], &[("", "9100")], &there), http);
        assert_eq!(merged(&[("9100", "")], &[("", "9100")], &[]), http, "whoever was there first");
        assert_eq!(merged(&[("9100", "")], &[("", "9101")], &there), http, "nor adds any");
        // Who had endpoints a moment ago keeps what it has, and nobody's is as good as anybody's.
        assert_eq!(merged(&[("", "10250")], &[("9100", "")], &there)[0], http[0]);
        assert_eq!(merged(&[], &[("", "9100"), ("9100", "")], &there), http);
        assert_eq!(merged(&[], &[("", "9100"), ("9100", "")], &[]), https);
        // The one that serves has its say, whatever is there.
        assert_eq!(merged(&[("9100", "")], &[("", "9100")], &[("https-9100", 20263)]), http);
    }

    #[test]
    fn of_two_that_differ_the_one_that_is_there_stays() {
        let both = [("9100", ""), ("", "9100")];
        assert_eq!(of(&both, &[("http-9100", 10264)]), ["http-9100 9100 10264"]);
        assert_eq!(of(&both, &[("https-9100", 20263)]), ["https-9100 9100 20263"]);
        assert_eq!(of(&both, &[]), ["https-9100 9100 20263"]);
        // Nobody lists it so any more.
        assert_eq!(of(&both[1..], &[("http-9100", 10264)]), ["https-9100 9100 20263"]);
    }

    #[test]
    fn ports_of_all_gateways_are_merged() {
        assert_eq!(of(&[], &[]), Vec::<String>::new());
        assert_eq!(of(&[("", "")], &[]), Vec::<String>::new());
        assert_eq!(of(&[("", "10250"), ("", " 10250 ,10250")], &[]), ["https-10250 10250 10263"]);
        assert_eq!(
            of(&[("10255,9445", "10250"), ("9445", "9100,9101")], &[]),
            [
                "https-9100 9100 20263",
                "https-9101 9101 20264",
                "http-9445 9445 10264",
                "https-10250 10250 10263",
                "http-10255 10255 10264",
            ]
        );
        assert_eq!(
            of(&[("10250,0,x,70000,", "10250")], &[]),
            ["https-10250 10250 10263"],
            "one number, one port"
        );
    }

    #[test]
    fn a_port_keeps_its_target_as_long_as_it_is_listed() {
        let present =
            [("https-9101", 20263), ("https-9102", 20264), ("https-9103", 10263), ("https-9104", 20263)];
        assert_eq!(
            of(&[("", "9100,9101,9103,9104")], &present),
            [
                "https-9100 9100 20264",
                "https-9101 9101 20263",
                "https-9103 9103 20265",
                "https-9104 9104 20266",
            ]
        );
    }

    #[test]
    fn listeners_are_as_the_agents_are_configured() {
        let config =
            |data: serde_json::Value| serde_json::from_value::<ConfigMap>(json!({ "data": data })).unwrap();
        let usual = Listeners { external: External::Unsaid, secure: 10263, insecure: 10264 };
        assert_eq!(Listeners::of(None), usual);
        assert_eq!(Listeners::of(Some(&ConfigMap::default())), usual);
        let odd = config(json!({
            (PROXY_EXTERNAL_ADDR): "0.0.0.0:443", (PROXY_INTERNAL_SECURE_ADDR): "[::]:x",
            (PROXY_INTERNAL_INSECURE_ADDR): "[::1]:8080",
        }));
        let expected = Listeners { external: External::At(443), secure: 10263, insecure: 8080 };
        assert_eq!(Listeners::of(Some(&odd)), expected);
        for (said, external) in [
            ("", External::Unsaid),
            (" ", External::Unsaid),
            (":10300", External::At(10300)),
            ("10300 ", External::At(10300)),
            ("0.0.0.0", External::Unreadable),
            ("0.0.0.0:0", External::Unreadable),
            ("0.0.0.0:https", External::Unreadable),
        ] {
            let listeners = Listeners::of(Some(&config(json!({ (PROXY_EXTERNAL_ADDR): said }))));
            assert_eq!(listeners, Listeners { external, ..usual }, "{said:?}");
        }
    }
}
