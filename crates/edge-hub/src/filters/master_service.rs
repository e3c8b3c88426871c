//! `masterservice`: the kubelet is shown the Service `default/kubernetes` with the hub's address, which it writes into the
//! environment of pods; in-cluster clients of the node then come to the hub.

use kube_wire::{
    edit::{Field, Message, Verdict},
    object::Object,
};

use super::{View, catalog::SPEC};

const CLUSTER_IP: Field = Field::new("clusterIP", 3);
const CLUSTER_IPS: Field = Field::new("clusterIPs", 18);
const PORTS: Field = Field::new("ports", 1);
const NAME: Field = Field::new("name", 1);
const PORT: Field = Field::new("port", 3);

pub(super) fn edit(service: &Object, message: &mut Message, view: &View) -> bool {
    let key = service.key();
    let Some(hub) = view.hub.filter(|_| key.namespace() == "default" && key.name() == "kubernetes") else {
        return false;
    };
    let host = hub.ip().to_string();
    message.edit(SPEC, |spec| {
        let address = spec.set_text(CLUSTER_IP, &host);
        let addresses = spec.set_texts(CLUSTER_IPS, &[&host]);
        let port = spec.edit_each(PORTS, |port| {
            let https = port.text(NAME).as_deref() == Some("https");
            Verdict::changed(https && port.set_number(PORT, hub.port().into()))
        });
        address || addresses || port
    })
}
