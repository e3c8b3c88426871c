//! Reads small text files that anybody may have put there, without trusting what they are.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// More than any configuration file of a node; libcni has the same order of magnitude as its limit.
const LIMIT: u64 = 2 << 20;

/// Why a file has no text.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("it does not exist")]
    NotFound,
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is larger than {LIMIT} bytes")]
    TooLarge,
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("{0}")]
    Io(#[source] io::Error),
}

/// The text of a file; symbolic links are followed.
pub(super) fn text(path: &Path) -> Result<String, Error> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound,
        _ => Error::Io(error),
    };
    // Asked before it is opened: opening a pipe waits for its writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::NotAFile);
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LIMIT {
        return Err(Error::TooLarge);
    }
    String::from_utf8(bytes).map_err(|_| Error::NotText)
}
