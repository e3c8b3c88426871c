//! Answers the streams that peers ask for: the same rules and ways as for callers of this node.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, Method};
use tracing::debug;

use crate::{
    audit,
    connector::{Connector, Request, Unvouched},
    doorway::Source,
    ending::{Ending, Rights},
    link::{Carrier, LinkError, Peer, Terms, answer, answer::Asked, ask},
    protocol::{Class, HEADER_CLASS, HEADER_HOPS, HEADER_REQUEST_ID, HEADER_SOURCE, OpenError},
    relay::relay,
    route::{Asker, Direction, Origin, Route, route},
    target::Target,
    view::{Domain, View},
};

/// The longest identifier that is taken over from a peer.
const REQUEST_ID_MAX: usize = 64;

/// Runs a link until it ends: this end `asks` for its streams, or answers them.
pub(crate) async fn link(
    connector: &Arc<Connector>,
    asks: bool,
    io: impl Carrier,
    peer: Peer,
    terms: &Terms,
    ending: &Ending,
    registered: impl FnOnce(),
) -> Result<(), LinkError> {
    if asks {
        return Box::pin(ask::run(io, peer, terms, ending, registered)).await;
    }
    let (connector, node, domain) = (connector.clone(), Arc::from(peer.node.as_str()), peer.domain.clone());
    let reverse = peer.direction == Direction::Reverse;
    let changing = ending.clone();
    let handle = move |asked| {
        let rights = changing.rights();
        as_long_as(rights, connector.clone(), Arc::clone(&node), domain.clone(), reverse, asked)
    };
    Box::pin(answer::run(io, peer, terms, ending, registered, handle)).await
}

/// The same as [`stream`], until who asks has had for as long as a drain may last no right any more to what it asked for.
async fn as_long_as(
    mut rights: Rights,
    connector: Arc<Connector>,
    peer: Arc<str>,
    domain: Domain,
    reverse: bool,
    asked: Asked,
) {
    let limit = connector.limits().drain;
    let (asks, uri) = (peer.clone(), asked.request.uri().clone());
    let vouched = !source(asked.request.headers()).is_some_and(Source::is_of_stranger);
    let judge = connector.clone();
    let lost = async move {
        let mut lost = false;
        loop {
            tokio::select! {
                () = rights.changed() => {
                    let view = judge.view();
                    let origin = match view.domain_of(&asks) {
                        Some(of) => origin(judge.me(), &asks, of, reverse, vouched, &view),
                        // Whoever is named no more may have what is for everyone.
                        None => Origin { domain: None, asker: Asker::Peer, vouched },
                    };
                    let target = uri.authority().and_then(|authority| Target::parse(authority.as_str(), None).ok());
                    let allowed = |target| !matches!(route(judge.me(), &origin, &target, &view), Route::Refused(_));
                    lost = !target.is_some_and(allowed);
                }
                () = tokio::time::sleep(limit), if lost => return,
            }
        }
    };
    tokio::select! {
        () = stream(connector, peer, domain, reverse, asked) => {}
        () = lost => {}
    }
}

/// With which rights a peer of domain `of` asks, by what is known now.
fn origin(me: &str, peer: &str, of: Domain, reverse: bool, vouched: bool, view: &View) -> Origin {
    let sibling = view.domain_of(me).as_ref() == Some(&of) && view.is_endpoint(peer, &of);
    let asker = match (reverse, sibling) {
        (true, _) => Asker::Reverse,
        (false, true) => Asker::Sibling,
        (false, false) => Asker::Peer,
    };
    // Whom this node dialled it took for a gateway then, whatever an election has made of it since.
    let domain = if reverse { Some(of) } else { view.speaks_for(peer, of) };
    Origin { domain, asker, vouched }
}

