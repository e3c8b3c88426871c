//! `forwardkubesvctraffic`: kube-proxy is shown the `EndpointSlice` of `default/kubernetes` with the hub as the only endpoint, so
//! that pods which call the API server by the Service's address come to the hub. A slice of the other address family stays.

use kube_wire::{
    edit::{Field, Message, Verdict},
    object::Object,
};

use super::View;

const ENDPOINTS: Field = Field::shown("endpoints", 2);
const PORTS: Field = Field::shown("ports", 3);
const ADDRESS_TYPE: Field = Field::new("addressType", 4);
const ADDRESSES: Field = Field::new("addresses", 1);
const CONDITIONS: Field = Field::new("conditions", 2);
const READY: Field = Field::new("ready", 1);
const NAME: Field = Field::new("name", 1);
const PORT: Field = Field::new("port", 3);

pub(super) fn edit(slice: &Object, message: &mut Message, view: &View) -> bool {
    let key = slice.key();
    let Some(hub) = view.hub.filter(|_| key.namespace() == "default" && key.name() == "kubernetes") else {
        return false;
    };
    let family = if hub.is_ipv4() { "IPv4" } else { "IPv6" };
    if message.text(ADDRESS_TYPE).as_deref() != Some(family) {
        return false;
    }
    let ports = message.edit_each(PORTS, |port| {
        let https = port.text(NAME).as_deref() == Some("https");
        Verdict::changed(https && port.set_number(PORT, hub.port().into()))
    });
    let mut conditions = message.empty();
    conditions.set_bool(READY, true);
    let mut endpoint = message.empty();
    endpoint.set_texts(ADDRESSES, &[&hub.ip().to_string()]);
    endpoint.set_message(CONDITIONS, conditions);
    message.set_only_message(ENDPOINTS, endpoint) || ports
}
