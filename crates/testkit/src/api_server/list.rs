//! Lists: which version is read, what of it is in the page, and where the next one goes on.

use std::sync::Arc;

use super::Server;
use super::kind::Kind;
use super::options::{ContinueToken, Options};
use super::status::{Answer, Status};
use super::store::{Objects, Stored};

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rv: u64,
    pub(crate) items: Vec<Arc<Stored>>,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<u64>,
}

/// Which version is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    MostRecent,
    Any,
    NotOlderThan(u64),
    Exact(u64),
}

/// The part of a resource that a request is about.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// What keys begin with.
    pub(crate) prefix: String,
    /// The one key, if it can only be one.
    pub(crate) single: Option<String>,
}

impl Scope {
    /// A selector narrows the scope as `generic/registry/store.go` does: first to a namespace, then to a name in it; but not behind a token
    /// (`selection_predicate.go`), be it of a page that was narrowed.
    pub(crate) fn new(kind: &Kind, namespace: Option<&str>, options: &Options) -> Self {
        let exactly = |field| options.fields.exactly(field).filter(|_| options.token.is_empty());
        let selected = exactly("metadata.namespace").filter(|ns| kind.namespaced && !ns.is_empty());
        let namespace = namespace.or(selected);
        let prefix = namespace.filter(|_| kind.namespaced).map_or_else(String::new, |ns| format!("{ns}/"));
        let reachable = !kind.namespaced || namespace.is_some();
        let name = exactly("metadata.name").filter(|name| reachable && !name.is_empty());
        let single = name.map(|name| format!("{prefix}{name}"));
        Self { prefix, single }
    }

    /// Whether an object of this key is in it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.single.as_ref().map_or_else(|| key.starts_with(&self.prefix), |single| single == key)
    }
}

pub(crate) async fn list(
    server: &Server,
    kind: &Kind,
    namespace: Option<&str>,
    options: &Options,
) -> Answer<Page> {
    let scope = Scope::new(kind, namespace, options);
    let (read, token) = plan(options, scope.single.is_none())?;
    let id = kind.id();
    let (rv, objects) = match read {
        Read::MostRecent => {
            let store = server.cluster.store();
            (store.revision, store.at(&id, store.revision))
        }
        Read::Any => {
            let rv = server.view();
            (rv, server.cluster.store().at(&id, rv))
        }
        Read::NotOlderThan(at_least) => {
            server.wait_for(at_least).await?;
            let rv = server.view();
            (rv, server.cluster.store().at(&id, rv))
        }
        Read::Exact(rv) => {
            if rv > server.cluster.revision() {
                // One object is read from etcd, which says so at once and gives no time to come again.
                if scope.single.is_some() {
                    return Err(
                        Status::too_large_resource_version(rv, server.cluster.revision()).without_retry()
                    );
                }
                server.wait_for(rv).await?;
            }
            let store = server.cluster.store();
            if rv < store.compacted {
                let onwards =
                    |token: &ContinueToken| ContinueToken { rv: -1, start: token.start.clone() }.encode();
                return Err(Status::expired_list(token.as_ref().map(onwards)));
            }
            (rv, store.at(&id, rv))
        }
    };
    // The cache has no pages of "any version" (cacher.go, computeListLimit).
    let any = options.rv == "0" || scope.single.is_some();
    let limit = usize::try_from(options.limit).ok().filter(|limit| *limit > 0 && !any);
    Ok(page(rv, &objects, &scope, options, token.as_ref(), limit))
}

/// `storage/interfaces.go`, `ValidateListOptions`.
fn plan(options: &Options, recursive: bool) -> Answer<(Read, Option<ContinueToken>)> {
    if !options.token.is_empty() {
        let token = ContinueToken::decode(&options.token)
            .map_err(|problem| Status::bad_request(&format!("invalid continue token: {problem}")))?;
        if !options.rv.is_empty() && options.rv != "0" {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let read = u64::try_from(token.rv).map_or(Read::MostRecent, Read::Exact);
        return Ok((read, Some(token)));
    }
    let malformed = |problem: String| Status::bad_request(&format!("invalid resource version: {problem}"));
    let read = match (options.version().map_err(malformed)?, options.rv_match.as_str()) {
        (None, _) => Read::MostRecent,
        // Only of the text "0" is the limit ignored; else zero is of no version, and read from etcd.
        (Some(0), matching) if options.rv != "0" && (options.limit > 0 || matching == "Exact") => {
            Read::MostRecent
        }
        (Some(0), _) => Read::Any,
        (Some(rv), "Exact") => Read::Exact(rv),
        (Some(rv), "") if recursive && options.limit > 0 => Read::Exact(rv),
        (Some(rv), _) => Read::NotOlderThan(rv),
    };
    Ok((read, None))
}

fn page(
    rv: u64,
    objects: &Objects,
    scope: &Scope,
    options: &Options,
    token: Option<&ContinueToken>,
    limit: Option<usize>,
) -> Page {
    let start = format!("{}{}", scope.prefix, token.map_or("", |token| token.start.as_str()));
    let in_range: Vec<_> =
        objects.range(start..).take_while(|(key, _)| key.starts_with(&scope.prefix)).collect();
    let mut items = Vec::new();
    let mut token = None;
    let mut remaining = None;
    for (index, (key, stored)) in in_range.iter().enumerate() {
        if limit.is_some_and(|limit| items.len() >= limit) {
            let last = in_range.get(index.wrapping_sub(1)).map_or("", |(key, _)| key.as_str());
            let start = format!("{}\0", last.strip_prefix(&scope.prefix).unwrap_or(last));
            token = Some(ContinueToken { rv: i64::try_from(rv).unwrap_or(i64::MAX), start }.encode());
            if options.labels.is_everything() && options.fields.is_everything() {
                remaining = Some((in_range.len() - index) as u64);
            }
            break;
        }
        if scope.has(key) && options.labels.matches(&stored.value) && options.fields.matches(&stored.value) {
            items.push((*stored).clone());
        }
    }
    Page { rv, items, token, remaining }
}
