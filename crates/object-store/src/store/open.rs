//! Opens a store: finds the files, reads the last whole list of each subscription, and puts aside what is in its way.

use std::{collections::BTreeMap, io, path::Path, sync::Arc, thread};

use parking_lot::Mutex;

use super::{
    Earlier, Store, Torn, Unfinished,
    subscription::{Marker, Subscription},
};
use crate::{
    blobs::Blobs,
    disk::{Disk, FolderLock, remove_if_there},
    error::{OpenError, failed},
    log::{Identity, Sizes},
    record::{Problem, ProblemKind, Restored, SubscriptionId},
    restore::{Loaded, load},
    seal::{Key, Sealer},
    segment::Name,
    statistics::Counters,
};

/// Files of a subscription by generation.
type Generations = BTreeMap<u64, Vec<Name>>;

/// So many files one thread has read before another has begun; a long list has one for each megabyte.
const ALONE: usize = 16;

/// More threads wait for the disk and for memory.
const THREADS: usize = 4;

/// What the files of one subscription came to.
struct Found<T> {
    name: String,
    subscription: Subscription,
    restored: Option<T>,
    told: Told,
}

/// What is to be told of it.
#[derive(Default)]
struct Told {
    problems: Vec<Problem>,
    earlier: Vec<Earlier>,
    torn: Vec<Torn>,
    unfinished: Vec<Unfinished>,
}

impl Store {
    /// As [`Store::open_on`], and `take` makes of each subscription what its reader wants of it, by several threads where there is much.
    pub fn open_with<T: Send>(
        disk: Arc<dyn Disk>,
        dir: &Path,
        key: Option<&Key>,
        sizes: Sizes,
        take: impl Fn(Restored) -> T + Sync,
    ) -> Result<(Store, Vec<T>), OpenError> {
        let (logs, blobs) = (dir.join("logs"), dir.join("blobs"));
        disk.create_dir(dir).map_err(failed("create the folder", dir))?;
        let lock = lock(disk.as_ref(), &dir.join("lock"))?;
        for dir in [&logs, &blobs] {
            disk.create_dir(dir).map_err(failed("create the folder", dir))?;
            remove_temporary(disk.as_ref(), dir)?;
        }
        let sealer = key.and_then(Sealer::new).map(Arc::new);
        let counters = Arc::new(Counters::default());
        let place = Identity {
            dir: logs.as_path().into(),
            subscription: SubscriptionId::from(""),
            name: String::new(),
            generation: 0,
            sealer: sealer.clone(),
            sizes,
        };
        let mut store = Store {
            subscriptions: BTreeMap::new(),
            // What was there before may have been named by a process that was killed before it had synced.
            names: true,
            blobs: Arc::new(Blobs::new(disk.clone(), blobs, sealer, counters.clone(), lock.clone())),
            counters,
            syncs: 0,
            problems: Vec::new(),
            earlier: Vec::new(),
            torn: Vec::new(),
            unfinished: Vec::new(),
            compacted: String::new(),
            _lock: lock,
            place,
            disk,
        };
        let mut restored = Vec::new();
        for found in restore_each(store.disk.as_ref(), &store.place, &take)? {
            store.subscriptions.insert(found.name, found.subscription);
            store.problems.extend(found.told.problems);
            store.earlier.extend(found.told.earlier);
            store.torn.extend(found.told.torn);
            store.unfinished.extend(found.told.unfinished);
            restored.extend(found.restored);
        }
        // Makes durable what is shown, and removes what is in the way. A disk that can only be read is no reason not to
        // read it: each sync tries again.
        let _ = store.disk.sync_dir(dir);
        let _ = store.sync();
        store.syncs = 0;
        Ok((store, restored))
    }
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<FolderLock, OpenError> {
    match disk.lock(path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let mut holder = Vec::new();
            let _ = disk.read(path, &mut holder);
            let holder = String::from_utf8_lossy(&holder).trim().to_owned();
            let holder = if holder.is_empty() { "unknown".to_owned() } else { holder };
            Err(OpenError::InUse { path: path.to_owned(), holder })
        }
        result => Ok(result.map_err(failed("lock", path))?.into()),
    }
}

/// Removes what an interrupted write left.
fn remove_temporary(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    for name in disk.list(dir).map_err(failed("list", dir))? {
        if Path::new(&name).extension().is_some_and(|extension| extension == "new") {
            // Where that fails, the next write into it replaces it.
            let _ = remove_if_there(disk, &dir.join(name));
        }
    }
    Ok(())
}

