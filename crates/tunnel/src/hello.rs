//! How the two ends of a link introduce themselves.
//!
//! Nothing in a [`Hello`] gives a right: who the peer is comes from its certificate, which domain it stands for from the view.

use serde::{Deserialize, Serialize};

use crate::protocol::{Class, MAX_HELLO, VERSION};

/// What an end says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the protocol it speaks.
    pub protocol: u32,
    /// Which run of the process it is: another one after each start.
    pub instance: String,
    /// For which traffic the one that dialled made the link. The other end's says nothing.
    pub class: Class,
    /// Which software it is, for those who look.
    #[serde(default)]
    pub software: String,
}

/// Why an introduction was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Too long, or not what was expected.
    #[error("malformed hello")]
    Malformed,
    /// Another version of the protocol.
    #[error("protocol {0} is not spoken here")]
    Protocol(u32),
}

impl Hello {
    /// Our own.
    pub fn new(instance: impl Into<String>, class: Class) -> Self {
        let software = concat!("isthmus/", env!("CARGO_PKG_VERSION")).to_owned();
        Self { protocol: VERSION, instance: instance.into(), class, software }
    }

    /// As it is sent.
    pub fn to_json(&self) -> Vec<u8> {
        // Strings and a number: there is nothing in it that cannot be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a peer's. Fields that are unknown are left alone.
    pub fn from_json(body: &[u8]) -> Result<Self, HelloError> {
        #[derive(Deserialize)]
        struct Version {
            protocol: u32,
        }
        if body.len() > MAX_HELLO {
            return Err(HelloError::Malformed);
        }
        // The version first: the rest may look otherwise in another one.
        let version: Version = serde_json::from_slice(body).map_err(|_| HelloError::Malformed)?;
        if version.protocol != VERSION {
            return Err(HelloError::Protocol(version.protocol));
        }
        serde_json::from_slice(body).map_err(|_| HelloError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellos_are_read_whatever_is_added_to_them() {
        let ours = Hello::new("x", Class::Bulk);
        assert_eq!(Hello::from_json(&ours.to_json()), Ok(ours));
        let newer = br#"{"protocol":1,"instance":"i","class":"interactive","more":{"a":1}}"#;
        assert_eq!(Hello::from_json(newer).unwrap().instance, "i");
        assert_eq!(Hello::from_json(br#"{"protocol":2}"#), Err(HelloError::Protocol(2)));
        for bad in [&b""[..], b"{}", b"[]", b"{\"protocol\":1}", b"\xff", &[b' '; MAX_HELLO + 1]] {
            assert_eq!(Hello::from_json(bad), Err(HelloError::Malformed));
        }
    }
}
