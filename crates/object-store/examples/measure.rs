//! Measures the store on a real disk: `measure write DIR [UPDATES] [UPDATES A SYNC] [OBJECTS]`, then `measure open DIR`.

use std::{fs, path::Path, time::Instant};

use bytes::Bytes;
use object_store::{Change, Record, Store, SubscriptionId};

const OBJECTS: u64 = 30_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).map_or(default, |n| n.parse().expect("a number"));
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", dir, ..] => write(Path::new(dir), number(2, 20_000), number(3, 40), number(4, OBJECTS)),
        ["open", dir] => open(Path::new(dir)),
        _ => say("measure write DIR [UPDATES] [UPDATES A SYNC] [OBJECTS] | measure open DIR"),
    }
}

fn write(dir: &Path, updates: u64, a_sync: u64, objects: u64) {
    let subscription = SubscriptionId::from("hub/endpointslices");
    let (mut store, _) = Store::open(dir, None).expect("open");
    let (start, before) = (Instant::now(), written());
    store.append(&subscription, &[Record::Begin]).expect("append");
    for object in 0..objects {
        store.append(&subscription, &[put(object, object + 1, Change::Added)]).expect("append");
    }
    store.append(&subscription, &[Record::Complete { version: objects }]).expect("append");
    store.sync().expect("sync");
    report("list", &store, (0, 0), before, start);

    let (start, before, statistics) = (Instant::now(), written(), store.statistics());
    let mut version = objects;
    for _ in 0..updates / a_sync {
        for _ in 0..a_sync {
            version += 1;
            let event = put(mix(version) % objects, version, Change::Modified);
            store.append(&subscription, &[event]).expect("append");
        }
        store.sync().expect("sync");
        store.compact_step(1 << 20).expect("compact");
    }
    while store.compact_step(1 << 20).expect("compact").more {}
    let name = format!("{updates} updates, {a_sync} a sync");
    report(&name, &store, (statistics.given, statistics.written), before, start);
}

fn open(dir: &Path) {
    let (before, processor, start) = (memory("VmRSS:"), processor(), Instant::now());
    let (store, restored) = Store::open(dir, None).expect("open");
    let (took, processor) = (start.elapsed(), self::processor() - processor);
    for one in &restored {
        let bytes: usize = one.objects.iter().map(|object| object.key.len() + object.body.len()).sum();
        say(&format!(
            "{took:?}, {processor} us of a processor: {} objects of {bytes} bytes, {} events, from {} bytes; resident {before} kB before, {} kB after, {} kB at most",
            one.objects.len(),
            one.history.len(),
            store.statistics().length,
            memory("VmRSS:"),
            memory("VmHWM:"),
        ));
    }
}

fn report(what: &str, store: &Store, (given, wrote): (u64, u64), disk: u64, start: Instant) {
    let statistics = store.statistics();
    let (given, wrote, disk) = (statistics.given - given, statistics.written - wrote, written() - disk);
    let ratio = |bytes: u64| format!("{}.{:02}", bytes / given, bytes * 100 / given % 100);
    say(&format!(
        "{what}: given {given}, written {wrote} (x{}), blocks written {disk} (x{}) in {:?}; resident {} kB, {} kB at most; {statistics:?}",
        ratio(wrote),
        ratio(disk),
        start.elapsed(),
        memory("VmRSS:"),
        memory("VmHWM:"),
    ));
}

fn put(object: u64, version: u64, change: Change) -> Record {
    let length = 500 + usize::try_from(mix(object) % 1500).expect("small");
    let mut random = mix(object ^ version << 20);
    let endpoints = std::iter::from_fn(|| {
        random = mix(random);
        Some(format!(r#"{{"addresses":["10.0.0.1"],"nodeName":"node-{random:016x}"}},"#))
    });
    let mut body: String = endpoints.take(1 + length / 50).collect();
    body.truncate(length);
    let key = format!("discovery.k8s.io/endpointslices/ns-{:03}/slice-{object:06}", object % 200);
    Record::Put { key: Bytes::from(key), version, body: Bytes::from(body), change }
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The bytes that this process made the disk write, in whole blocks.
fn written() -> u64 {
    field("/proc/self/io", "write_bytes:")
}

/// Microseconds that this thread ran.
fn processor() -> u64 {
    field("/proc/thread-self/schedstat", "") / 1000
}

fn memory(name: &str) -> u64 {
    field("/proc/self/status", name)
}

fn field(path: &str, name: &str) -> u64 {
    let content = fs::read_to_string(path).unwrap_or_default();
    let line = content.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

#[expect(clippy::print_stdout, reason = "a tool for the terminal")]
fn say(line: &str) {
    println!("{line}");
}