/// Answers one stream of the link to `peer`, which may be a `reverse` one.
async fn stream(connector: Arc<Connector>, peer: Arc<str>, domain: Domain, reverse: bool, mut asked: Asked) {
    let headers = asked.request.headers();
    let request_id = request_id(headers);
    let class =
        headers.get(HEADER_CLASS).map_or(Class::Interactive, |class| Class::from_name(class.as_bytes()));
    let hops = headers.get(HEADER_HOPS).and_then(|hops| hops.to_str().ok()?.parse().ok()).unwrap_or(u8::MAX);
    let said = source(headers);
    let authority = asked.request.uri().authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let target = match Target::parse(authority, None) {
        Ok(target) if asked.request.method() == Method::CONNECT => target,
        Ok(_) | Err(_) => {
            audit::refused(&peer, None, authority, &request_id, OpenError::Malformed);
            connector.stats().refused(OpenError::Malformed);
            return asked.refuse(OpenError::Malformed);
        }
    };
    let view = connector.view();
    // What its domain is called may have changed since the link was made: at an edge node a cloud's is called like its Gateway.
    let domain = view.domain_of(&peer).unwrap_or(domain);
    let mine = view.domain_of(connector.me());
    let source = match answers_for(&peer, domain.clone(), reverse, mine.as_ref(), &view) {
        Some(one) => Some(Source::of_domain(&one)),
        None => said,
    };
    let vouched = !said.is_some_and(Source::is_of_stranger);
    let origin = Some(origin(connector.me(), &peer, domain, reverse, vouched, &view));
    let unvouched = source.map(|source| Unvouched { listener: "links", source });
    let (caller, patience, used) = (peer, Duration::ZERO, Arc::default());
    let request = Request { target, origin, caller, class, hops, unvouched, used, request_id, patience };
    let room = asked.room();
    let connecting = async {
        let upstream = connector.connect(&request).await?;
        let gives_way = upstream.gives_way();
        tokio::select! {
            guard = room => Ok((upstream, guard)),
            // What it would go on to is closed already.
            () = gives_way => {
                connector.stats().refused(OpenError::Crowded);
                Err(OpenError::Crowded)
            }
        }
    };
    // Boxed: a stream that is open no longer holds what opening it took.
    let connected = tokio::select! {
        connected = Box::pin(connecting) => connected,
        spoke = asked.given_up() => {
            if spoke {
                let target = request.target.to_string();
                audit::refused(&request.caller, None, &target, &request.request_id, OpenError::Malformed);
                connector.stats().refused(OpenError::Malformed);
                asked.refuse(OpenError::Malformed);
            }
            return;
        }
    };
    match connected {
        Err(error) => asked.refuse(error),
        Ok((mut upstream, guard)) => match asked.grant(guard) {
            Ok(mut stream) => {
                let gives_way = upstream.gives_way();
                let (id, target) = (&request.request_id, &request.target);
                tokio::select! {
                    (passed, result) = relay(&mut stream, &mut upstream, Vec::new()) => {
                        let (up, down, broken) = (passed.up, passed.down, result.is_err());
                        debug!(request_id = %id, %target, up, down, broken, "stream ended");
                    }
                    // Both of its connections are broken.
                    () = gives_way => debug!(request_id = %id, %target, "a stream gives its place to another"),
                }
            }
            Err(error) => debug!(request_id = %request.request_id, %error, "who asked is gone"),
        },
    }
}

/// Who has what a peer asks for, whatever the peer says of its clients: a node of another domain for all of that, so that the cloud still reaches those
/// whom it asks for; one of this domain for itself, so that its key uses up nothing of its neighbours'. `None`: it forwards for others, and says
/// for whom. Only those do who stand for an exposed domain, or whom this node took for a gateway.
fn answers_for(peer: &str, of: Domain, reverse: bool, mine: Option<&Domain>, view: &View) -> Option<Domain> {
    let exposed = view.is_exposed(&of);
    if reverse || exposed && view.speaks_for(peer, of.clone()).is_some() {
        return None;
    }
    let own = exposed || mine == Some(&of);
    Some(if own { Domain::Solo(peer.to_owned()) } else { of })
}

/// Where the client is that the peer does not vouch for. It is for the peer to say, who is the worse for it.
fn source(headers: &HeaderMap) -> Option<Source> {
    let said = headers.get(HEADER_SOURCE)?.to_str().ok().and_then(Source::read);
    Some(said.unwrap_or_else(|| IpAddr::from(Ipv4Addr::UNSPECIFIED).into()))
}

