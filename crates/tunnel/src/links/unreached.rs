//! The gateways that were dialled in vain.

use std::{collections::BTreeMap, error::Error};

use parking_lot::Mutex;

/// By gateway and address, what came of dialling it last, where that is no link.
#[derive(Debug, Default)]
pub(super) struct Unreached(Mutex<BTreeMap<(String, String), String>>);

impl Unreached {
    /// What came of dialling a gateway at an address.
    pub(super) fn note(&self, gateway: &str, address: &str, failed: Option<&dyn Error>) {
        let (mut unreached, at) = (self.0.lock(), (gateway.to_owned(), address.to_owned()));
        match failed {
            Some(why) => drop(unreached.insert(at, chain(why))),
            None => drop(unreached.remove(&at)),
        }
    }

    /// A line for each.
    pub(super) fn all(&self) -> Vec<String> {
        let unreached = self.0.lock();
        let line = |((gateway, address), why): (&(String, String), &String)| {
            format!("no link to {gateway} at {address}: {why}")
        };
        unreached.iter().map(line).collect()
    }
}

/// An error and what is behind it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::link::LinkError;

    #[test]
    fn what_is_in_vain_is_told_until_it_is_not() {
        let unreached = Unreached::default();
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        unreached.note("c1", "192.0.2.1:10262", Some(&refused));
        unreached.note("c2", "192.0.2.2:10262", Some(&LinkError::Silent));
        let first = "no link to c1 at 192.0.2.1:10262: connection refused";
        assert_eq!(unreached.all(), [first, "no link to c2 at 192.0.2.2:10262: the peer fell silent"]);
        unreached.note("c2", "192.0.2.2:10262", None);
        assert_eq!(unreached.all(), [first]);
    }
}
