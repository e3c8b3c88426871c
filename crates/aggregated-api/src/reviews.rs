//! Asks the API server who holds a token and what somebody may do. Needs the cluster role `system:auth-delegator`.

use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenReview, TokenReviewSpec},
        authorization::v1::{
            FieldSelectorAttributes, LabelSelectorAttributes, NonResourceAttributes, ResourceAttributes,
            SubjectAccessReview, SubjectAccessReviewSpec,
        },
    },
    apimachinery::pkg::apis::meta::v1::{FieldSelectorRequirement, LabelSelectorRequirement},
};
use kube::{Api, Client, api::PostParams};
use kube_wire::{
    request::{ApiPath, ResourcePath},
    selector_requirements::{SelectorRequirement, SelectorRequirements},
};

use crate::{
    authenticate::{TokenReviewer, User},
    authorize::{AccessReviewer, Attributes, Decision, path_verb},
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reviews by the API server: `TokenReview` and `SubjectAccessReview`.
#[derive(Clone)]
pub struct KubernetesReviews(Client);

impl KubernetesReviews {
    /// Asks through `client`.
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

impl TokenReviewer for KubernetesReviews {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, BoxError>> {
        async move {
            let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
            let review = TokenReview { spec, ..TokenReview::default() };
            let api: Api<TokenReview> = Api::all(self.0.clone());
            let status = api.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
            let found = status.user.filter(|_| status.authenticated == Some(true));
            Ok(found.map(|user| User {
                name: user.username.unwrap_or_default(),
                uid: user.uid.unwrap_or_default(),
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            }))
        }
        .boxed()
    }
}

impl AccessReviewer for KubernetesReviews {
    fn review<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Result<Decision, BoxError>> {
        async move {
            let review = SubjectAccessReview { spec: spec(attributes), ..SubjectAccessReview::default() };
            let api: Api<SubjectAccessReview> = Api::all(self.0.clone());
            let status = api.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
            Ok(if status.allowed && status.denied != Some(true) {
                Decision::Allowed
            } else {
                Decision::Denied(status.reason.unwrap_or_default())
            })
        }
        .boxed()
    }
}

fn spec(attributes: &Attributes) -> SubjectAccessReviewSpec {
    let Attributes { user, request, selectors } = attributes;
    let User { name, uid, groups, extra } = user.clone();
    let verb = Some(path_verb(attributes).to_owned());
    let mut spec = SubjectAccessReviewSpec {
        user: Some(name),
        uid: Some(uid).filter(|uid| !uid.is_empty()),
        groups: Some(groups),
        extra: Some(extra).filter(|extra| !extra.is_empty()),
        ..SubjectAccessReviewSpec::default()
    };
    match &request.path {
        ApiPath::NonResource(path) => {
            spec.non_resource_attributes = Some(NonResourceAttributes { path: Some(path.clone()), verb });
        }
        ApiPath::Resource(path) => {
            let ResourcePath { resource, namespace, name, subresource, verb_in_path: _ } = path;
            let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
            spec.resource_attributes = Some(ResourceAttributes {
                group: Some(resource.group.to_string()),
                version: Some(resource.version.to_string()),
                resource: Some(resource.resource.to_string()),
                subresource: text(subresource),
                namespace: text(namespace),
                name: text(name),
                verb,
                field_selector: field_selector(selectors),
                label_selector: label_selector(selectors),
            });
        }
    }
    spec
}

fn field_selector(selectors: &SelectorRequirements) -> Option<FieldSelectorAttributes> {
    let told = |key, operator, values| FieldSelectorRequirement { key, operator, values };
    let requirements = requirements(&selectors.fields, told)?;
    Some(FieldSelectorAttributes { requirements: Some(requirements), raw_selector: None })
}

fn label_selector(selectors: &SelectorRequirements) -> Option<LabelSelectorAttributes> {
    let told = |key, operator, values| LabelSelectorRequirement { key, operator, values };
    let requirements = requirements(&selectors.labels, told)?;
    Some(LabelSelectorAttributes { requirements: Some(requirements), raw_selector: None })
}

/// Requirements, not the selector as it stands: who decides need not read it as it is read here. `None` if there are none.
fn requirements<T>(
    of: &[SelectorRequirement],
    told: impl Fn(String, String, Option<Vec<String>>) -> T,
) -> Option<Vec<T>> {
    let one = |SelectorRequirement { key, operator, values }: &SelectorRequirement| {
        let values: Vec<_> = values.iter().map(|value| value.clone().into_string()).collect();
        told(key.to_string(), operator.as_str().to_owned(), Some(values).filter(|values| !values.is_empty()))
    };
    (!of.is_empty()).then(|| of.iter().map(one).collect())
}
