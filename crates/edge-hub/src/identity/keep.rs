//! The task that keeps the hub's certificate: its own, which it renews, or files of others, which it follows.

use std::{fs, path::Path, sync::Arc, time::Duration};

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use tls::{certificate::Certificate, digest::Sha256Digest, pem_file, window::until};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    BootstrapToken, Identity, IdentityKind, IdentityState,
    ask::{self, AskError},
    files::{Own, expired},
    hangup::Hangup,
    meters::{Failure, IdentityMeters},
    plan::{self, LONGEST, Situation, Start, Step, With},
    shown::Shown,
    view::Report,
};
use crate::{
    authenticate::user_of,
    upstream::{Connector, Endpoint, TlsMaterial, Upstream, jittered},
};

/// How long to wait after a failure: first and longest.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(5));

/// How often it is looked whether a given certificate that has ended was renewed.
const RENEWED: Duration = Duration::from_secs(5);

/// What is said of a certificate that is not that of this node.
const ANOTHER_NODE: &str =
    "the certificate is that of another node than --node-name: what only this node may read is refused";

/// What the task needs.
pub struct Keeper {
    identity: Identity,
    endpoints: Vec<Endpoint>,
    connector: Arc<Connector>,
    upstream: Upstream,
    meters: IdentityMeters,
    report: Report,
    shown: watch::Sender<Option<Shown>>,
    hangup: Hangup,
    /// Digest of the given certificate that the connector uses.
    given: Option<Sha256Digest>,
    /// Whether the connector has no certificate to show.
    bare: bool,
}

impl Keeper {
    /// Ready to run. From now on SIGHUP does not end the process: it means that the certificate is to be renewed.
    pub fn new(
        identity: Identity,
        endpoints: Vec<Endpoint>,
        connector: Arc<Connector>,
        upstream: Upstream,
        meters: IdentityMeters,
    ) -> std::io::Result<Self> {
        let hangup = Hangup::listen()?;
        let given = digest(&identity.config.given.0, &identity.ca);
        let bare = matches!(identity.start, Start::Nothing(_));
        let report = Report::default();
        let (shown, _) = watch::channel(match identity.start {
            Start::Own => Some(Shown::own(&identity.files, &identity.ca)),
            Start::Given => Some(Shown::given(&identity)),
            Start::Nothing(_) => None,
        });
        let keeper =
            Self { identity, endpoints, connector, upstream, meters, report, shown, hangup, given, bare };
        if keeper.identity.start == Start::Given {
            keeper.shows_given();
        }
        Ok(keeper)
    }

    /// Where it says how it is.
    pub fn report(&self) -> Report {
        self.report.clone()
    }

    /// The files of what is shown, anew at each change.
    pub fn shown(&self) -> watch::Receiver<Option<Shown>> {
        self.shown.subscribe()
    }

