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

/// The ports that `gateways` list, each once, sorted by number, and those of these `names`. A port that is listed for both is by HTTPS. `present` are
/// the target ports by name as they are: a port keeps its own as long as it is listed.
pub(crate) fn ports<'a>(
    gateways: impl Iterator<Item = &'a Gateway>,
    names: impl Iterator<Item = &'a str>,
    listeners: Listeners,
    present: &BTreeMap<String, u16>,
) -> Vec<ProxyPort> {
    let (mut http, mut https) = (BTreeSet::new(), BTreeSet::new());
    for gateway in gateways.filter(|gateway| gateway.spec.proxy_config.replicas > 0) {
        http.extend(list(&gateway.spec.proxy_config.proxy_http_port));
        https.extend(list(&gateway.spec.proxy_config.proxy_https_port));
    }
    for name in names {
        let [plain, secure] =
            NAMES.map(|start| name.strip_prefix(start).and_then(|port| port.parse::<u16>().ok()));
        http.extend(plain);
        https.extend(secure);
    }
    let name = |secure: bool, port: u16| format!("{}{port}", NAMES[usize::from(secure)]);
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
    let insecure = http.difference(&https).map(|port| ProxyPort {
        name: name(false, *port),
        port: *port,
        target: listeners.insecure,
    });
    let mut ports: Vec<ProxyPort> = secure.chain(insecure).collect();
    ports.sort_by_key(|port| port.port);
    ports
}

/// Which of `gateways` lists a port as HTTPS, by port; of several the first.
pub(crate) fn secure<'a>(gateways: impl Iterator<Item = &'a Gateway>) -> BTreeMap<u16, String> {
    let mut secure = BTreeMap::new();
    for gateway in gateways.filter(|gateway| gateway.spec.proxy_config.replicas > 0) {
        for port in list(&gateway.spec.proxy_config.proxy_https_port) {
            secure.entry(port).or_insert_with(|| gateway.name_any());
        }
    }
    secure
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
        let gateways: Vec<Gateway> = lists.iter().map(|(http, https)| gateway(http, https)).collect();
        let present = present.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
        ports(gateways.iter(), std::iter::empty(), Listeners::of(None), &present)
            .iter()
            .map(|port| format!("{} {} {}", port.name, port.port, port.target))
            .collect()
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
