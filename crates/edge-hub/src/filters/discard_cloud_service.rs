//! `discardcloudservice`: Services that only make sense in the cloud are not shown to kube-proxy: `LoadBalancer` Services that
//! say so by an annotation, and the tunnel server's internal one.

use api::{annotations::DISCARD_SERVICE, names};
use kube_wire::object::Object;

use super::catalog::service_type;

pub(super) fn keeps(service: &Object) -> bool {
    let key = service.key();
    if key.namespace() == names::NAMESPACE && key.name() == names::TUNNEL_SERVER_INTERNAL_SERVICE {
        return false;
    }
    service.annotation(DISCARD_SERVICE).as_deref() != Some("true") || service_type(service) != "LoadBalancer"
}