fn find(disk: &dyn Disk, dir: &Path) -> Result<BTreeMap<String, Generations>, OpenError> {
    let mut found: BTreeMap<String, Generations> = BTreeMap::new();
    for name in disk.list(dir).map_err(failed("list", dir))?.iter().filter_map(|name| Name::parse(name)) {
        let generations = found.entry(name.subscription.clone()).or_default();
        generations.entry(name.generation).or_default().push(name);
    }
    Ok(found)
}

/// Restores all subscriptions, each by one thread, those of most files first; in the order of their names.
fn restore_each<T: Send>(
    disk: &dyn Disk,
    place: &Identity,
    take: &(impl Fn(Restored) -> T + Sync),
) -> Result<Vec<Found<T>>, OpenError> {
    let mut waiting: Vec<_> = find(disk, &place.dir)?.into_iter().collect();
    let files = |generations: &Generations| generations.values().map(Vec::len).sum::<usize>();
    waiting.sort_by_key(|(_, generations)| files(generations));
    let all = waiting.iter().map(|(_, generations)| files(generations)).sum::<usize>();
    let threads = if all <= ALONE { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    let (waiting, done) = (Mutex::new(waiting), Mutex::new(Vec::new()));
    let next = || waiting.lock().pop();
    let work = || {
        let mut buffer = Vec::new();
        while let Some((name, generations)) = next() {
            let place = Identity { name: name.clone(), ..place.clone() };
            let mut told = Told::default();
            let (subscription, whole) = restore(disk, &place, &generations, &mut told, &mut buffer);
            let restored = whole.map(take);
            done.lock().push(Found { name, subscription, restored, told });
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(THREADS) {
            // Where there is none to be had, this one does it all.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut done = done.into_inner();
    done.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(done)
}

/// Restores one subscription from the newest generation that is whole.
fn restore(
    disk: &dyn Disk,
    place: &Identity,
    generations: &Generations,
    told: &mut Told,
    buffer: &mut Vec<u8>,
) -> (Subscription, Option<Restored>) {
    let generation = generations.keys().next_back().copied().unwrap_or_default();
    let mut subscription = Subscription { generation, ..Subscription::default() };
    let mut restored = None;
    let mut rest = generations.iter().rev();
    while let Some((_, files)) = rest.next() {
        let (files, replaced) = without_replaced(files.clone());
        let paths = |names: &[Name]| names.iter().map(|name| name.path(&place.dir)).collect::<Vec<_>>();
        let (files_paths, replaced) = (paths(&files), paths(&replaced));
        match load(disk, place, place.sealer.as_ref(), &files, buffer) {
            Loaded::Whole(mut log, whole, shortened, torn) => {
                log.replaced = replaced;
                told.earlier.extend(shortened.map(|path| (whole.subscription.clone(), path)));
                let of = || whole.subscription.clone();
                told.torn.extend(torn.map(|(path, bytes)| Torn { subscription: of(), path, bytes }));
                subscription.current = Some(*log);
                restored = Some(whole);
                break;
            }
            Loaded::Incomplete(of, is_read) => {
                told.unfinished.push(Unfinished { subscription: of, files: files_paths.clone(), is_read });
                subscription.unfinished.extend(files_paths.into_iter().chain(replaced));
            }
            Loaded::Dropped => {
                subscription.markers.extend(files_paths.into_iter().map(Marker::found));
                break;
            }
            Loaded::Problem(path, id, kind) => {
                let damaged = matches!(kind, ProblemKind::Damaged(_));
                if matches!(kind, ProblemKind::WrongKey) {
                    subscription.locked = Some(path.clone());
                }
                told.problems.push(Problem { subscription: id, path, kind });
                let paths = files_paths.into_iter().chain(replaced);
                if damaged {
                    subscription.doomed.extend(paths);
                } else {
                    subscription.kept.extend(paths);
                    let older = rest.by_ref().flat_map(|(_, files)| paths_of(place, files));
                    subscription.kept.extend(older);
                }
            }
        }
    }
    // Older lists do not count any more.
    subscription.doomed.extend(rest.flat_map(|(_, files)| paths_of(place, files)));
    (subscription, restored)
}

fn paths_of(place: &Identity, names: &[Name]) -> Vec<std::path::PathBuf> {
    names.iter().map(|name| name.path(&place.dir)).collect()
}

/// Parts the files of a log, in their order, from those that were rewritten into one of them.
fn without_replaced(mut names: Vec<Name>) -> (Vec<Name>, Vec<Name>) {
    names.sort_by_key(|name| (name.first, std::cmp::Reverse(name.last)));
    let mut end = None;
    names.into_iter().partition(|name| {
        let new = end.is_none_or(|end| name.last > end);
        end = end.max(Some(name.last));
        new
    })
}
