//! `OpenAPI` documents: `/openapi/v2`, and `/openapi/v3` by group and version; computed once, with hashes.

use std::collections::BTreeMap;

use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::{
    discovery::{etag, json as respond, tagged},
    resource::ResourceInfo,
};

mod definitions;
mod paths;

/// All documents.
pub(crate) struct OpenApi {
    v2: (Bytes, String),
    root: Value,
    /// By `apis/<group>/<version>`.
    v3: BTreeMap<String, (Bytes, String)>,
}

impl OpenApi {
    pub(crate) fn new(resources: &[&ResourceInfo], version: &str) -> Self {
        let mut by_version: BTreeMap<String, Vec<&ResourceInfo>> = BTreeMap::new();
        for info in resources {
            by_version.entry(format!("apis/{}", info.api_version())).or_default().push(info);
        }
        let mut v3 = BTreeMap::new();
        let mut root = Map::new();
        for (path, resources) in by_version {
            let document = json!({
                "openapi": "3.0.0",
                "info": { "title": "Kubernetes aggregated API", "version": version },
                "paths": paths::v3(&resources),
                "components": { "schemas": definitions::v3(&resources) },
            });
            let body = Bytes::from(document.to_string());
            let tag = etag(&body);
            let hash = tag.trim_matches('"');
            root.insert(
                path.clone(),
                json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}") }),
            );
            v3.insert(path, (body, tag));
        }
        let document = json!({
            "swagger": "2.0",
            "info": { "title": "Kubernetes", "version": version },
            "paths": paths::v2(resources),
            "definitions": definitions::v2(resources),
        });
        let body = Bytes::from(document.to_string());
        let tag = etag(&body);
        Self { v2: (body, tag), root: json!({ "paths": root }), v3 }
    }

    pub(crate) fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        match path {
            "/openapi/v2" => Some(tagged(headers, "application/json", &self.v2.0, &self.v2.1)),
            "/openapi/v3" => Some(respond(&self.root)),
            _ => {
                let (body, tag) = self.v3.get(path.strip_prefix("/openapi/v3/")?)?;
                Some(tagged(headers, "application/json", body, tag))
            }
        }
    }
}