/// The peer's, if it is one, else a new one.
fn request_id(headers: &HeaderMap) -> Arc<str> {
    let theirs = headers.get(HEADER_REQUEST_ID).and_then(|id| id.to_str().ok());
    let usable = |id: &&str| {
        !id.is_empty()
            && id.len() <= REQUEST_ID_MAX
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    theirs.filter(usable).map_or_else(new_request_id, Arc::from)
}

/// A new identifier: to find log lines with, not a secret.
pub(crate) fn new_request_id() -> Arc<str> {
    format!("{:016x}", fastrand::u64(..)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{GatewayState, Node, Place};

    #[test]
    fn who_does_not_forward_for_others_answers_for_what_it_asks() {
        let pool = |name: &str| Domain::Pool(name.to_owned());
        let nodes = [
            ("c1", Place::Cloud, None),
            ("worker", Place::Cloud, None),
            ("x1", Place::Cloud, Some("x")),
            ("x2", Place::Cloud, Some("x")),
            ("a1", Place::Edge, Some("a")),
            ("a2", Place::Edge, Some("a")),
            ("a3", Place::Edge, Some("a")),
            ("solo", Place::Edge, None),
        ];
        let nodes = nodes.map(|(name, place, pool)| (name.to_owned(), Node::of(place, pool)));
        let gateways = [
            (Domain::Cloud, GatewayState::of(true, &["c0", "c1"])),
            (pool("x"), GatewayState::of(true, &["x1"])),
            (pool("a"), GatewayState::of(false, &["a0", "a1"])),
        ];
        let view = View { nodes: nodes.into(), gateways: gateways.into(), ..View::default() };
        let itself = |node: &str| Some(Domain::Solo(node.to_owned()));
        for (what, peer, mine, expected) in [
            ("another endpoint of the cloud", "c1", Domain::Cloud, None),
            ("a gateway of another exposed domain", "x1", Domain::Cloud, None),
            ("a cloud node that nobody lists", "worker", Domain::Cloud, itself("worker")),
            ("and one of another domain", "x2", Domain::Cloud, itself("x2")),
            ("a pool's endpoint at a gateway", "a1", Domain::Cloud, Some(pool("a"))),
            ("a node alone", "solo", Domain::Cloud, itself("solo")),
            ("an ordinary node at its pool's endpoint", "a2", pool("a"), itself("a2")),
            ("and another", "a3", pool("a"), itself("a3")),
            // Endpoints of a pool ask nothing of one another.
            ("an endpoint at another of its pool", "a1", pool("a"), itself("a1")),
        ] {
            let of = view.domain_of(peer).unwrap();
            assert_eq!(answers_for(peer, of.clone(), false, Some(&mine), &view), expected, "{what}");
            assert_eq!(answers_for(peer, of, true, Some(&mine), &view), None, "{what}, over a reverse link");
        }
    }

    #[test]
    fn a_client_that_the_peer_does_not_vouch_for_has_its_part_whatever_is_said_of_it() {
        let check = |said: Option<&str>| {
            let name = http::HeaderName::from_static(HEADER_SOURCE);
            let headers = said.map(|said| (name, http::HeaderValue::from_str(said).unwrap()));
            source(&headers.into_iter().collect())
        };
        let of = |address: &str| Some(Source::from(address.parse::<IpAddr>().unwrap()));
        assert_eq!(check(None), None);
        assert_eq!(check(Some("2001:db8::")), of("2001:db8::"));
        for known in [of("192.0.2.1").unwrap(), Source::Domain(7), Source::User(0)] {
            let said = check(Some(&known.to_string()));
            assert_eq!(said, if known == Source::User(0) { of("0.0.0.0") } else { Some(known) });
        }
    }

    #[test]
    fn identifiers_of_peers_are_taken_over_if_they_are_some() {
        let check = |id: &str| {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(HEADER_REQUEST_ID),
                http::HeaderValue::from_str(id).unwrap(),
            )]);
            request_id(&headers).as_ref() == id
        };
        assert!(check("abc-1"));
        assert!(!check(""));
        assert!(!check("a b"));
        assert!(!check(&"x".repeat(65)));
    }
}
