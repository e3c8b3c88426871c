//! Asks the API server who holds a token and whether they may read metrics.

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};

use super::{PATH, ReviewError, Reviewer, Verdict};

/// Reviews by `TokenReview` and `SubjectAccessReview`. Needs the verb `create` on both.
#[derive(Clone)]
pub struct KubernetesReviewer(Client);

impl KubernetesReviewer {
    /// Asks through `client`.
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

impl Reviewer for KubernetesReviewer {
    async fn review(&self, token: &str) -> Result<Verdict, ReviewError> {
        let Some(user) = self.user(token).await? else {
            return Ok(Verdict::Unauthenticated);
        };
        let review = SubjectAccessReview { spec: access_of(user), ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.0.clone());
        let reviewed = api.create(&PostParams::default(), &review).await.map_err(failed)?;
        let allowed = reviewed.status.is_some_and(|status| status.allowed);
        Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }
}

impl KubernetesReviewer {
    async fn user(&self, token: &str) -> Result<Option<UserInfo>, ReviewError> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.0.clone());
        let reviewed = api.create(&PostParams::default(), &review).await.map_err(failed)?;
        let status = reviewed.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }
}

fn access_of(user: UserInfo) -> SubjectAccessReviewSpec {
    let UserInfo { extra, groups, uid, username } = user;
    let wanted = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
    SubjectAccessReviewSpec {
        extra,
        groups,
        uid,
        user: username,
        non_resource_attributes: Some(wanted),
        resource_attributes: None,
    }
}

fn failed(error: kube::Error) -> ReviewError {
    ReviewError(Box::new(error))
}
