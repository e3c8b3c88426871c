//! `serviceenvupdater`: pods that name the API server in their own environment are shown to the kubelet with the hub's address
//! there. Only variables that are there are changed, of init containers as well.

use kube_wire::edit::{Field, Message, Verdict};

use super::{View, catalog::SPEC};

const CONTAINERS: Field = Field::shown("containers", 2);
const INIT_CONTAINERS: Field = Field::new("initContainers", 20);
const ENV: Field = Field::new("env", 7);
const NAME: Field = Field::new("name", 1);
const VALUE: Field = Field::new("value", 2);

pub(super) fn edit(message: &mut Message, view: &View) -> bool {
    let Some(hub) = view.hub else { return false };
    let (host, port) = (hub.ip().to_string(), hub.port().to_string());
    let mut container = |container: &mut Message| {
        Verdict::changed(container.edit_each(ENV, |variable| {
            let new = match variable.text(NAME).as_deref() {
                Some("KUBERNETES_SERVICE_HOST") => &host,
                Some("KUBERNETES_SERVICE_PORT") => &port,
                _ => return Verdict::Keep,
            };
            Verdict::changed(variable.set_text(VALUE, new))
        }))
    };
    message.edit(SPEC, |spec| {
        let containers = spec.edit_each(CONTAINERS, &mut container);
        spec.edit_each(INIT_CONTAINERS, &mut container) || containers
    })
}
