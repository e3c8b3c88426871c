//! Files as whoever sets a node up puts them there, for tests.

use std::{fs, path::Path};

use testkit::api_server::pki::Identity;

use crate::identity::Shown;

/// Writes authorities, certificate and key into a folder, over those that are there.
pub(super) fn shown(folder: &Path, authorities: &str, own: &Identity) -> Shown {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    Shown {
        authority: file("ca.crt", authorities),
        certificate: file("own.crt", &own.certificate_pem),
        key: file("own.key", &own.key_pem),
    }
}