    /// Keeps the identity until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let keep = async {
            match self.identity.config.kind {
                IdentityKind::Kubelet => self.follow().await,
                IdentityKind::Own => self.renew().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = keep => {}
        }
    }

    /// Follows files that somebody else renews.
    async fn follow(mut self) {
        loop {
            let (now, end) = (Timestamp::now(), self.shows_given());
            let rest = match end {
                Some(end) if end <= now => {
                    self.leave_given(end);
                    RENEWED
                }
                _ => {
                    self.use_given();
                    end.map_or(LONGEST, |end| until(now, end).min(LONGEST))
                }
            };
            self.rest(rest).await;
        }
    }

    /// Keeps a certificate of its own.
    async fn renew(mut self) {
        let mut forced = false;
        let mut pause = BACKOFF.0;
        loop {
            let own = self.identity.files.own(&self.identity.config.node);
            let token = self.identity.config.token.as_deref().map(BootstrapToken::read);
            let situation = Situation {
                own: own.as_ref().map(|own| (own.certificate.validity(), own.jitter())),
                given: valid(&self.identity.config.given.0),
                token: matches!(token, Some(Ok(_))),
                forced,
            };
            let step = plan::next(situation, Timestamp::now());
            self.say(own.as_ref(), step);
            let asked = match step {
                Step::Rest(rest) => {
                    forced = self.rest(rest).await;
                    continue;
                }
                Step::Stuck { .. } => Err(AskError::new(Failure::Stuck, stuck(own.as_ref(), token))),
                Step::Ask(With::Own) => self.with_certificate().await,
                Step::Ask(With::Given) => {
                    self.use_given();
                    self.with_certificate().await
                }
                Step::Ask(With::Token) => {
                    self.show_nothing(own.as_ref());
                    match token {
                        Some(Ok(token)) => self.with_token(&token).await,
                        // The plan asks with a token only if there is one.
                        _ => Err(AskError::new(Failure::Stuck, "no token")),
                    }
                }
            };
            match asked.and_then(|own| self.take(&own)) {
                Ok(()) => {
                    forced = false;
                    pause = BACKOFF.0;
                }
                Err(AskError { failure, reason }) => {
                    self.meters.failed(failure);
                    warn!(reason, retry = ?pause, "the hub has no new certificate");
                    self.report.problem(Some(reason));
                    if failure == Failure::Stuck {
                        self.show_nothing(own.as_ref());
                    }
                    if self.rest(jittered(pause)).await {
                        // Who asks by hand has mended something.
                        (pause, forced) = (BACKOFF.0, true);
                    } else {
                        pause = (pause * 2).min(BACKOFF.1);
                    }
                }
            }
        }
    }

    async fn with_certificate(&self) -> Result<Own, AskError> {
        let Identity { config, files, .. } = &self.identity;
        Box::pin(ask::with_certificate(config, files, &self.upstream)).await
    }

    async fn with_token(&self, token: &BootstrapToken) -> Result<Own, AskError> {
        let Identity { config, files, .. } = &self.identity;
        Box::pin(ask::with_token(config, files, token, &self.endpoints, self.connector.clone())).await
    }

    /// Uses a certificate that was just kept.
    fn take(&mut self, own: &Own) -> Result<(), AskError> {
        let material = self.identity.files.material(&self.identity.ca);
        let material = material.map_err(|error| AskError::new(Failure::Unusable, error.to_string()))?;
        self.connector.replace(material);
        self.shown.send_replace(Some(Shown::own(&self.identity.files, &self.identity.ca)));
        self.bare = false;
        self.given = None;
        self.meters.renewed();
        self.report.problem(None);
        info!(not_after = %own.certificate.validity().not_after, "the hub has a new certificate");
        Ok(())
    }

    /// Uses the files of others if they changed.
    fn use_given(&mut self) {
        let (certificate, key) = &self.identity.config.given;
        let found = digest(certificate, &self.identity.ca);
        if found.is_none() || found == self.given {
            return;
        }
        match TlsMaterial::read(&self.identity.ca, certificate, key) {
            Ok(material) => {
                self.connector.replace(material);
                self.shown.send_replace(Some(Shown::given(&self.identity)));
                self.given = found;
                self.bare = false;
                self.meters.renewed();
                self.report.problem(None);
                info!(path = %certificate.display(), "using the certificate, and the authorities, as they are now");
            }
            // It may be half written; what was used before goes on.
            Err(error) => {
                self.meters.failed(Failure::Unusable);
                self.report.problem(Some(error.to_string()));
                warn!(%error, "the certificate changed and cannot be used");
            }
        }
    }

    /// Shows the given one no longer, as it ended then, until there is another.
    fn leave_given(&mut self, end: Timestamp) {
        let path = self.identity.config.given.0.display();
        let reason = format!("{path} expired at {end}, and whoever renews it has not");
        if !self.bare {
            warn!(reason, "there is no link without a certificate");
        }
        self.report.problem(Some(reason.clone()));
        self.show_none(&reason);
    }

    /// Shows no certificate: its own is no longer one, or there is none.
    fn show_nothing(&mut self, own: Option<&Own>) {
        let none = || "the hub has no certificate".to_owned();
        self.show_none(&own.map_or_else(none, |own| expired(&own.certificate)));
    }

    /// Ends a link whose certificate the API server no longer takes: callers are told that there is none, and are answered from what is held, where
    /// the API server would answer 401.
    fn show_none(&mut self, reason: &str) {
        if self.bare {
            return;
        }
        match TlsMaterial::without_certificate(&self.identity.ca, reason) {
            Ok(material) => {
                self.connector.replace(material);
                self.bare = true;
                self.given = None;
            }
            Err(error) => warn!(%error, "the cluster's authority cannot be read"),
        }
    }

    /// Says how the given one is, and when it ends.
    fn shows_given(&self) -> Option<Timestamp> {
        let certificate = first(&self.identity.config.given.0);
        let end = certificate.as_ref().and_then(end);
        self.meters.expires(end);
        let state = match end {
            Some(end) if end < Timestamp::now() => IdentityState::Expired,
            _ => IdentityState::Given,
        };
        let user: Option<String> = certificate.as_ref().and_then(user_of).map(|user| user.name.into());
        let before = self.report.view().user;
        let of = user.as_deref().and_then(|user| user.strip_prefix(api::names::NODE_USER_PREFIX));
        let of = of.filter(|of| *of != self.identity.config.node);
        if let Some(of) = of.filter(|_| user != before) {
            warn!(of, node = %self.identity.config.node, "{ANOTHER_NODE}");
        }
        let unfit = of.map(|_| ANOTHER_NODE);
        self.report.shows(state, user, end, None, unfit);
        end
    }

    fn say(&self, own: Option<&Own>, step: Step) {
        match (own, step) {
            (_, Step::Ask(With::Given)) => _ = self.shows_given(),
            (Some(own), _) => {
                let validity = own.certificate.validity();
                let lives = matches!(step, Step::Rest(_) | Step::Ask(With::Own));
                let state = if lives { IdentityState::Own } else { IdentityState::Expired };
                let renew_at = lives.then(|| plan::renew_at(validity, own.jitter()));
                self.meters.expires(Some(validity.not_after));
                self.report.shows(state, None, Some(validity.not_after), renew_at, None);
            }
            (None, _) => {
                self.meters.expires(None);
                self.report.shows(IdentityState::Missing, None, None, None, None);
            }
        }
    }

    /// Rests so long; returns early, and says so, when SIGHUP asks for a new certificate.
    async fn rest(&mut self, rest: Duration) -> bool {
        let heard = self.hangup.rest(rest).await;
        if heard {
            info!("SIGHUP: looking for a new certificate");
        }
        heard
    }
}

/// Why nothing can be asked for.
fn stuck(own: Option<&Own>, token: Option<Result<BootstrapToken, super::TokenError>>) -> String {
    let state = own.map_or_else(|| "the hub has no certificate".to_owned(), |own| expired(&own.certificate));
    match token {
        Some(Err(error)) => format!("{state}, and there is no token to ask for one: {error}"),
        _ => format!("{state}, and there is nothing to ask for one with: give it --bootstrap-token-file"),
    }
}

/// Whether the first certificate of a file is valid now.
fn valid(path: &Path) -> bool {
    first(path).as_ref().and_then(end).is_some_and(|end| end >= Timestamp::now())
}

/// The first of a file; `None` if none can be read, as while it is being written.
fn first(path: &Path) -> Option<CertificateDer<'static>> {
    pem_file::certificates(path).ok()?.into_iter().next()
}

/// When it ends.
fn end(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    Some(Certificate::from_der(certificate.to_vec()).ok()?.validity().not_after)
}

fn digest(certificate: &Path, authorities: &Path) -> Option<Sha256Digest> {
    let content = [fs::read(certificate).ok()?, fs::read(authorities).unwrap_or_default()].concat();
    Some(Sha256Digest::of(&content))
}
