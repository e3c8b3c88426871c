//! An upstream, one cache and some clients, moved by operations: the same ones always do the same.

use std::sync::Arc;

use kube_wire::{
    list_options::{ListRequest, WatchRequest},
    object::Object,
    resource::GroupVersionResource,
    resource_version::ResourceVersion,
    selectable_field::SelectableFields,
};
use watch_cache::{
    Cache, Change, Cursor, Delivery, Event, Limits, ListAnswer, OutOfOrder, Page, Replaced, Scope, Step,
    WatchAnswer, restore::Past,
};

use crate::{
    client::Session,
    model::{Facts, KEYS, Kind, Pick, Revision, Told, Version, listed},
};

/// What can happen. Numbers are taken modulo what there is, so every sequence means something and shrinks well.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Put {
        key: usize,
        facts: Facts,
        gap: u64,
    },
    Delete {
        key: usize,
        gap: u64,
    },
    /// Another resource moves upstream's version.
    Tick {
        gap: u64,
    },
    Deliver {
        events: usize,
    },
    /// Upstream tells again what it told before.
    Repeat {
        events: usize,
    },
    Bookmark,
    Relist,
    RelistSame,
    RelistOld {
        back: u64,
    },
    Reset,
    /// Upstream is restored from a backup.
    Rewind {
        back: u64,
    },
    Restart {
        history: usize,
    },
    WatchAfter {
        pick: Pick,
        back: u64,
        ahead: bool,
    },
    WatchInitial {
        pick: Pick,
        end_bookmark: bool,
        ahead: bool,
    },
    WatchLive {
        pick: Pick,
    },
    Read {
        client: usize,
        budget: usize,
    },
    ReadAll,
    AskBookmark {
        client: usize,
    },
    Resume {
        client: usize,
    },
    ListExact {
        pick: Pick,
        back: u64,
        limit: u64,
    },
    ListPages {
        pick: Pick,
        limit: u64,
    },
    NextPage {
        list: usize,
    },
}

fn pods() -> SelectableFields {
    SelectableFields::of(&GroupVersionResource::new("", "v1", "pods"))
}

/// The model's pick as the query of a request, with `more` in front.
fn query(pick: Pick, more: &str) -> String {
    let labels =
        pick.app.map(|(equal, app)| format!("&labelSelector=app{}{app}", if equal { "%3D" } else { "!%3D" }));
    let fields = pick.node.map(|node| format!("&fieldSelector=spec.nodeName%3D{node}"));
    format!("{more}{}{}", labels.unwrap_or_default(), fields.unwrap_or_default())
}

fn scope(pick: Pick) -> Scope {
    pick.namespace.map_or(Scope::Cluster, |namespace| Scope::Namespace(namespace.into()))
}

fn watch(cache: &Cache, pick: Pick, options: &str) -> Result<Cursor, WatchAnswer> {
    cache.watch(&WatchRequest::parse(&query(pick, options), &pods()).unwrap(), scope(pick))
}

struct Client {
    session: Session,
    cursor: Option<Cursor>,
    /// How far the cache had come when the cursor had last caught up.
    caught_up: Version,
    epoch: usize,
}

/// A list that is being read page by page.
struct Pages {
    pick: Pick,
    limit: u64,
    version: Version,
    token: String,
    told: Vec<Told>,
    epoch: usize,
}

pub(crate) struct World {
    cache: Cache,
    limits: Limits,
    /// What upstream did.
    history: Vec<Revision>,
    upstream: Version,
    /// How far the cache must have come; `None` while it is not complete.
    applied: Option<Version>,
    /// From which version on the cache must be able to serve, by the number of events alone.
    floor: Version,
    /// The versions of the events that the cache should hold.
    ring: Vec<Version>,
    epoch: usize,
    clients: Vec<Client>,
    pages: Vec<Pages>,
}

type Outcome = Result<(), String>;

fn version(number: Version) -> ResourceVersion {
    ResourceVersion::new(number.max(1)).unwrap()
}

