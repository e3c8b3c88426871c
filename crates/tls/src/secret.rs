//! Text that must not be seen: private keys in PEM. Not shown by `Debug`, wiped when dropped, not `Clone`.

use std::fmt;

use zeroize::Zeroizing;

/// A private key in PEM. Reading it takes a visible call to [`SecretPem::expose`].
pub struct SecretPem(Zeroizing<String>);

impl SecretPem {
    /// The key's text. For storing it or parsing it; never for a log.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretPem {
    fn from(pem: String) -> Self {
        Self(Zeroizing::new(pem))
    }
}

impl fmt::Debug for SecretPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretPem([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_the_key() {
        let key = SecretPem::from("sensitive".to_owned());
        assert_eq!(format!("{key:?}"), "SecretPem([redacted])");
        assert_eq!(key.expose(), "sensitive");
    }
}
