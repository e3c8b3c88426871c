//! A `CertificateSigningRequest`: what the hub asks for, and what became of it. Data only.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tls::{
    request::{self, RequestError, Subject},
    secret::SecretPem,
};

use super::purpose::{Purpose, user};

/// Where requests are.
pub(super) const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// How much of a node's name stands in the request's: names end at 253.
const NODE_LENGTH: usize = 200;

/// A request as it is sent.
#[derive(Debug)]
pub(super) struct SigningRequest {
    purpose: Purpose,
    /// Its name: that of the node and of the key, so that a hub that was interrupted finds its own again.
    pub(super) name: String,
    /// The object.
    pub(super) object: Value,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nobody has decided, or the signer has not signed yet.
    Pending,
    /// The certificate, in PEM.
    Issued(String),
    /// Refused, and why.
    Denied(String),
    /// Approved and not signed, and why.
    Failed(String),
    /// Somebody else's of the same name.
    NotOurs,
}

impl SigningRequest {
    /// Asks that the hub of `node` be certified for `key`, for so long.
    pub(super) fn new(
        purpose: Purpose,
        node: &str,
        key: &SecretPem,
        validity: Duration,
    ) -> Result<Self, RequestError> {
        let subject = Subject { common_name: user(node), organizations: purpose.organizations() };
        let pem = request::make_serving(&subject, &purpose.dns_names(node), key)?;
        let digest = request::key_digest(key)?.to_string();
        let short: String = node.chars().take(NODE_LENGTH).collect();
        let short = short.trim_end_matches(['.', '-']);
        let name = format!("{}{short}-{}", purpose.request_prefix(), &digest[..16]);
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": { "name": name },
            "spec": {
                "request": BASE64_STANDARD.encode(pem),
                "signerName": purpose.signer(),
                "usages": purpose.usages(),
                "expirationSeconds": i32::try_from(validity.as_secs()).unwrap_or(i32::MAX),
            },
        });
        Ok(Self { purpose, name, object })
    }

    /// Where it is.
    pub(super) fn path(&self) -> String {
        format!("{PATH}/{}", self.name)
    }

    /// What became of it, from the object as the API server has it now. One that was made before with the same key counts as
    /// this one, though its signature is another.
    pub(super) fn answer(&self, found: &Value) -> Answer {
        let decoded = |object: &Value| {
            let text = BASE64_STANDARD.decode(object["spec"]["request"].as_str()?).ok()?;
            let read = request::CertificateRequest::from_pem(str::from_utf8(&text).ok()?).ok()?;
            Some((read.subject, read.key_digest))
        };
        if decoded(found) != decoded(&self.object) || found["spec"]["signerName"] != self.purpose.signer() {
            return Answer::NotOurs;
        }
        let status = &found["status"];
        let condition = |kind: &str| {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            conditions
                .filter(|condition| condition["type"] == kind)
                .map(|condition| {
                    let text = |key: &str| condition[key].as_str().unwrap_or_default();
                    format!("{}: {}", text("reason"), text("message"))
                })
                .next()
        };
        let certificate = status["certificate"]
            .as_str()
            .and_then(|text| BASE64_STANDARD.decode(text).ok())
            .and_then(|text| String::from_utf8(text).ok());
        if let Some(reason) = condition("Denied") {
            Answer::Denied(reason)
        } else if let Some(reason) = condition("Failed") {
            Answer::Failed(reason)
        } else {
            certificate.filter(|text| !text.is_empty()).map_or(Answer::Pending, Answer::Issued)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &SecretPem) -> SigningRequest {
        SigningRequest::new(Purpose::Client, "shop-1", key, Duration::from_hours(1)).unwrap()
    }

    #[test]
    fn asks_for_exactly_this_nodes_hub() {
        let key = request::generate_key().unwrap();
        let SigningRequest { purpose: _, name, object } = request(&key);
        assert!(name.starts_with("edge-hub-shop-1-") && name == request(&key).name, "{name}");
        let spec = &object["spec"];
        assert_eq!(spec["signerName"], "kubernetes.io/kube-apiserver-client");
        assert_eq!(spec["usages"], json!(["client auth", "digital signature"]));
        assert_eq!(spec["expirationSeconds"], 3600);
        let pem = BASE64_STANDARD.decode(spec["request"].as_str().unwrap()).unwrap();
        let read = request::CertificateRequest::from_pem(str::from_utf8(&pem).unwrap()).unwrap();
        assert_eq!(read.subject.common_name, "system:node:shop-1");
        assert_eq!(read.subject.organizations, ["system:nodes", "isthmus:edge-hubs"]);
        let long =
            SigningRequest::new(Purpose::Client, &"a.".repeat(126), &key, Duration::from_hours(1)).unwrap();
        assert!(long.name.len() <= 253 && !long.name.contains(".-"), "{}", long.name);
    }

    #[test]
    fn a_gateway_asks_for_what_its_signer_signs() {
        let key = request::generate_key().unwrap();
        let asked = SigningRequest::new(Purpose::Gateway, "cloud-1", &key, Duration::from_hours(1)).unwrap();
        assert!(asked.name.starts_with("edge-hub-gateway-cloud-1-"), "{}", asked.name);
        let spec = &asked.object["spec"];
        assert_eq!(spec["signerName"], "kubernetes.io/kubelet-serving");
        assert_eq!(spec["usages"], json!(["digital signature", "server auth"]));
        let pem = BASE64_STANDARD.decode(spec["request"].as_str().unwrap()).unwrap();
        let read = request::CertificateRequest::from_pem(str::from_utf8(&pem).unwrap()).unwrap();
        assert_eq!(read.subject.common_name, "system:node:cloud-1");
        assert_eq!(read.subject.organizations, ["system:nodes"]);
        assert!(read.has_attributes, "its names");
        let other = SigningRequest::new(Purpose::Client, "cloud-1", &key, Duration::from_hours(1)).unwrap();
        assert_eq!(asked.answer(&other.object), Answer::NotOurs);
    }

    #[test]
    fn reads_what_became_of_it() {
        let key = request::generate_key().unwrap();
        let ours = request(&key);
        let with = |status: Value| {
            // Made again with the same key, as after a restart.
            let mut object = request(&key).object;
            object["status"] = status;
            ours.answer(&object)
        };
        let denied = json!({"conditions": [{"type": "Denied", "reason": "NotEntitled", "message": "no"}]});
        let failed =
            json!({"conditions": [{"type": "Approved"}, {"type": "Failed", "reason": "R", "message": "m"}]});
        assert_eq!(with(json!({})), Answer::Pending);
        assert_eq!(with(json!({"conditions": [{"type": "Approved"}]})), Answer::Pending);
        assert_eq!(
            with(json!({"certificate": BASE64_STANDARD.encode("pem")})),
            Answer::Issued("pem".to_owned())
        );
        assert_eq!(with(denied), Answer::Denied("NotEntitled: no".to_owned()));
        assert_eq!(with(failed), Answer::Failed("R: m".to_owned()));
        let other = request(&request::generate_key().unwrap()).object;
        assert_eq!(ours.answer(&other), Answer::NotOurs);
        assert_eq!(ours.answer(&json!({})), Answer::NotOurs);
    }
}
