//! Front proxy, client certificate, bearer token: in this order, and the first that recognises the caller decides.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use http::{HeaderMap, HeaderName, header};
use tls::digest::Sha256Digest;

use super::{AuthenticationError, Authenticator, Peer, Trust, User};
use crate::delegated::Delegated;

/// A token longer than this is none.
const TOKEN_MAX: usize = 16 << 10;

/// Says who holds a token. Must not log it.
pub trait TokenReviewer: Send + Sync + 'static {
    /// The holder; `None` if it is no token.
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<User>, Box<dyn std::error::Error + Send + Sync>>>;
}

/// Finds callers as the API server's extensions do.
pub struct DelegatingAuthenticator {
    trust: Arc<Trust>,
    reviewer: Arc<dyn TokenReviewer>,
    tokens: Delegated<Option<User>>,
}

impl DelegatingAuthenticator {
    /// One that recognises certificates by `trust`, and tokens by `reviewer`.
    pub fn new(trust: Arc<Trust>, reviewer: Arc<dyn TokenReviewer>) -> Self {
        Self { trust, reviewer, tokens: Delegated::new() }
    }

    async fn token(&self, token: &str) -> Result<Option<User>, AuthenticationError> {
        let digest = Sha256Digest::of(token.as_bytes());
        let found = self.tokens.answer(digest, || self.reviewer.review(token), Option::is_none).await;
        found.map_err(AuthenticationError::Unavailable)
    }
}

/// The token of `Authorization: Bearer …`; `None` if another scheme or nothing stands there.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl Authenticator for DelegatingAuthenticator {
    fn authenticate<'a>(
        &'a self,
        peer: &'a Peer,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Option<User>, AuthenticationError>> {
        async move {
            let mut refusals = Vec::new();
            if !peer.certificates.is_empty() {
                let trust = self.trust.parts();
                // A front proxy's authority signs no users, and a user's no front proxies, even if both are in one `ConfigMap`.
                match trust.front_proxy.as_ref().map(|proxy| proxy.authenticate(&peer.certificates, headers))
                {
                    Some(Ok(Some(user))) => return Ok(Some(user)),
                    Some(Err(why)) => refusals.push(why),
                    Some(Ok(None)) | None => {}
                }
                match trust.clients.as_ref().map(|clients| clients.verify(&peer.certificates)) {
                    Some(Ok(names)) => match names.user() {
                        Some(user) => return Ok(Some(user)),
                        None => refusals.push("a certificate without a name".to_owned()),
                    },
                    Some(Err(why)) => refusals.push(why),
                    None => refusals.push("no authority of clients is known".to_owned()),
                }
            }
            if let Some(token) = bearer(headers) {
                let found = if token.len() > TOKEN_MAX { None } else { self.token(token).await? };
                match found {
                    Some(user) => return Ok(Some(user)),
                    None => refusals.push("invalid bearer token".to_owned()),
                }
            }
            if refusals.is_empty() {
                Ok(None)
            } else {
                Err(AuthenticationError::Refused(refusals.join("; ")))
            }
        }
        .boxed()
    }

    fn strip(&self, headers: &mut HeaderMap) {
        headers.remove(header::AUTHORIZATION);
        if let Some(proxy) = &self.trust.parts().front_proxy {
            proxy.strip(headers);
        }
        let claims: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
        for name in claims {
            headers.remove(name);
        }
    }
}
