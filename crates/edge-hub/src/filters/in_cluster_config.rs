//! `inclusterconfig`: the line `kubeconfig:` in kube-proxy's configuration becomes a comment, so that kube-proxy uses its
//! `ServiceAccount` and the address that its environment says: the hub's. Where pods do not reach the hub it stays.

use kube_wire::{
    edit::{Field, Message},
    object::Object,
};

const DATA: Field = Field::new("data", 2);

pub(super) fn edit(config_map: &Object, message: &mut Message) -> bool {
    let key = config_map.key();
    let concerned = key.namespace() == api::names::NAMESPACE && key.name() == "kube-proxy";
    concerned && message.edit_entry(DATA, "config.conf", commented)
}

/// The text with each line `kubeconfig: …` commented out; `None` if there is none.
fn commented(text: &str) -> Option<String> {
    let is_kubeconfig = |line: &str| line.trim_matches(' ').starts_with("kubeconfig:");
    if !text.split('\n').any(is_kubeconfig) {
        return None;
    }
    let lines = text.split('\n').map(|line| {
        if is_kubeconfig(line) { line.replacen("kubeconfig", "#kubeconfig", 1) } else { line.to_owned() }
    });
    Some(lines.collect::<Vec<_>>().join("\n"))
}
