//! Which objects are kube-proxy, cluster DNS and CNI agents: kind, namespace, name and labels in, the component out.
//!
//! Pure. The names and labels are those of kubeadm, of the projects' own manifests and Helm charts, and of `OpenYurt`.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// The kinds of object that a component may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// One pod a node.
    DaemonSet,
    /// A number of pods.
    Deployment,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::DaemonSet, Self::Deployment];

    /// As URLs have it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::DaemonSet => "daemonsets",
            Self::Deployment => "deployments",
        }
    }

    /// The flag that names an object of this kind.
    pub fn flag(self) -> &'static str {
        match self {
            Self::DaemonSet => "--include",
            Self::Deployment => "--deployment",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DaemonSet => "DaemonSet",
            Self::Deployment => "Deployment",
        })
    }
}

/// Where an object is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name in there.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What the API server takes in names, and all that may stand in a URL as it is.
        let valid = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
        };
        match text.split_once('/') {
            Some((namespace, name)) if valid(namespace) && valid(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("not a NAMESPACE/NAME such as kube-system/kube-proxy".to_owned()),
        }
    }
}

/// What a host-network node does not need.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Component {
    /// Carries out Services.
    KubeProxy,
    /// Resolves names of Services.
    CoreDns,
    /// Connects pods.
    Flannel,
}

/// The namespaces in which components are looked for.
pub const NAMESPACES: [&str; 2] = ["kube-system", "kube-flannel"];

impl Component {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::KubeProxy, Self::CoreDns, Self::Flannel];

    /// Its labels, any of which is enough.
    fn labels(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::KubeProxy => &[("k8s-app", "kube-proxy"), ("app.kubernetes.io/name", "kube-proxy")],
            Self::CoreDns => {
                &[("k8s-app", "kube-dns"), ("k8s-app", "coredns"), ("app.kubernetes.io/name", "coredns")]
            }
            Self::Flannel => {
                &[("app", "flannel"), ("k8s-app", "flannel"), ("app.kubernetes.io/name", "flannel")]
            }
        }
    }

    /// Whether it goes by this name.
    fn is_called(self, name: &str) -> bool {
        match self {
            Self::KubeProxy => name == "kube-proxy",
            Self::CoreDns => ["coredns", "kube-dns"].contains(&name),
            // Older manifests have one for each architecture: kube-flannel-ds-arm64.
            Self::Flannel => name == "kube-flannel" || name.starts_with("kube-flannel-ds"),
        }
    }

    fn is_of_kind(self, kind: Kind) -> bool {
        match self {
            Self::KubeProxy | Self::Flannel => kind == Kind::DaemonSet,
            // OpenYurt runs it on every node.
            Self::CoreDns => true,
        }
    }

    fn namespaces(self) -> &'static [&'static str] {
        match self {
            Self::KubeProxy | Self::CoreDns => &NAMESPACES[..1],
            Self::Flannel => &NAMESPACES,
        }
    }

    /// The component that an object is.
    pub fn of(kind: Kind, at: &ObjectName, labels: &Value) -> Option<Self> {
        Self::ALL.into_iter().find(|component| {
            let labelled = component
                .labels()
                .iter()
                .any(|(key, value)| labels.get(*key).and_then(Value::as_str) == Some(*value));
            component.is_of_kind(kind)
                && component.namespaces().contains(&at.namespace.as_str())
                && (labelled || component.is_called(&at.name))
        })
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KubeProxy => "kube-proxy",
            Self::CoreDns => "CoreDNS",
            Self::Flannel => "flannel",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn components_are_known_by_label_or_name() {
        use Component::{CoreDns, Flannel, KubeProxy};
        use Kind::{DaemonSet, Deployment};
        let cases = [
            (
                "kubeadm's",
                DaemonSet,
                "kube-system/kube-proxy",
                json!({ "k8s-app": "kube-proxy" }),
                Some(KubeProxy),
            ),
            ("no labels", DaemonSet, "kube-system/kube-proxy", json!(null), Some(KubeProxy)),
            (
                "for Windows",
                DaemonSet,
                "kube-system/kube-proxy-windows",
                json!({ "k8s-app": "kube-proxy-windows" }),
                None,
            ),
            (
                "not one a node",
                Deployment,
                "kube-system/kube-proxy",
                json!({ "k8s-app": "kube-proxy" }),
                None,
            ),
            ("kubeadm's", Deployment, "kube-system/coredns", json!({ "k8s-app": "kube-dns" }), Some(CoreDns)),
            ("OpenYurt's", DaemonSet, "kube-system/coredns", json!({ "k8s-app": "kube-dns" }), Some(CoreDns)),
            (
                "RKE2's",
                Deployment,
                "kube-system/rke2-coredns-rke2-coredns",
                json!({ "app.kubernetes.io/name": "rke2-coredns", "k8s-app": "kube-dns" }),
                Some(CoreDns),
            ),
            (
                "its autoscaler",
                Deployment,
                "kube-system/coredns-autoscaler",
                json!({ "k8s-app": "kube-dns-autoscaler" }),
                None,
            ),
            ("somebody's", Deployment, "shop/coredns", json!({ "k8s-app": "kube-dns" }), None),
            (
                "its own",
                DaemonSet,
                "kube-flannel/kube-flannel-ds",
                json!({ "app": "flannel" }),
                Some(Flannel),
            ),
            (
                "older",
                DaemonSet,
                "kube-system/kube-flannel-ds-arm64",
                json!({ "tier": "node" }),
                Some(Flannel),
            ),
            ("kube-proxy elsewhere", DaemonSet, "kube-flannel/kube-proxy", json!({}), None),
            (
                "labels of another type",
                DaemonSet,
                "kube-system/x",
                json!({ "k8s-app": ["kube-proxy"] }),
                None,
            ),
        ];
        for (what, kind, at, labels, expected) in cases {
            assert_eq!(Component::of(kind, &at.parse().unwrap(), &labels), expected, "{what}: {kind} {at}");
        }
    }

    #[test]
    fn names_are_read() {
        let name: ObjectName = "kube-system/node.local-dns2".parse().unwrap();
        assert_eq!((name.namespace.as_str(), name.name.as_str()), ("kube-system", "node.local-dns2"));
        for wrong in ["", "/", "a/", "/b", "kube-proxy", "a/b/c", "a/b?x", "A/b", "../b", "a/..", "a/b c"] {
            assert!(wrong.parse::<ObjectName>().is_err(), "{wrong:?}");
        }
    }
}
