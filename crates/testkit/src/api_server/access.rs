//! Who asks and what they may: users by bearer token or client certificate, and decisions a test can program.
//!
//! Reviews (`TokenReview`, `SubjectAccessReview`, …) answer from the same tables that requests are judged by.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::status::{Answer, Status};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct User {
    /// As in RBAC subjects.
    pub name: String,
    /// The groups it is of.
    pub groups: Vec<String>,
}

impl User {
    /// A user of `groups`.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self { name: name.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
    }

    /// Who shows no credential.
    pub fn anonymous() -> Self {
        Self::new("system:anonymous", &["system:unauthenticated"])
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = [
            "system:serviceaccounts",
            &format!("system:serviceaccounts:{namespace}"),
            "system:authenticated",
        ];
        Self::new(&format!("system:serviceaccount:{namespace}:{name}"), &groups)
    }
}

/// What is to be decided: a request of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Who asks.
    pub user: User,
    /// `get`, `list`, `watch`, `create`, …
    pub verb: String,
    /// The group; empty for the core group.
    pub group: String,
    /// The plural name; empty if the request is about a path.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name, or empty.
    pub name: String,
    /// The path of a request about no resource.
    pub path: String,
    /// The field selector as text, or empty.
    pub field_selector: String,
    /// The label selector as text, or empty.
    pub label_selector: String,
}

type Authorizer = Arc<dyn Fn(&Attributes) -> bool + Send + Sync>;
type TokenIssuer = Arc<dyn Fn(&str, &str, &Value) -> Answer<Value> + Send + Sync>;

/// Users, tokens and decisions of a cluster. By default anybody may do anything.
pub struct Access {
    tokens: Mutex<HashMap<String, User>>,
    authorizer: Mutex<Authorizer>,
    issuer: Mutex<Option<TokenIssuer>>,
    issued: Mutex<u64>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("tokens", &self.tokens.lock().len()).finish_non_exhaustive()
    }
}

impl Default for Access {
    fn default() -> Self {
        Self {
            tokens: Mutex::default(),
            authorizer: Mutex::new(Arc::new(|_| true)),
            issuer: Mutex::default(),
            issued: Mutex::default(),
        }
    }
}

impl Access {
    /// Lets `token` stand for `user`.
    pub fn add_token(&self, token: &str, user: User) {
        self.tokens.lock().insert(token.to_owned(), user);
    }

    /// Forgets a token: it is answered 401 from now on.
    pub fn revoke_token(&self, token: &str) {
        self.tokens.lock().remove(token);
    }

    /// Decides from now on; of requests as of reviews.
    pub fn set_authorizer(&self, decide: impl Fn(&Attributes) -> bool + Send + Sync + 'static) {
        *self.authorizer.lock() = Arc::new(decide);
    }

    /// Answers `TokenRequest`s from now on: namespace, service account and the request come in, the whole answer comes out.
    pub fn set_token_issuer(
        &self,
        issue: impl Fn(&str, &str, &Value) -> Answer<Value> + Send + Sync + 'static,
    ) {
        *self.issuer.lock() = Some(Arc::new(issue));
    }

    pub(crate) fn allows(&self, attributes: &Attributes) -> bool {
        let decide = self.authorizer.lock().clone();
        decide(attributes)
    }

    /// The user of a request: that of the token if there is one, else that of the certificate.
    pub(crate) fn authenticate(
        &self,
        authorization: Option<&str>,
        certificate: Option<User>,
    ) -> Answer<User> {
        match authorization.and_then(|text| text.strip_prefix("Bearer ")) {
            Some(token) => self.tokens.lock().get(token).cloned().ok_or_else(Status::unauthorized),
            None => Ok(certificate.unwrap_or_else(User::anonymous)),
        }
    }

    pub(crate) fn token_request(&self, namespace: &str, account: &str, request: &Value) -> Answer<Value> {
        let programmed = self.issuer.lock().clone();
        if let Some(answer) = programmed {
            return answer(namespace, account, request);
        }
        let number = {
            let mut issued = self.issued.lock();
            *issued += 1;
            *issued
        };
        let token = format!("token-{namespace}-{account}-{number}");
        self.add_token(&token, User::service_account(namespace, account));
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
        let expiry = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        let mut answer = request.clone();
        answer["kind"] = "TokenRequest".into();
        answer["apiVersion"] = "authentication.k8s.io/v1".into();
        answer["status"] = json!({"token": token, "expirationTimestamp": expiry.round(jiff::Unit::Second).unwrap_or(expiry).to_string()});
        Ok(answer)
    }

    pub(crate) fn review(&self, resource: &str, caller: &User, request: &Value) -> Option<Value> {
        let spec = &request["spec"];
        let mut reviewed = request.clone();
        reviewed["status"] = match resource {
            "tokenreviews" => {
                let holder = self.tokens.lock().get(spec["token"].as_str().unwrap_or_default()).cloned();
                match holder {
                    Some(user) => {
                        json!({"authenticated": true, "user": {"username": user.name, "groups": user.groups}})
                    }
                    None => json!({"authenticated": false, "error": "invalid bearer token"}),
                }
            }
            "subjectaccessreviews" => {
                let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let subject =
                    User::new(spec["user"].as_str().unwrap_or_default(), &groups.collect::<Vec<_>>());
                json!({"allowed": self.allows(&attributes(subject, spec))})
            }
            "selfsubjectaccessreviews" => json!({"allowed": self.allows(&attributes(caller.clone(), spec))}),
            _ => return None,
        };
        Some(reviewed)
    }
}

fn attributes(user: User, spec: &Value) -> Attributes {
    let resource = &spec["resourceAttributes"];
    let text = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
    let selector = |name: &str| {
        let raw = resource[name]["rawSelector"].as_str().unwrap_or_default();
        let term = |term: &Value| {
            let key = term["key"].as_str()?;
            let values = term["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let values = values.collect::<Vec<_>>().join("|");
            Some(match term["operator"].as_str()? {
                "In" => format!("{key}={values}"),
                "NotIn" => format!("{key}!={values}"),
                "Exists" => key.to_owned(),
                "DoesNotExist" => format!("!{key}"),
                other => format!("{key} {other} {values}"),
            })
        };
        let terms = resource[name]["requirements"].as_array().into_iter().flatten().filter_map(term);
        let terms: Vec<_> = terms.collect();
        if terms.is_empty() { raw.to_owned() } else { terms.join(",") }
    };
    let plain = &spec["nonResourceAttributes"];
    let verb = resource["verb"].as_str().or_else(|| plain["verb"].as_str()).unwrap_or_default();
    Attributes {
        user,
        verb: verb.to_owned(),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        path: plain["path"].as_str().unwrap_or_default().to_owned(),
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
    }
}
