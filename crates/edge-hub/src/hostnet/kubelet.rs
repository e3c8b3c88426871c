//! What in a kubelet's settings matters to a host-network pool. Pure: text in, findings out.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Flags of the kubelet that went with dockershim in Kubernetes 1.24; a newer kubelet does not start with them.
const REMOVED_FLAGS: [&str; 7] = [
    "--cni-bin-dir",
    "--cni-cache-dir",
    "--cni-conf-dir",
    "--docker-endpoint",
    "--image-pull-progress-deadline",
    "--network-plugin",
    "--network-plugin-mtu",
];

/// The part of a `KubeletConfiguration` that is looked at. Unknown fields are the kubelet's business.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KubeletConfiguration {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default, rename = "clusterDNS")]
    pub(super) cluster_dns: Option<Vec<String>>,
}

/// Reads a `KubeletConfiguration`.
pub(super) fn configuration(text: &str) -> Result<KubeletConfiguration, String> {
    let parsed: KubeletConfiguration = serde_saphyr::from_str(text).map_err(|error| {
        // The first line says what and where; the rest is a picture of the file.
        error.to_string().lines().next().unwrap_or_default().to_owned()
    })?;
    match parsed.kind.as_deref() {
        Some("KubeletConfiguration") => Ok(parsed),
        Some(other) => Err(format!("its kind is {other:?}, not \"KubeletConfiguration\"")),
        None => Err("it has no kind".to_owned()),
    }
}

/// A flag that a kubelet does not start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BadFlag {
    /// Its name, as far as the `=`.
    Removed(String),
    /// It begins with a typographic dash, as text copied from a web page does.
    Dash(String),
}

/// The flags in a file of environment variables that a kubelet of today does not start with.
pub(super) fn bad_flags(text: &str) -> Vec<BadFlag> {
    words(text)
        .filter_map(|word| {
            let flag = word.split('=').next()?;
            if flag.starts_with(['\u{2013}', '\u{2014}']) {
                return Some(BadFlag::Dash(flag.to_owned()));
            }
            REMOVED_FLAGS.contains(&flag).then(|| BadFlag::Removed(flag.to_owned()))
        })
        .collect()
}

/// The labels with which a kubelet registers its node, by the flags in a file of environment variables.
pub(super) fn node_labels(text: &str) -> BTreeMap<&str, &str> {
    const FLAG: &str = "--node-labels";
    let mut labels = BTreeMap::new();
    let mut words = words(text);
    while let Some(word) = words.next() {
        let list = match word.strip_prefix(FLAG) {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        labels.extend(
            list.into_iter().flat_map(|list| list.split(',')).filter_map(|pair| pair.split_once('=')),
        );
    }
    labels
}

/// The words of the values in a file of environment variables.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let values = lines.filter_map(|line| Some(line.split_once('=')?.1));
    let words = values.flat_map(|value| value.split(|c: char| c.is_whitespace() || c == '"' || c == '\''));
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(flags: &[&str]) -> Vec<BadFlag> {
        flags.iter().map(|flag| BadFlag::Removed((*flag).to_owned())).collect()
    }

    #[test]
    fn flags_that_a_kubelet_does_not_know_are_found() {
        let proposal = "KUBELET_KUBEADM_ARGS=\"--network-plugin=cni \u{2014}cni-conf-dir=/etc/cni/net.d \
                        --pod-infra-container-image=registry/pause:3.5\"";
        let mut found = removed(&["--network-plugin"]);
        found.push(BadFlag::Dash("\u{2014}cni-conf-dir".to_owned()));
        let table = [
            (proposal, found),
            (
                "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///x.sock --node-ip=1.2.3.4\"",
                vec![],
            ),
            ("KUBELET_EXTRA_ARGS=--network-plugin cni", removed(&["--network-plugin"])),
            ("KUBELET_EXTRA_ARGS='--cni-bin-dir=/x'", removed(&["--cni-bin-dir"])),
            ("KUBELET_EXTRA_ARGS=\"--network-plugin-mtu=1500\"", removed(&["--network-plugin-mtu"])),
            ("# KUBELET_EXTRA_ARGS=--network-plugin=cni", vec![]),
            ("KUBELET_EXTRA_ARGS=--node-labels=a=--network-plugin", vec![]),
            ("", vec![]),
            ("=\n==\nno equals sign --network-plugin", vec![]),
        ];
        for (text, expected) in table {
            assert_eq!(bad_flags(text), expected, "{text}");
        }
    }

    #[test]
    fn the_labels_of_the_node_are_found() {
        let table = [
            ("A=\"--node-ip=1.2.3.4 --node-labels=a=1,b/c=2\"", vec![("a", "1"), ("b/c", "2")]),
            ("A=--node-labels a=1\nB=--node-labels=b=\n", vec![("a", "1"), ("b", "")]),
            ("A='--node-labels=a=1' '--v=2'", vec![("a", "1")]),
            ("# A=--node-labels=a=1", vec![]),
            ("A=--node-labels-not=a=1 --node-labels", vec![]),
            ("A=--node-labels=,,a,=", vec![("", "")]),
            ("", vec![]),
        ];
        for (text, expected) in table {
            assert_eq!(node_labels(text).into_iter().collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn only_a_kubelet_configuration_is_one() {
        let good = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS:\n- 10.96.0.10\n\
                    someNewField: {a: [1]}\n";
        assert_eq!(configuration(good).unwrap().cluster_dns, Some(vec!["10.96.0.10".to_owned()]));
        assert_eq!(configuration("kind: KubeletConfiguration").unwrap().cluster_dns, None);
        let table = [
            ("", "no kind"),
            ("clusterDNS: []", "no kind"),
            ("kind: Pod", "\"Pod\""),
            ("kind: KubeletConfiguration\nclusterDNS: 10.96.0.10", ""),
            ("kind: [", ""),
            ("\u{0}\u{1}", ""),
            ("- a\n- b", ""),
        ];
        for (text, expected) in table {
            let error = configuration(text).unwrap_err();
            assert!(!error.is_empty() && error.contains(expected), "{text:?}: {error}");
        }
    }
}
