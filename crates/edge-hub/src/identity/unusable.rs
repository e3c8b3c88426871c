//! A file that an option names and that cannot be used: which option it is, and what to do on a node that has not joined.

use std::{io::ErrorKind, path::Path};

use tls::pem_file::PemFileError;

use crate::upstream::TlsMaterialError;

/// The file of authorities by default: where kubeadm puts them as a node joins.
pub const AUTHORITIES: &str = "/etc/kubernetes/pki/ca.crt";

/// That of the client certificate and its key by default: the kubelet's.
pub const KUBELETS: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// Why a file that must be there cannot be used, by the option that names it.
#[derive(Debug, thiserror::Error)]
#[error("{option}{note}: {source}{remedy}")]
pub struct UnusableFile {
    option: &'static str,
    note: &'static str,
    source: Box<TlsMaterialError>,
    remedy: &'static str,
}

impl UnusableFile {
    pub(super) fn new(option: &'static str, path: &Path, source: impl Into<TlsMaterialError>) -> Self {
        let source = source.into();
        let of_default = [
            (AUTHORITIES, "; join this node first, or give --ca-file or --ca-cert-hash"),
            (KUBELETS, "; join this node first, or give --identity=own and --bootstrap-token-file"),
        ];
        let default = of_default.into_iter().find(|(default, _)| path == Path::new(default));
        let is_absent = matches!(
            &source,
            TlsMaterialError::File(PemFileError::Read { source, .. }) if source.kind() == ErrorKind::NotFound
        );
        Self {
            option,
            note: if default.is_some() { " (the default)" } else { "" },
            source: Box::new(source),
            remedy: default.filter(|_| is_absent).map_or("", |(_, remedy)| remedy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_option_is_named_and_what_to_do_if_the_default_is_not_there() {
        for (option, path, kind, expected) in [
            ("--ca-file", "/nope", ErrorKind::NotFound, "--ca-file: cannot read /nope: gone"),
            (
                "--client-cert-file",
                KUBELETS,
                ErrorKind::NotFound,
                "--client-cert-file (the default): cannot read /var/lib/kubelet/pki/kubelet-client-current.pem: gone; join this node first, or give --identity=own and --bootstrap-token-file",
            ),
            (
                "--client-cert-file",
                KUBELETS,
                ErrorKind::PermissionDenied,
                "--client-cert-file (the default): cannot read /var/lib/kubelet/pki/kubelet-client-current.pem: gone",
            ),
            (
                "--ca-file",
                AUTHORITIES,
                ErrorKind::NotFound,
                "--ca-file (the default): cannot read /etc/kubernetes/pki/ca.crt: gone; join this node first, or give --ca-file or --ca-cert-hash",
            ),
        ] {
            let source = std::io::Error::new(kind, "gone");
            let error = PemFileError::Read { path: path.to_owned(), source };
            assert_eq!(UnusableFile::new(option, Path::new(path), error).to_string(), expected);
        }
    }
}
