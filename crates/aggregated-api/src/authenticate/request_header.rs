//! The headers in which a front proxy names its user. They count only from who shows a certificate of the front proxies' authority, with a name that is
//! allowed.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;

use super::{User, chain::Authority, header_text, trust::MalformedTrust};

/// How front proxies are recognised and read.
#[derive(Debug)]
pub(super) struct RequestHeader {
    authority: Authority,
    /// Common names; any if empty.
    allowed: Vec<String>,
    user: Vec<HeaderName>,
    uid: Vec<HeaderName>,
    groups: Vec<HeaderName>,
    /// Prefixes, lower-case.
    extra: Vec<String>,
}

fn list(data: &BTreeMap<String, String>, name: &'static str) -> Result<Vec<String>, MalformedTrust> {
    let text = data.get(name).map(String::as_str).unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).map_err(|error| MalformedTrust::List(name, error))
}

fn headers(data: &BTreeMap<String, String>, name: &'static str) -> Result<Vec<HeaderName>, MalformedTrust> {
    let parse = |text: String| text.parse().map_err(|_| MalformedTrust::Header(text));
    list(data, name)?.into_iter().map(parse).collect()
}

impl RequestHeader {
    /// As the `ConfigMap` says; `None` if it has no authority of front proxies.
    pub(super) fn from_config(data: &BTreeMap<String, String>) -> Result<Option<Self>, MalformedTrust> {
        let Some(bundle) = data.get("requestheader-client-ca-file") else { return Ok(None) };
        let extra = list(data, "requestheader-extra-headers-prefix")?;
        Ok(Some(Self {
            authority: Authority::from_pem(bundle)?,
            allowed: list(data, "requestheader-allowed-names")?,
            user: headers(data, "requestheader-username-headers")?,
            uid: headers(data, "requestheader-uid-headers")?,
            groups: headers(data, "requestheader-group-headers")?,
            extra: extra.into_iter().map(|prefix| prefix.to_lowercase()).collect(),
        }))
    }

    /// The user whom a front proxy names; `None` if it names none. An error says why the caller is no front proxy.
    pub(super) fn authenticate(
        &self,
        chain: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<Option<User>, String> {
        let names = self.authority.verify(chain)?;
        if !self.allowed.is_empty() && !self.allowed.contains(&names.common_name) {
            return Err(format!("subject with cn={} is not in the allowed list", names.common_name));
        }
        let first = |names: &[HeaderName]| {
            let mut values = names.iter().filter_map(|name| header_text(headers.get(name)?));
            values.find(|value| !value.is_empty()).unwrap_or_default().to_owned()
        };
        let name = first(&self.user);
        if name.is_empty() {
            return Ok(None);
        }
        let groups = self.groups.iter().flat_map(|name| headers.get_all(name));
        let groups = groups.filter_map(|value| header_text(value).map(str::to_owned)).collect();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            let Some(key) =
                self.extra.iter().find_map(|prefix| header.as_str().strip_prefix(prefix.as_str()))
            else {
                continue;
            };
            let Some(value) = header_text(value) else { continue };
            let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
            extra.entry(key).or_default().push(value.to_owned());
        }
        Ok(Some(User { name, uid: first(&self.uid), groups, extra }))
    }

    /// Takes away all that could be taken for a front proxy's word.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        for name in self.user.iter().chain(&self.uid).chain(&self.groups) {
            headers.remove(name);
        }
        let extra: Vec<HeaderName> = headers
            .keys()
            .filter(|name| self.extra.iter().any(|prefix| name.as_str().starts_with(prefix.as_str())))
            .cloned()
            .collect();
        for name in extra {
            headers.remove(name);
        }
    }
}
