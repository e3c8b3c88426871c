//! Encryption of bodies at rest: ChaCha20-Poly1305, fast on nodes without AES instructions.
//!
//! A nonce is 96 random bits a record, never a counter: a counter restored from a log that lost its tail would be used
//! twice. Among 2^32 records under one key (seven years of 20 a second) the chance of any two alike is below 2^-32.
//! The associated data binds a body to its subscription, key and version, so none can be passed off as another.

use std::fmt;

use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
    rand::{SecureRandom, SystemRandom},
};

/// The secret of a store, 32 bytes that the caller keeps elsewhere.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// A key of 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Key(bytes)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(redacted)")
    }
}

/// Tells whether a file was sealed with a key, and nothing more about the key.
pub(crate) type KeyId = [u8; 8];

/// Seals and opens bodies.
pub(crate) struct Sealer {
    key: LessSafeKey,
    id: KeyId,
    random: SystemRandom,
}

impl Sealer {
    /// Derives the cipher's key and the key's name from `key`; `None` only if the cipher refuses its own key length.
    pub(crate) fn new(key: &Key) -> Option<Self> {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &key.0);
        let id = hmac::sign(&root, b"isthmus object-store 1: name of the key");
        let cipher = hmac::sign(&root, b"isthmus object-store 1: bodies");
        let key = UnboundKey::new(&CHACHA20_POLY1305, cipher.as_ref()).ok()?;
        let id = id.as_ref().first_chunk().copied()?;
        Some(Sealer { key: LessSafeKey::new(key), id, random: SystemRandom::new() })
    }

    pub(crate) fn id(&self) -> KeyId {
        self.id
    }

    /// Nonce, ciphertext and tag of `body`.
    pub(crate) fn seal(&self, bound_to: &[u8], body: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = Vec::with_capacity(NONCE_LEN + body.len() + CHACHA20_POLY1305.tag_len());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(body);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let text = sealed.get_mut(NONCE_LEN..)?;
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(bound_to), text).ok()?;
        sealed.extend_from_slice(tag.as_ref());
        Some(sealed)
    }

    /// The body that was sealed; `None` when it is not what was sealed for `bound_to` with this key.
    pub(crate) fn open(&self, bound_to: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key.open_in_place(nonce, Aad::from(bound_to), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(redacted)")
    }
}

/// What a body is bound to, each part with its length before it.
pub(crate) fn binding(subscription: &str, key: &[u8], version: u64) -> Vec<u8> {
    let mut bound = Vec::with_capacity(subscription.len() + key.len() + 24);
    for part in [subscription.as_bytes(), key] {
        bound.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bound.extend_from_slice(part);
    }
    bound.extend_from_slice(&version.to_le_bytes());
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_opens_only_for_what_it_was_sealed_for() {
        let own = Sealer::new(&Key::new([7; 32])).unwrap();
        let body = own.seal(&binding("s", b"k", 1), b"body").unwrap();
        assert_eq!(own.open(&binding("s", b"k", 1), &body).unwrap(), b"body");
        for other in
            [binding("t", b"k", 1), binding("s", b"l", 1), binding("s", b"k", 2), binding("sk", b"", 1)]
        {
            assert_eq!(own.open(&other, &body), None);
        }
        let stranger = Sealer::new(&Key::new([8; 32])).unwrap();
        assert_eq!(stranger.open(&binding("s", b"k", 1), &body), None);
        assert_ne!(stranger.id(), own.id());
        assert!(!body.windows(4).any(|bytes| bytes == b"body"));
        assert_ne!(own.seal(&binding("s", b"k", 1), b"body").unwrap(), body, "the nonce is new each time");
    }
}
