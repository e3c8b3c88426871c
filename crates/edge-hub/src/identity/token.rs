//! A bootstrap token: what a machine has that is to become a node. Its first half is a name, its second a secret.
//! <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>

use std::{fmt, fs, io, path::Path};

use http::HeaderValue;
use tls::private_file;

/// The token. Its secret is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    id: String,
    secret: String,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which one.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others than its owner may read the file.
    #[error("{0} may be read by others: make its mode 0600")]
    Open(String),
    /// It is no token. What it is instead is left out: it may be a secret.
    #[error("{0} holds no bootstrap token: six of a-z and 0-9, a dot, sixteen of a-z and 0-9")]
    Malformed(String),
}

impl BootstrapToken {
    /// Reads the token from a file that only its owner may read.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let name = || path.display().to_string();
        let read = |source| TokenError::Read { path: name(), source };
        let text = fs::read_to_string(path).map_err(read)?;
        if private_file::is_open_to_others(path).map_err(read)? {
            return Err(TokenError::Open(name()));
        }
        Self::parse(&text).ok_or_else(|| TokenError::Malformed(name()))
    }

    /// Reads `id.secret`.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.trim().split_once('.')?;
        let plain = |text: &str, length| {
            text.len() == length
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        (plain(id, 6) && plain(secret, 16)).then(|| Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// Its public half.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its secret half, as a key. For signatures; never for a log.
    pub(super) fn key(&self) -> &[u8] {
        self.secret.as_bytes()
    }

    /// The header that shows it.
    pub(super) fn header(&self) -> HeaderValue {
        // Its characters are those of header values.
        let value = HeaderValue::try_from(format!("Bearer {}.{}", self.id, self.secret));
        let mut value = value.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BootstrapToken({}.…)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn reads_tokens_and_nothing_else() {
        assert_eq!(BootstrapToken::parse(" abc123.0123456789abcdef\n").unwrap().id(), "abc123");
        for text in [
            "",
            "abc123",
            "abc12.0123456789abcdef",
            "abc123.0123456789abcde",
            "ABC123.0123456789abcdef",
            "abc123.0123456789abcdef.x",
        ] {
            assert_eq!(BootstrapToken::parse(text), None, "{text}");
        }
    }

    #[test]
    fn its_secret_is_not_shown_and_its_file_is_not_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "abc123.0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(BootstrapToken::read(&path), Err(TokenError::Open(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let token = BootstrapToken::read(&path).unwrap();
        assert!(!format!("{token:?} {:?}", token.header()).contains("0123456789abcdef"));
        fs::write(&path, "secret").unwrap();
        let error = BootstrapToken::read(&path).unwrap_err().to_string();
        assert!(error.contains("no bootstrap token") && !error.contains("secret"), "{error}");
    }
}
