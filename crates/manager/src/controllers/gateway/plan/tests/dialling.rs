//! What is told of an endpoint behind NAT that has no link: once it has had the time to dial, with what to look at.

use super::*;
use crate::controllers::gateway::status::{changes, compute};

const SECOND: Duration = Duration::from_secs(1);

impl World {
    /// Plans, writes the status of the shop, and returns the events of condition `Connected`, with their notes.
    fn tell(&mut self) -> Vec<(String, String)> {
        let plan = self.plan();
        let status = compute(&plan.verdicts[1], self.observed.time);
        let shop = Arc::make_mut(&mut self.observed.gateways[1]);
        let events = changes(shop.status.as_ref(), &status).into_iter();
        shop.status = Some(status);
        let of_connected = events.filter(|event| event.action == "Reconcile");
        of_connected.map(|event| (event.reason, event.note.unwrap_or_default())).collect()
    }

    fn tell_later(&mut self, seconds: u32) -> Vec<String> {
        self.observed.now += SECOND * seconds;
        self.tell().into_iter().map(|(reason, _)| reason).collect()
    }

    fn message(&self) -> String {
        let status = self.observed.gateways[1].status.as_ref().unwrap();
        status.conditions.iter().find(|condition| condition.type_ == "Connected").unwrap().message.clone()
    }
}

#[test]
fn who_was_just_elected_is_told_of_only_if_it_has_no_link_in_time() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &[]);
    assert_eq!(world.tell_later(0), [""; 0]);
    assert!(
        world.message().starts_with("none of a has a link to an exposed gateway yet: "),
        "{}",
        world.message()
    );
    assert_eq!(world.tell_later(9), [""; 0]);
    world.observed.now += SECOND;
    let told = world.tell();
    let message = "none of a has a link to an exposed gateway; does TCP 10262, or what status.addresses of an exposed Gateway says, answer from \
                   there, and what does `edge-hub status` say on a (is --tunnel on?)";
    assert_eq!(told, [("NoTunnel".to_owned(), message.to_owned())]);
    assert_eq!(world.tell_later(1), [""; 0]);
    // A new leader takes nothing back, and tells it once.
    world.memory = Memory::new(world.observed.now);
    assert_eq!((world.tell_later(0), world.message()), (Vec::new(), message.to_owned()));
    assert_eq!((world.tell_later(11), world.message()), (Vec::new(), message.to_owned()));
    world.hub("c1", Liveness::Alive, &["a"]);
    assert_eq!(world.tell_later(1), ["Connected"]);
}

#[test]
fn the_next_one_has_its_time_and_what_is_lost_is_told_of_at_once() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &[]);
    assert_eq!(world.tell_later(0), [""; 0], "it was just elected");
    world.hub("c1", Liveness::Alive, &["a"]);
    assert_eq!(world.tell_later(1), ["Connected"], "and is linked a second later");
    // It answers no more: the next one is elected, and linked.
    world.misses("c1", "a");
    assert_eq!(world.tell_later(60), [""; 0]);
    assert!(
        world.message().starts_with("none of b has a link to an exposed gateway yet: "),
        "{}",
        world.message()
    );
    world.hub("c1", Liveness::Alive, &["b"]);
    assert_eq!(world.tell_later(1), ["Connected"]);
    world.hub("c1", Liveness::Alive, &[]);
    assert_eq!(world.tell_later(1), ["NoTunnel"], "it had a link");
    // The gateway is gone, and comes back.
    world.hub("c1", Liveness::Alive, &["b"]);
    assert_eq!(world.tell_later(1), ["Connected"]);
    world.hub("c1", Liveness::Dead, &[]);
    assert_eq!(world.tell_later(1), ["NoExposedGateway"]);
    world.hub("c1", Liveness::Alive, &[]);
    assert_eq!(world.tell_later(60), [""; 0], "it dials");
    world.hub("c1", Liveness::Alive, &["b"]);
    assert_eq!(world.tell_later(1), ["Connected"]);
}

#[test]
fn where_no_exposed_gateway_has_an_address_that_is_told_at_once() {
    let mut world = world();
    world.hub("c1", Liveness::Alive, &[]);
    let addressed = world.observed.gateways[0].clone();
    let mut spec = addressed.spec.clone();
    for endpoint in &mut spec.endpoints {
        endpoint.public_ip.clear();
    }
    Arc::make_mut(&mut world.observed.gateways[0]).spec = spec;
    let message = "no exposed gateway has an address that could be dialled, see condition Exposed of cloud";
    assert_eq!(world.tell(), [("NoExposedGateway".to_owned(), message.to_owned())]);
    assert_eq!(world.tell_later(60), [""; 0]);
    // One of them is dialled from now on.
    let mut spec = addressed.spec.clone();
    spec.endpoints[1].public_ip.clear();
    Arc::make_mut(&mut world.observed.gateways[0]).spec = spec;
    assert_eq!(world.tell_later(1), [""; 0]);
    assert!(world.message().ends_with("is given the time to dial"), "{}", world.message());
    assert_eq!(world.tell_later(11), ["NoTunnel"]);
}
