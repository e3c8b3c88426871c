//! Which documents of `OpenAPI` clients asked for, and not only the hub: it keeps those as the API server has them, over restarts too.

use std::collections::BTreeSet;

use axum::body::Body;
use http::{HeaderMap, Response};

use super::{Documents, forms};

/// Where documents of version 3 are, one for each group and version.
const V3: &str = "/openapi/v3/";

/// Their names.
pub(super) const ASKED: &str = "documents-asked-for";

/// How many are remembered: the API server names them, and a cluster with a hundred groups of custom resources has some three hundred.
const MOST: usize = 1024;

impl Documents {
    /// Keeps the answer of upstream to a client as [`Documents::keep`] does. Once it is there it is known that a client asked for it: what is still on its
    /// way the hub must not fetch as well.
    pub fn keep_for_client(
        &self,
        path_and_query: &str,
        accept: &HeaderMap,
        response: Response<Body>,
    ) -> Response<Body> {
        let (path, of_client) = (path_and_query.to_owned(), accept.clone());
        let note = move |documents: &Self| documents.note_asked(&path, &of_client);
        self.keep_and(path_and_query, accept, response, note)
    }

    /// A client that accepts that was answered with that document, or that it has it. The hub fetches JSON: who takes none would have the document cross the
    /// link twice, and could not read the second.
    pub fn note_asked(&self, path_and_query: &str, accept: &HeaderMap) {
        let path = path_and_query.split('?').next().unwrap_or_default();
        if !path.starts_with(V3) || !forms::accepted(accept).contains(&forms::JSON) {
            return;
        }
        let mut asked = self.asked.lock();
        if asked.len() >= MOST || !asked.insert(path.to_owned()) {
            return;
        }
        drop(asked);
        let documents = self.clone();
        self.tasks.spawn_blocking(move || {
            // Whoever writes last writes all of them.
            documents.storage.exclusively(|storage| {
                let asked = serde_json::to_vec(&*documents.asked.lock());
                storage.keep_blob(ASKED, &asked.unwrap_or_default());
            });
        });
    }

    /// The paths of those that clients asked for.
    pub fn asked(&self) -> BTreeSet<String> {
        self.asked.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{storage::Storage, tasks::Tasks};

    #[tokio::test]
    async fn what_clients_asked_for_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, _) = Storage::open(folder.path(), [7; 32]).unwrap();
        let tasks = Tasks::new(CancellationToken::new());
        let documents = Documents::new(storage.clone(), tasks.clone());
        assert!(documents.asked().is_empty());
        let accepts =
            |form: &'static str| HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(form))]);
        let json = accepts(forms::JSON);
        let [core, apps] = ["/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1"];
        for path in [core, apps, &*format!("{apps}?hash=1"), "/openapi/v3", "/openapi/v2", "/version"] {
            documents.note_asked(path, &json);
        }
        documents.note_asked(
            "/openapi/v3/apis/batch/v1",
            &accepts("application/com.github.proto-openapi.spec.v3@v1.0+protobuf"),
        );
        tasks.wait().await;
        let expected = BTreeSet::from([core.to_owned(), apps.to_owned()]);
        assert_eq!(documents.asked(), expected);
        let again = Documents::new(storage, Tasks::new(CancellationToken::new()));
        assert_eq!(again.asked(), expected);
        for n in 0..2 * MOST {
            let mut asked = again.asked.lock();
            if asked.len() < MOST {
                asked.insert(format!("{V3}{n}"));
            }
        }
        again.note_asked("/openapi/v3/one-more", &json);
        assert_eq!(again.asked().len(), MOST);
    }
}
