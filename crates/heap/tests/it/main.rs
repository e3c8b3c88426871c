//! What stays resident of memory that was freed: of the whole process, so it runs alone.

use std::{fs, sync::Barrier, thread};

/// What this process has that is no file's, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// As documents are read, each by whichever thread is free.
#[test]
fn little_stays_of_what_threads_needed_once() {
    heap::keep_little();
    let (threads, before) = (8, resident());
    let (read, judged) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    let after = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for size in [3 << 20, 1 << 20, 1 << 20] {
                    drop(vec![1_u8; size]);
                }
                // Small ones lie one behind the other.
                drop((0..1000).map(|_| vec![1_u8; 4 << 10]).collect::<Vec<_>>());
                read.wait();
                judged.wait();
            });
        }
        read.wait();
        let after = resident();
        judged.wait();
        after
    });
    let kept = after.saturating_sub(before);
    assert!(kept < 8 << 10, "{threads} threads needed 4 MiB each, and {kept} KiB of it are kept");
}
