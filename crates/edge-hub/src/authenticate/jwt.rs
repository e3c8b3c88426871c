//! `ServiceAccount` tokens checked without the network: signature by the cluster's published keys, issuer, audience, time.
//!
//! Sources: RFC 7515 (JWS), RFC 7517 (JWK), RFC 7519 (JWT); the cluster publishes its keys at `/openid/v1/jwks` (KEP-1393).
//! This says that a token was issued and has not expired. That its pod still exists only the API server knows, which is why an
//! online answer is preferred and this one is for when there is no link.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use super::{AUTHENTICATED, User};

/// The cluster's public keys, as `/openid/v1/jwks` gives them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Key {
    #[serde(default)]
    kid: String,
    kty: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    #[serde(default)]
    aud: Audiences,
    exp: Option<i64>,
    #[serde(default)]
    nbf: i64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

impl Default for Audiences {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// What the hub expects of a token.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The cluster's issuer, from its discovery document; tokens of another one are refused.
    pub issuer: String,
    /// Audiences of which a token must name one: the API server's.
    pub audiences: Vec<String>,
}

/// Why a token is not taken. None of them quotes the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not three parts of base64 with the fields of a token.
    #[error("malformed token")]
    Malformed,
    /// No key of that name, or an algorithm that the key is not for.
    #[error("the token is signed with an unknown key")]
    UnknownKey,
    /// The signature is not that of the key.
    #[error("the token's signature is wrong")]
    Signature,
    /// Issued by somebody else, or for somebody else.
    #[error("the token is of another issuer or for another audience")]
    NotForUs,
    /// Its end has come.
    #[error("the token has expired")]
    Expired,
    /// Signed by the cluster, and without an end: that of a Secret of type `kubernetes.io/service-account-token`, which is good for as long as that is there.
    #[error("the token has no end, so only the API server knows whether it is still good")]
    Endless,
    /// The subject is no `ServiceAccount`.
    #[error("the token is not that of a ServiceAccount")]
    Subject,
}

impl KeySet {
    /// Reads a JSON Web Key Set.
    pub fn from_json(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// The user of a token that is good at `now`, and since when it is (Unix seconds), which may be later: then the clock is behind, and that is no
    /// reason to refuse it, as nobody issues tokens ahead of time.
    pub fn verify(&self, token: &str, expected: &Expected, now: i64) -> Result<(User, i64), Refused> {
        let claims = self.claims(token)?;
        let exp = claims.exp.ok_or(Refused::Endless)?;
        let audience = |wanted: &String| match &claims.aud {
            Audiences::One(audience) => audience == wanted,
            Audiences::Many(audiences) => audiences.contains(wanted),
        };
        if claims.iss != expected.issuer || !expected.audiences.iter().any(audience) {
            return Err(Refused::NotForUs);
        }
        if now.max(claims.nbf) >= exp {
            return Err(Refused::Expired);
        }
        Ok((service_account(&claims.sub).ok_or(Refused::Subject)?, claims.nbf))
    }

    /// Whose token it is, by one of the keys; whether it is still good, and here, is not looked at.
    pub fn signed_for(&self, token: &str) -> Option<Box<str>> {
        self.claims(token).ok().map(|claims| claims.sub.into())
    }

    /// Whether a token says that one of the keys signed it for this issuer, and that is not so. To know that nobody need be asked.
    pub fn is_forged(&self, token: &str, issuer: &str) -> bool {
        let says = || {
            let (header, rest) = token.split_once('.')?;
            let header: Header = part(header).ok()?;
            let claims: Claims = part(rest.split_once('.')?.0).ok()?;
            Some(!header.kid.is_empty() && claims.iss == issuer)
        };
        says() == Some(true) && matches!(self.claims(token), Err(Refused::Signature))
    }

    /// What a token says that one of the keys signed.
    fn claims(&self, token: &str) -> Result<Claims, Refused> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Refused::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Refused::Malformed)?;
        let header: Header = part(header)?;
        let signature = BASE64.decode(signature).map_err(|_| Refused::Malformed)?;
        self.check(&header, signed.as_bytes(), &signature)?;
        part(claims)
    }

    fn check(&self, header: &Header, signed: &[u8], signature: &[u8]) -> Result<(), Refused> {
        let mut known = false;
        for key in self.keys.iter().filter(|key| header.kid.is_empty() || key.kid == header.kid) {
            let Some(verified) = key.verify(&header.alg, signed, signature) else { continue };
            known = true;
            if verified {
                return Ok(());
            }
        }
        Err(if known { Refused::Signature } else { Refused::UnknownKey })
    }
}