fn decode(kind: Kind, object: &Object) -> Told {
    let body: serde_json::Value = serde_json::from_slice(object.body()).unwrap();
    let metadata = &body["metadata"];
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let place = (text(&metadata["namespace"]), text(&metadata["name"]));
    let told = Told {
        kind,
        key: KEYS.iter().position(|key| (key.0, key.1) == (&*place.0, &*place.1)).unwrap(),
        version: text(&metadata["resourceVersion"]).parse().unwrap(),
        written: body["data"]["written"].as_str().unwrap().parse().unwrap(),
        facts: Facts {
            app: text(&metadata["labels"]["app"]).parse().unwrap(),
            node: text(&body["spec"]["nodeName"]).parse().unwrap(),
        },
    };
    assert_eq!(told.version, object.resource_version().get(), "the body and the object agree");
    told
}

impl World {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            cache: Cache::new(limits),
            limits,
            history: Vec::new(),
            upstream: 10,
            applied: None,
            floor: 0,
            ring: Vec::new(),
            epoch: 0,
            clients: Vec::new(),
            pages: Vec::new(),
        }
    }

    pub(crate) fn run(&mut self, op: &Op) -> Outcome {
        match op.clone() {
            Op::Put { key, facts, gap } => self.write(key, Some(facts), gap),
            Op::Delete { key, gap } => self.write(key, None, gap),
            Op::Tick { gap } => self.upstream += gap,
            Op::Deliver { events } => self.deliver(events)?,
            Op::Repeat { events } => self.repeat(events)?,
            Op::Bookmark => self.bookmark(),
            Op::Relist => self.relist()?,
            Op::RelistSame => self.relist_same()?,
            Op::RelistOld { back } => self.relist_old(back)?,
            Op::Reset => self.reset(),
            Op::Rewind { back } => self.rewind(back),
            Op::Restart { history } => self.restart(history),
            Op::WatchAfter { pick, back, ahead } => self.watch_after(pick, back, ahead)?,
            Op::WatchInitial { pick, end_bookmark, ahead } => {
                self.watch_initial(pick, end_bookmark, ahead)?;
            }
            Op::WatchLive { pick } => self.watch_live(pick)?,
            Op::Read { client, budget } if !self.clients.is_empty() => {
                self.read(client % self.clients.len(), budget)?;
            }
            Op::ReadAll => self.read_all()?,
            Op::AskBookmark { client } if !self.clients.is_empty() => {
                let client = client % self.clients.len();
                self.clients[client].cursor.iter_mut().for_each(Cursor::request_bookmark);
            }
            Op::Resume { client } if !self.clients.is_empty() => self.resume(client % self.clients.len())?,
            Op::ListExact { pick, back, limit } => self.list_exact(pick, back, limit)?,
            Op::ListPages { pick, limit } => self.list_pages(pick, limit)?,
            Op::NextPage { list } if !self.pages.is_empty() => self.next_page(list % self.pages.len())?,
            Op::Read { .. } | Op::AskBookmark { .. } | Op::Resume { .. } | Op::NextPage { .. } => {}
        }
        self.complete()
    }

    /// Completeness: the cache has come exactly as far as it was told, and holds exactly what upstream had then.
    fn complete(&self) -> Outcome {
        let held = self.cache.resource_version().map(ResourceVersion::get);
        if held != self.applied || self.cache.is_complete() != self.applied.is_some() {
            return Err(format!("Completeness: the cache is at {held:?}, not at {:?}", self.applied));
        }
        let Some(snapshot) = self.cache.snapshot() else { return Ok(()) };
        let everything = Pick { namespace: None, app: None, node: None };
        let there: Vec<_> = snapshot.iter().map(|object| decode(Kind::Added, object)).collect();
        let upstream = listed(&self.history, &everything, snapshot.resource_version().get());
        if there != upstream || snapshot.len() != upstream.len() {
            return Err(format!("Completeness: the cache has {there:?}, upstream {upstream:?}"));
        }
        Ok(())
    }

    fn write(&mut self, key: usize, facts: Option<Facts>, gap: u64) {
        let key = key % KEYS.len();
        let exists = self.history.iter().rfind(|revision| revision.1 == key).is_some_and(|r| r.2.is_some());
        if facts.is_none() && !exists {
            return;
        }
        self.upstream += gap.max(1);
        self.history.push((self.upstream, key, facts));
    }

    /// The object that stood under a key at a version.
    fn object_at(&self, key: usize, at: Version, says: Version) -> Option<Arc<Object>> {
        let index = self.history.iter().rposition(|revision| revision.0 <= at && revision.1 == key)?;
        let (written, _, facts) = self.history[index];
        let facts = facts?;
        let born =
            (0..=index).rev().take_while(|at| self.history[*at].1 != key || self.history[*at].2.is_some());
        let born = born.filter(|at| self.history[*at].1 == key).last()?;
        let (namespace, name) = KEYS[key];
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{key}-{}","resourceVersion":"{says}","labels":{{"app":"{}"}}}},"spec":{{"nodeName":"{}"}},"data":{{"written":"{written}"}}}}"#,
            self.history[born].0, facts.app, facts.node
        );
        Some(Arc::new(Object::from_json(body.into()).unwrap()))
    }

    /// What upstream's watch tells of a revision.
    fn change(&self, (at, key, facts): Revision) -> (Change, Arc<Object>) {
        let before = self.object_at(key, at - 1, at);
        match (before, facts) {
            (Some(before), None) => (Change::Deleted, before),
            (None, _) => (Change::Added, self.object_at(key, at, at).unwrap()),
            (Some(_), Some(_)) => (Change::Modified, self.object_at(key, at, at).unwrap()),
        }
    }

    fn deliver(&mut self, events: usize) -> Outcome {
        let from = self.applied.unwrap_or_default();
        let pending: Vec<_> = self.history.iter().filter(|r| r.0 > from).copied().take(events).collect();
        for revision in pending {
            let (change, object) = self.change(revision);
            let result = self.cache.apply(change, object);
            let Some(applied) = &mut self.applied else {
                return match result {
                    Err(OutOfOrder::NotComplete) => Ok(()),
                    other => Err(format!("Completeness: an incomplete cache took an event: {other:?}")),
                };
            };
            *applied = revision.0;
            let event: Option<Arc<Event>> = result.map_err(|error| format!("Reliable: {error}"))?;
            if event.map(|event| (event.resource_version.get(), event.change)) != Some((revision.0, change)) {
                return Err(format!("Reliable: {revision:?} was not taken as it is"));
            }
            self.ring.push(revision.0);
            if self.ring.len() > self.limits.history_events {
                self.floor = self.ring.remove(0);
            }
        }
        Ok(())
    }

    fn repeat(&mut self, events: usize) -> Outcome {
        let Some(applied) = self.applied else { return Ok(()) };
        let known = self.history.iter().filter(|revision| revision.0 <= applied).count();
        for revision in &self.history[known.saturating_sub(events)..known] {
            let (change, object) = self.change(*revision);
            if !matches!(self.cache.apply(change, object), Ok(None)) {
                return Err(format!("Unique: {revision:?} was applied twice"));
            }
        }
        Ok(())
    }

    fn bookmark(&mut self) {
        let from = self.applied.unwrap_or_default();
        let next =
            self.history.iter().find(|revision| revision.0 > from).map_or(self.upstream, |next| next.0 - 1);
        self.cache.bookmark(version(next));
        if let Some(applied) = &mut self.applied {
            *applied = next.max(*applied);
        }
    }

    fn objects_at(&self, at: Version) -> Vec<Arc<Object>> {
        let written = |key| self.history.iter().rfind(|r| r.0 <= at && r.1 == key).map_or(0, |r| r.0);
        // In no particular order: the cache must not depend on upstream's.
        (0..KEYS.len()).rev().filter_map(|key| self.object_at(key, at, written(key))).collect()
    }

    fn relist(&mut self) -> Outcome {
        let listed = self.cache.replace(self.objects_at(self.upstream), version(self.upstream));
        let should = match self.applied {
            None => Replaced::First,
            Some(applied) if applied == self.upstream => Replaced::Same,
            Some(_) => Replaced::Anew,
        };
        if listed != Ok(should) {
            return Err(format!("Completeness: a list of {} was {listed:?}, not {should:?}", self.upstream));
        }
        if should != Replaced::Same {
            self.floor = self.upstream;
            self.ring.clear();
        }
        self.applied = Some(self.upstream);
        Ok(())
    }

    fn relist_same(&mut self) -> Outcome {
        let Some(applied) = self.applied else { return Ok(()) };
        match self.cache.replace(self.objects_at(applied), version(applied)) {
            Ok(Replaced::Same) => Ok(()),
            other => Err(format!("Resumable: the same list again was {other:?}")),
        }
    }

    fn relist_old(&mut self, back: u64) -> Outcome {
        let Some(applied) = self.applied else { return Ok(()) };
        let old = applied.saturating_sub(back.max(1)).max(1);
        match self.cache.replace(self.objects_at(old), version(old)) {
            Err(_) => Ok(()),
            Ok(_) => Err(format!("NoRewind: a list of {old} replaced {applied}")),
        }
    }

    fn reset(&mut self) {
        self.cache.reset();
        self.epoch += 1;
        self.applied = None;
    }

    fn rewind(&mut self, back: u64) {
        self.upstream = self.upstream.saturating_sub(back).max(10);
        self.history.retain(|revision| revision.0 <= self.upstream);
        self.reset();
    }

    /// The process ends; the store kept the objects and the newest events.
    fn restart(&mut self, history: usize) {
        let Some(applied) = self.applied else { return self.reset() };
        let known: Vec<_> = self.history.iter().filter(|revision| revision.0 <= applied).copied().collect();
        let (before, tail) = known.split_at(known.len() - history.min(known.len()));
        // What the store kept follows on a change, or on a list.
        self.floor = before.last().map_or(self.floor, |revision| revision.0.max(self.floor)).min(applied);
        let past = tail.iter().map(|revision| {
            let (change, object) = self.change(*revision);
            let written = |key| known.iter().rfind(|r| r.0 < revision.0 && r.1 == key).map_or(0, |r| r.0);
            let previous = self.object_at(revision.1, revision.0 - 1, written(revision.1));
            Past { change, object, previous }
        });
        let past = (version(self.floor), past.collect());
        self.cache = Cache::restore(self.limits, self.objects_at(applied), version(applied), past);
        self.ring = tail.iter().map(|revision| revision.0).collect();
        self.floor = self.ring.first().map_or(self.floor, |first| self.floor.min(first - 1));
        while self.ring.len() > self.limits.history_events {
            self.floor = self.ring.remove(0);
        }
        for client in 0..self.clients.len() {
            self.clients[client].cursor = None;
        }
    }

    /// The version from which on the cache must serve; if bytes bound the history, as the cache says.
    fn floor(&self) -> Version {
        let said = self.cache.oldest().map_or(0, ResourceVersion::get);
        if self.limits.history_bytes == usize::MAX { self.floor } else { said }
    }

    /// Why a watch or list was refused must be true.
    fn refused(&self, asked: Version, answer: WatchAnswer) -> Outcome {
        let right = match answer {
            WatchAnswer::NotComplete => self.applied.is_none(),
            WatchAnswer::Behind { current } => Some(current.get()) == self.applied && asked > current.get(),
            WatchAnswer::Expired { oldest, asked: said } => {
                self.applied.is_some()
                    && said.get() == asked
                    && oldest.get() == self.floor()
                    && asked < self.floor()
            }
        };
        if right { Ok(()) } else { Err(format!("Resumable: {answer:?} for {asked}, floor {}", self.floor())) }
    }

    fn add(&mut self, pick: Pick, start: Version, initial: bool, end_bookmark: bool, cursor: Cursor) {
        let session = Session {
            pick,
            start,
            initial,
            end_bookmark,
            told: Vec::new(),
            bookmarks: Vec::new(),
            ended: None,
        };
        let client = Client { session, cursor: Some(cursor), caught_up: start, epoch: self.epoch };
        if self.clients.len() < 6 { self.clients.push(client) } else { self.clients[0] = client }
    }

    fn watch_after(&mut self, pick: Pick, back: u64, ahead: bool) -> Outcome {
        let at = self.applied.unwrap_or(self.upstream);
        let asked = if ahead { at + back } else { at.saturating_sub(back).max(1) };
        match watch(&self.cache, pick, &format!("resourceVersion={asked}&allowWatchBookmarks=true")) {
            Ok(_) if self.applied.is_none() => Err("Completeness: a watch of an incomplete cache".to_owned()),
            Ok(_) if asked < self.floor() => Err(format!("Reliable: a watch from {asked}")),
            Ok(cursor) => {
                self.add(pick, asked, false, false, cursor);
                Ok(())
            }
            Err(answer) => self.refused(asked, answer),
        }
    }

    fn watch_initial(&mut self, pick: Pick, end_bookmark: bool, ahead: bool) -> Outcome {
        let at = self.applied.unwrap_or(self.upstream);
        let asked = if ahead { at + 1 } else { at };
        let options = format!(
            "resourceVersion={asked}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks={end_bookmark}"
        );
        match watch(&self.cache, pick, &options) {
            Ok(_) if self.applied.is_none_or(|applied| applied < asked) => {
                Err(format!("Completeness: the state at {asked} when the cache is at {:?}", self.applied))
            }
            Ok(cursor) => {
                self.add(pick, at, true, end_bookmark, cursor);
                Ok(())
            }
            Err(answer) => self.refused(asked, answer),
        }
    }

    fn watch_live(&mut self, pick: Pick) -> Outcome {
        let options = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        match watch(&self.cache, pick, options) {
            Ok(cursor) => {
                self.add(pick, self.applied.unwrap_or_default(), false, false, cursor);
                Ok(())
            }
            Err(answer) => self.refused(0, answer),
        }
    }

    fn read_all(&mut self) -> Outcome {
        for client in 0..self.clients.len() {
            while self.read(client, 100)? {}
        }
        Ok(())
    }

    /// One read of one client; whether there may be more.
    fn read(&mut self, client: usize, budget: usize) -> Result<bool, String> {
        let floor = self.floor();
        let Client { session, cursor: slot, caught_up, epoch } = &mut self.clients[client];
        let Some(cursor) = slot else { return Ok(false) };
        let step = cursor.next(&self.cache, budget);
        if let Step::Expired { asked, oldest } = step {
            let told = session.last_seen(&self.history);
            let known = told.max(*caught_up).min(asked.get());
            let right = *epoch != self.epoch
                || (oldest.map(ResourceVersion::get) == Some(floor)
                    && asked.get() < floor
                    && known >= *caught_up);
            *slot = None;
            return if right {
                Ok(false)
            } else {
                Err(format!("Resumable: expired at {asked}, floor {floor}"))
            };
        }
        if *epoch != self.epoch {
            return Err("NoRewind: a client of another epoch was told something".to_owned());
        }
        let applied = self.applied.ok_or("Completeness: an incomplete cache told something")?;
        let idle = step == Step::Idle;
        if let Step::Events(deliveries) = step {
            for delivery in deliveries {
                match delivery {
                    Delivery::Added(object) => session.told.push(decode(Kind::Added, &object)),
                    Delivery::Modified(object) => session.told.push(decode(Kind::Modified, &object)),
                    Delivery::Deleted(object) => session.told.push(decode(Kind::Deleted, &object)),
                    Delivery::InitialEnd(at) if session.ended.is_none() => {
                        session.ended = Some((session.told.len(), at.get()));
                    }
                    Delivery::InitialEnd(_) => return Err("Bookmarkable: two ends".to_owned()),
                    Delivery::Bookmark(at) => session.bookmarks.push((session.told.len(), at.get())),
                }
            }
        }
        if idle {
            *caught_up = applied.max(*caught_up);
        }
        session.check(&self.history, applied, idle)?;
        Ok(!idle)
    }

    /// The client's connection is cut, and it comes back with the version that it saw last.
    fn resume(&mut self, client: usize) -> Outcome {
        let floor = self.floor();
        let Client { session, cursor, caught_up, epoch } = &mut self.clients[client];
        if *epoch != self.epoch || !session.is_begun(&self.history) {
            *cursor = None;
            return Ok(());
        }
        let asked = session.last_seen(&self.history);
        match watch(&self.cache, session.pick, &format!("resourceVersion={asked}&allowWatchBookmarks=true")) {
            Ok(_) if asked < floor => Err(format!("Resumable: resumed from {asked}, floor {floor}")),
            Ok(resumed) => {
                *caught_up = asked;
                *cursor = Some(resumed);
                Ok(())
            }
            Err(answer) => {
                *cursor = None;
                self.refused(asked, answer)
            }
        }
    }

    fn list_exact(&mut self, pick: Pick, back: u64, limit: u64) -> Outcome {
        let at = self.applied.unwrap_or(self.upstream);
        let asked = at.saturating_sub(back).max(1);
        let options = format!("resourceVersion={asked}&resourceVersionMatch=Exact&limit={limit}");
        let pages =
            Pages { pick, limit, version: asked, token: String::new(), told: vec![], epoch: self.epoch };
        self.list(pages, &options)
    }

    fn list_pages(&mut self, pick: Pick, limit: u64) -> Outcome {
        let version = self.applied.unwrap_or_default();
        let pages = Pages { pick, limit, version, token: String::new(), told: vec![], epoch: self.epoch };
        self.list(pages, &format!("limit={limit}"))
    }

    fn next_page(&mut self, list: usize) -> Outcome {
        let list = self.pages.swap_remove(list);
        if list.epoch != self.epoch {
            return Ok(());
        }
        let options = format!("limit={}&continue={}", list.limit, list.token);
        self.list(list, &options)
    }

    fn list(&mut self, pages: Pages, options: &str) -> Outcome {
        let request = ListRequest::parse(&query(pages.pick, options), &pods()).unwrap();
        let asked = pages.version;
        match self.cache.list(&request, scope(pages.pick)) {
            ListAnswer::Page(_) if self.applied.is_none() || asked < self.floor() => {
                Err(format!("Completeness: a list of {asked}, which is not known"))
            }
            ListAnswer::Page(answer) => self.page(pages, &answer),
            ListAnswer::Behind { current } => self.refused(asked, WatchAnswer::Behind { current }),
            ListAnswer::Expired { oldest, asked: said } => {
                self.refused(asked, WatchAnswer::Expired { oldest, asked: said })
            }
            ListAnswer::NotComplete => self.refused(asked, WatchAnswer::NotComplete),
        }
    }

    /// Takes in one page; after the last the whole list must be what upstream had.
    fn page(&mut self, mut list: Pages, answer: &Page) -> Outcome {
        list.told.extend(answer.objects.iter().map(|object| decode(Kind::Added, object)));
        let whole = listed(&self.history, &list.pick, list.version);
        let fail = |what: &str| Err(format!("Completeness: {what}: {:?} of {whole:?}", list.told));
        if answer.resource_version.get() != list.version {
            return fail("a page is of another version");
        }
        if list.limit > 0 && answer.objects.len() as u64 > list.limit {
            return fail("a page is too long");
        }
        if !whole.starts_with(&list.told) {
            return fail("a page has what is not there");
        }
        let rest = (whole.len() - list.told.len()) as u64;
        let counted = (rest > 0 && list.pick.is_everything()).then_some(rest);
        if answer.remaining != counted {
            return fail("the rest is miscounted");
        }
        match &answer.continue_token {
            Some(token) => {
                list.token.clone_from(token);
                self.pages.push(list);
            }
            None if rest > 0 => return fail("the list ended early"),
            None => {}
        }
        Ok(())
    }
}
