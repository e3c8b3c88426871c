//! SHA-256 as a value: fingerprints of certificates, and keys of caches that must not hold what they stand for.

use std::fmt;

/// A SHA-256 digest. Shows itself as lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut digest = [0; 32];
        // ring's SHA-256 is 32 bytes by definition.
        digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
        Self(digest)
    }

    /// Reads what it shows itself as, in digits of either case; nothing but that.
    pub fn from_hexadecimal(digits: &str) -> Option<Self> {
        let digits = digits.as_bytes();
        let mut digest = [0; 32];
        if digits.len() != 2 * digest.len() {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            // Two digits of four bits are a byte.
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Self(digest))
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Sha256Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_sha_256_everyone_knows() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Sha256Digest::of(b"abc").to_string(), expected);
        assert_eq!(format!("{:?}", Sha256Digest::of(b"abc")), format!("sha256:{expected}"));
        assert_eq!(Sha256Digest::from_hexadecimal(expected), Some(Sha256Digest::of(b"abc")));
        assert_eq!(Sha256Digest::from_hexadecimal(&expected[1..]), None);
    }
}