/// When a token says that it expires (Unix seconds); nothing of it is checked. `None` if it does not say.
pub fn claimed_expiry(token: &str) -> Option<i64> {
    claims::<Times>(token)?.exp
}

/// The same of when it begins.
pub fn claimed_begin(token: &str) -> Option<i64> {
    claims::<Times>(token)?.nbf
}

#[derive(Deserialize)]
struct Times {
    exp: Option<i64>,
    nbf: Option<i64>,
}

/// What a token says of itself; nothing of it is checked.
pub fn claims<T: for<'a> Deserialize<'a>>(token: &str) -> Option<T> {
    let (signed, _) = token.rsplit_once('.')?;
    part(signed.split_once('.')?.1).ok()
}

impl Key {
    /// Whether the signature is this key's; `None` if the key is not for this algorithm. The algorithm must be the
    /// key's: a token does not choose how it is checked (RFC 8725, 3.1).
    fn verify(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> Option<bool> {
        match (self.kty.as_str(), algorithm) {
            ("RSA", "RS256" | "RS384" | "RS512") => {
                let parameters = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    _ => &signature::RSA_PKCS1_2048_8192_SHA512,
                };
                let (n, e) = (BASE64.decode(&self.n).ok()?, BASE64.decode(&self.e).ok()?);
                let key = RsaPublicKeyComponents { n: &n, e: &e };
                Some(key.verify(parameters, signed, signature).is_ok())
            }
            ("EC", "ES256" | "ES384") => {
                let parameters: &dyn signature::VerificationAlgorithm = match (self.crv.as_str(), algorithm) {
                    ("P-256", "ES256") => &signature::ECDSA_P256_SHA256_FIXED,
                    ("P-384", "ES384") => &signature::ECDSA_P384_SHA384_FIXED,
                    _ => return None,
                };
                // An uncompressed point (SEC 1, 2.3.3).
                let mut point = vec![4];
                point.extend(BASE64.decode(&self.x).ok()?);
                point.extend(BASE64.decode(&self.y).ok()?);
                Some(UnparsedPublicKey::new(parameters, point).verify(signed, signature).is_ok())
            }
            _ => None,
        }
    }
}

fn part<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, Refused> {
    let bytes = BASE64.decode(text).map_err(|_| Refused::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| Refused::Malformed)
}

/// `system:serviceaccount:<namespace>:<name>`, with the groups that every `ServiceAccount` is in.
fn service_account(subject: &str) -> Option<User> {
    let (namespace, name) = subject.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    if namespace.is_empty() || name.is_empty() || name.contains(':') {
        return None;
    }
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        AUTHENTICATED.to_owned(),
    ];
    Some(User { name: subject.into(), groups: groups.map(Into::into).to_vec() })
}

