//! Whose a connection is: its listener is told by what is found out of the credentials in its requests, so that nobody takes all of its places.

use http::StatusCode;

use crate::{
    authenticate::{Caller, tokens::Standing},
    hub::Hub,
    listen::Seat,
};

/// Says so before there is an answer, if it is known: whoever waits for one is not to make room as if it had said nothing.
pub(super) fn tell_before(hub: &Hub, caller: &Caller, seat: &Seat) {
    match caller {
        Caller::Node => seat.is_of_node(),
        Caller::Certificate(user) => seat.is_of_user(&user.name),
        Caller::Token(token) if !seat.is_named() => {
            if let Some(name) = hub.tokens.reviewed(token) {
                seat.is_of_user(&name);
            }
        }
        Caller::Token(_) => {}
    }
}

/// Says so of a token by how its request was answered.
pub(super) fn tell_after(hub: &Hub, caller: &Caller, seat: &Seat, status: StatusCode) {
    let Caller::Token(token) = caller else { return };
    if seat.is_named() || !proves(status) {
        return;
    }
    match hub.tokens.standing(token) {
        Standing::IssuedTo(name) => seat.is_of_user(&name),
        Standing::Unknown => seat.is_of_somebody(),
        Standing::MadeUp => {}
    }
}

/// Whether so is answered only who has shown a good credential. What is malformed, or cannot be looked into, is answered to anybody.
fn proves(status: StatusCode) -> bool {
    let of_good = [StatusCode::SWITCHING_PROTOCOLS, StatusCode::NOT_MODIFIED];
    let refused = [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::CONFLICT, StatusCode::GONE];
    status.is_success() || of_good.contains(&status) || refused.contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_anybody_is_answered_proves_nothing() {
        for (status, expected) in [
            (101, true),
            (200, true),
            (201, true),
            (403, true),
            (404, true),
            (400, false),
            (401, false),
            (429, false),
            (503, false),
        ] {
            assert_eq!(proves(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }
}
