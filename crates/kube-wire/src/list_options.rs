//! What a list or a watch asks for: the query of its URL, validated as the API server does, with its status codes and its words.
//! In: the query and the fields of the resource. It decides nothing about where the answer comes from.

use std::{borrow::Cow, time::Duration};

use crate::{
    continue_token,
    field_selector::{FieldSelector, Term},
    label_selector::LabelSelector,
    query::first,
    resource_version::ResourceVersion,
    selectable_field::SelectableFields,
    status::Status,
};

mod number;
mod validation;

/// The longest that a request can say it wants to last: what is more counts as so much.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// Which state a list is to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListRead {
    /// The state at some moment after the request began.
    MostRecent,
    /// Any state.
    Any,
    /// Any state that is not older than this version.
    NotOlderThan(ResourceVersion),
    /// The state at exactly this version.
    Exact(ResourceVersion),
    /// The rest of a list.
    Continue {
        /// The version of its other pages; `None` for the most recent.
        at: Option<ResourceVersion>,
        /// The least key of the rest, relative to what is listed. A key of the page before, with a NUL behind it.
        after: String,
    },
}

/// What a list asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// Which state.
    pub read: ListRead,
    /// At most so many objects; never 0. `None` also with `resourceVersion=0`, where the API server ignores it, for the rest of a list too.
    pub limit: Option<u64>,
    /// Only objects with these labels.
    pub labels: LabelSelector,
    /// Only objects with these fields.
    pub fields: FieldSelector,
    /// After how long to give up; `None` if nothing is said.
    pub timeout: Option<Duration>,
    /// A selector of shards, which the hub does not understand: such a request is handed on, never answered.
    pub shards: Option<String>,
}

/// Where a watch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchStart {
    /// With the events after this version.
    After(ResourceVersion),
    /// With the whole state, as ADDED events.
    Initial {
        /// The state must not be older than this.
        at_least: Option<ResourceVersion>,
        /// The state must be one of after the request began.
        most_recent: bool,
        /// A bookmark says where the state ends and the events begin.
        end_bookmark: bool,
    },
    /// With the events from now on.
    Live {
        /// Now is when the request began; otherwise any moment will do.
        most_recent: bool,
    },
}

/// What a watch asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRequest {
    /// Where it begins.
    pub start: WatchStart,
    /// Whether the client understands bookmarks.
    pub bookmarks: bool,
    /// Only objects with these labels.
    pub labels: LabelSelector,
    /// Only objects with these fields.
    pub fields: FieldSelector,
    /// When to end; `None` if nothing is said.
    pub timeout: Option<Duration>,
    /// A selector of shards, which the hub does not understand: such a request is handed on, never answered.
    pub shards: Option<String>,
}

/// The options as they stand in the query, numbers and selectors parsed.
#[derive(Debug)]
struct Options<'a> {
    labels: LabelSelector,
    fields: Vec<Term>,
    bookmarks: bool,
    resource_version: Cow<'a, str>,
    version_match: Cow<'a, str>,
    timeout: Option<i64>,
    limit: i64,
    continue_token: Cow<'a, str>,
    initial_events: Option<bool>,
    shards: Option<String>,
}

impl<'a> Options<'a> {
    fn parse(query: &'a str) -> Result<Self, Status> {
        let text = |name| first(query, name).unwrap_or_default();
        let timeout = first(query, "timeoutSeconds").map(|value| number::signed(&value)).transpose();
        let limit = first(query, "limit").map(|value| number::signed(&value)).transpose();
        let timeout = timeout.map_err(Status::bad_request)?;
        let limit = limit.map_err(Status::bad_request)?.unwrap_or_default();
        let labels = LabelSelector::parse(&text("labelSelector"));
        let fields = FieldSelector::terms(&text("fieldSelector"));
        Ok(Self {
            labels: labels.map_err(|error| Status::bad_request(error.0))?,
            fields: fields.map_err(Status::bad_request)?,
            bookmarks: flag(query, "allowWatchBookmarks").unwrap_or_default(),
            resource_version: text("resourceVersion"),
            version_match: text("resourceVersionMatch"),
            timeout,
            limit,
            continue_token: text("continue"),
            initial_events: flag(query, "sendInitialEvents"),
            shards: first(query, "shardSelector").filter(|text| !text.is_empty()).map(Cow::into_owned),
        })
    }

    fn timeout(&self) -> Option<Duration> {
        let seconds = self.timeout.filter(|seconds| *seconds != 0)?;
        let length = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        // Nobody sees the difference, and a moment so far ahead can be reckoned with.
        Some(length.min(LONGEST))
    }
}

/// Whether the query asks for a watch.
pub(crate) fn is_watch(query: &str) -> bool {
    flag(query, "watch").unwrap_or_default()
}

/// Refuses a GET of one object that wants it exported, as the API server did before 1.21. A list never was, and has no such option.
pub fn check_export(query: &str) -> Result<(), Status> {
    if flag(query, "export").unwrap_or_default() {
        let words = "the export parameter, deprecated since v1.14, is no longer supported";
        return Err(Status::bad_request(words));
    }
    Ok(())
}

/// The one name that the field selector of a valid query requires: the request is about that object alone.
pub(crate) fn named_object(query: &str) -> Option<Box<str>> {
    let options = Options::parse(query).ok()?;
    let term = options.fields.into_iter().find(|term| term.equals && &*term.label == "metadata.name")?;
    Some(term.value)
}

