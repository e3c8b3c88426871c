//! Which name a gateway's certificate has to have: who stands for a pool is no gateway that everyone dials, nor the other way round. Clients
//! that come in at gateways verify the name alone, so an edge node's certificate must not have theirs.

use std::time::Duration;

use testkit::api_server::{access::User, pki::Authority};
use tunnel::{credentials::Credentials, protocol::Class, route::Direction};

use crate::world::{GATEWAY_NAME, POOL_NAME, World, eventually, links, only};

/// Gives a gateway a certificate of its own with this name.
fn named(credentials: &Credentials, authority: &Authority, node: &str, name: &str) {
    let user = User::new(&format!("isthmus:edge-hub:{node}"), &["isthmus:edge-hubs"]);
    let leaf = authority.peer_for(&user, &[name], Duration::from_mins(1)).unwrap();
    credentials.install(&leaf.certificate_pem, &leaf.key_pem, authority.pem()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_taken_by_the_name_of_its_kind_alone() {
    for (gateway, dialler, right, wrong) in
        [("c1", "a1", GATEWAY_NAME, POOL_NAME), ("a1", "a2", POOL_NAME, GATEWAY_NAME)]
    {
        let world = World::new();
        let (mut listening, mut dialling) = (world.hub(gateway, true), world.hub(dialler, false));
        let address = listening.listen().await;
        named(&listening.credentials, &world.authority, gateway, wrong);
        let wanted = only(links(gateway, address, 1), Direction::Forward, Class::Interactive);
        dialling.desired.send_replace(wanted);
        dialling.dial();
        eventually("it is refused", || dialling.stats.snapshot().links_failed >= 2).await;
        assert!(listening.table.snapshot().is_empty(), "{gateway} is taken for another");
        named(&listening.credentials, &world.authority, gateway, right);
        listening.links(1).await;
    }
}