#[cfg(test)]
pub(super) mod tests {
    use ring::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
    };
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 2_000_000_000;

    /// A cluster's key, and what signs with it.
    pub(crate) struct Signer(EcdsaKeyPair, SystemRandom);

    impl Signer {
        pub(crate) fn new() -> Self {
            let random = SystemRandom::new();
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            let key =
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
            Self(key, random)
        }

        pub(crate) fn keys(&self) -> KeySet {
            let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
            let key = json!({ "kty": "EC", "crv": "P-256", "x": BASE64.encode(x), "y": BASE64.encode(y) });
            KeySet::from_json(json!({ "keys": [key] }).to_string().as_bytes()).unwrap()
        }

        /// A token of `b` in namespace `a`, of the issuer `i`.
        pub(crate) fn token(&self, audience: &str, nbf: i64, exp: i64) -> String {
            self.token_by("", audience, nbf, exp)
        }

        /// The same, which names the key that it is signed with.
        pub(crate) fn token_by(&self, kid: &str, audience: &str, nbf: i64, exp: i64) -> String {
            let claims = json!({ "iss": "i", "sub": "system:serviceaccount:a:b", "aud": audience, "nbf": nbf, "exp": exp });
            self.signed(kid, &claims)
        }

        fn signed(&self, kid: &str, claims: &Value) -> String {
            let part = |value: &Value| BASE64.encode(value.to_string());
            let signed = format!("{}.{}", part(&json!({ "alg": "ES256", "kid": kid })), part(claims));
            let signature = self.0.sign(&self.1, signed.as_bytes()).unwrap();
            format!("{signed}.{}", BASE64.encode(signature))
        }
    }

    #[test]
    fn the_clock_may_be_behind_and_no_token_outlives_its_end() {
        let signer = Signer::new();
        let expected = Expected { issuer: "i".to_owned(), audiences: vec!["i".to_owned()] };
        let verify =
            |nbf, exp| signer.keys().verify(&signer.token("i", nbf, exp), &expected, NOW).map(|(_, nbf)| nbf);
        assert_eq!(verify(NOW - 9, NOW + 1), Ok(NOW - 9));
        assert_eq!(verify(NOW + 3000, NOW + 6600), Ok(NOW + 3000));
        assert_eq!(verify(NOW + 3000, NOW + 3000), Err(Refused::Expired));
        assert_eq!(verify(NOW, NOW), Err(Refused::Expired));
    }

    #[test]
    fn of_a_token_without_an_end_nothing_is_known_but_who_signed_it() {
        let (signer, other) = (Signer::new(), Signer::new());
        let expected = Expected { issuer: "i".to_owned(), audiences: vec!["i".to_owned()] };
        let claims = json!({ "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:a:b" });
        let verify = |keys: KeySet| keys.verify(&signer.signed("", &claims), &expected, NOW).map(|_| ());
        assert_eq!(verify(signer.keys()), Err(Refused::Endless));
        assert_eq!(verify(other.keys()), Err(Refused::Signature));
    }

    #[test]
    fn a_token_is_forged_that_names_a_key_of_its_issuer_and_is_not_signed_with_it() {
        let (signer, other) = (Signer::new(), Signer::new());
        let named = |keys: KeySet| KeySet {
            keys: keys.keys.into_iter().map(|key| Key { kid: "k".to_owned(), ..key }).collect(),
        };
        let keys = named(signer.keys());
        let token = |by: &Signer, kid: &str| by.token_by(kid, "i", 0, NOW);
        for (what, token, issuer, forged) in [
            ("signed by another's key", token(&other, "k"), "i", true),
            ("as it should be", token(&signer, "k"), "i", false),
            ("of another issuer", token(&other, "k"), "other", false),
            ("by a key that is not known, which may be new", token(&other, "new"), "i", false),
            ("without a name of a key", token(&other, ""), "i", false),
            ("no token of this kind", "x.y.z".to_owned(), "i", false),
        ] {
            assert_eq!(keys.is_forged(&token, issuer), forged, "{what}");
        }
    }

    #[test]
    fn whose_a_token_is_says_its_signature() {
        let (signer, other) = (Signer::new(), Signer::new());
        let token = signer.token("elsewhere", 0, 0);
        assert_eq!(signer.keys().signed_for(&token).as_deref(), Some("system:serviceaccount:a:b"));
        assert_eq!(other.keys().signed_for(&token), None);
        assert_eq!(signer.keys().signed_for("x.y.z"), None);
    }
}