/// A flag that is given is true, unless it is `0` or `false`.
fn flag(query: &str, name: &str) -> Option<bool> {
    first(query, name).map(|value| !(value == "0" || value.eq_ignore_ascii_case("false")))
}

impl ListRead {
    /// Which state a GET of one object is to be answered from. Its query has a version and nothing else: what else a list may say is of no
    /// consequence there, right or wrong. An error of the version is the storage's, which the API server translates for a list and not here.
    pub fn of_object(query: &str) -> Result<Self, Status> {
        let text = first(query, "resourceVersion").unwrap_or_default();
        let version = number::resource_version(&text).map_err(Status::untranslated)?;
        Ok(match version {
            Some(version) => Self::NotOlderThan(version),
            None if text.is_empty() => Self::MostRecent,
            None => Self::Any,
        })
    }
}

impl ListRequest {
    /// Reads the query of a list. What the API server refuses is refused with its status.
    pub fn parse(query: &str, selectable: &SelectableFields) -> Result<Self, Status> {
        let options = Options::parse(query)?;
        validation::list(&options)?;
        let fields = FieldSelector::resolve(&options.fields, selectable).map_err(Status::bad_request)?;
        let read = list_read(&options)?;
        // The watch cache counts no limit where any version will do, not even behind a token, which says the version itself.
        let is_limited = options.resource_version != "0" && read != ListRead::Any;
        let limit = u64::try_from(options.limit).ok().filter(|limit| *limit > 0 && is_limited);
        let timeout = options.timeout();
        Ok(Self { read, limit, labels: options.labels, fields, timeout, shards: options.shards })
    }

    /// The same where only one object can be meant, by its namespace and name: the API server reads it by its key, so there are no pages, and
    /// a limit does not make the version an exact one. Not so behind a token: that is the rest of a list, whatever it names.
    #[must_use]
    pub fn of_one(mut self, query: &str) -> Self {
        if matches!(self.read, ListRead::Continue { .. }) {
            return self;
        }
        let matching = first(query, "resourceVersionMatch").unwrap_or_default();
        if let ListRead::Exact(version) = self.read
            && matching.is_empty()
        {
            self.read = ListRead::NotOlderThan(version);
        }
        self.limit = None;
        self
    }
}

fn list_read(options: &Options<'_>) -> Result<ListRead, Status> {
    let text = &*options.resource_version;
    if !options.continue_token.is_empty() {
        let position = continue_token::decode(&options.continue_token)
            .map_err(|error| Status::bad_request(format!("invalid continue token: {error}")))?;
        if !text.is_empty() && text != "0" {
            let words = "specifying resource version is not allowed when using continue";
            return Err(Status::bad_request(words));
        }
        return Ok(ListRead::Continue { at: position.at, after: position.start });
    }
    if text.is_empty() {
        return Ok(ListRead::MostRecent);
    }
    let version = number::resource_version(text)
        .map_err(|error| Status::bad_request(format!("invalid resource version: {error}")))?;
    Ok(match (version, &*options.version_match) {
        // Only the text "0" is of any version whatever the limit, and refused as an exact one. `00` is zero, too: where it stands for the version of
        // pages, or for an exact one, the API server reads the most recent state, and counts the limit.
        (None, matching) if text != "0" && (options.limit > 0 || matching == "Exact") => ListRead::MostRecent,
        (None, _) => ListRead::Any,
        (Some(version), "Exact") => ListRead::Exact(version),
        // So it was before `resourceVersionMatch`: all pages are of the version of the first.
        (Some(version), "") if options.limit > 0 => ListRead::Exact(version),
        (Some(version), _) => ListRead::NotOlderThan(version),
    })
}

impl WatchRequest {
    /// Reads the query of a watch. What the API server refuses is refused with its status.
    pub fn parse(query: &str, selectable: &SelectableFields) -> Result<Self, Status> {
        let mut options = Options::parse(query)?;
        // A watch from nowhere begins with the state; the API server says so in the options of today.
        if options.initial_events.is_none()
            && options.version_match.is_empty()
            && matches!(&*options.resource_version, "" | "0")
        {
            options.initial_events = Some(true);
            options.version_match = Cow::Borrowed("NotOlderThan");
        }
        validation::watch(&options)?;
        let fields = FieldSelector::resolve(&options.fields, selectable).map_err(Status::bad_request)?;
        // The API server does not translate this error of its storage, which it does for a list.
        let version = number::resource_version(&options.resource_version).map_err(Status::untranslated)?;
        let most_recent = options.resource_version.is_empty();
        let start = match (options.initial_events, version) {
            (Some(true), at_least) => {
                WatchStart::Initial { at_least, most_recent, end_bookmark: options.bookmarks }
            }
            (_, Some(version)) => WatchStart::After(version),
            // Zero that is not the text "0": the state comes first as it always did, without a bookmark at its end.
            (None, None) => WatchStart::Initial { at_least: None, most_recent, end_bookmark: false },
            (Some(false), None) => WatchStart::Live { most_recent },
        };
        let timeout = options.timeout();
        let Options { labels, bookmarks, shards, .. } = options;
        Ok(Self { start, bookmarks, labels, fields, timeout, shards })
    }
}

#[cfg(test)]
mod tests;
