//! Memory that a program has freed and its allocator has kept.
//!
//! glibc's allocator gives back what lies at the end of its heaps, and keeps the rest for later: a program that has held a hundred megabytes in small
//! pieces stays that large. Where the pieces were many and their like does not come again, it can be asked for them.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A block of so many bytes or more is a mapping of its own, which goes when it is freed: 256 KiB, more than anything that is needed often.
#[cfg(target_env = "gnu")]
const LARGE: i32 = 256 << 10;

/// What a heap keeps of free memory at its end, in bytes: 256 KiB.
#[cfg(target_env = "gnu")]
const KEPT: i32 = 256 << 10;

/// Has little kept of what was needed once (`mallopt(3)`). Left alone glibc takes the largest block that was ever freed, up to 32 MiB, for a size that is needed
/// often, and keeps twice as much at the end of each thread's heap: a few megabytes read by some threads in turn stay resident some times over.
/// For a program's beginning: what is there already stays as it is. With another allocator nothing happens.
#[allow(unsafe_code, reason = "one of the two calls that this crate is for")]
pub fn keep_little() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two numbers and asks nothing of its caller; it locks the main heap (MT-Safe init). A value that it refuses changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}

/// One at a time looks through the heaps.
static LOOKING: Mutex<()> = parking_lot::const_mutex(());

/// Somebody is about to, and finds whatever is free by now.
static ABOUT_TO: AtomicBool = AtomicBool::new(false);

/// Gives whole pages that nobody uses back to the system, wherever they lie (`malloc_trim(3)`). It takes some milliseconds for each hundred megabytes, during which
/// whoever allocates waits: for a thread that may block, and for what happens seldom. Of many that ask at once one does it for all, who need not wait for that.
/// With another allocator nothing happens.
pub fn give_back() {
    once(&LOOKING, &ABOUT_TO, trim);
}

fn once(looking: &Mutex<()>, about_to: &AtomicBool, look: impl FnOnce()) {
    if about_to.swap(true, Ordering::AcqRel) {
        return;
    }
    let _looking = looking.lock();
    about_to.store(false, Ordering::Release);
    look();
}

#[allow(unsafe_code, reason = "one of the two calls that this crate is for")]
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes no pointer and asks nothing of its caller; it locks each heap that it looks at (MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    #[test]
    fn of_those_who_ask_meanwhile_one_looks_for_all() {
        let (looking, about_to, looked) = (Mutex::new(()), AtomicBool::new(false), Mutex::new(0));
        let (begun, end) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                once(&looking, &about_to, || {
                    begun.wait();
                    end.wait();
                    *looked.lock() += 1;
                });
            });
            begun.wait();
            let others: Vec<_> =
                (0..4).map(|_| scope.spawn(|| once(&looking, &about_to, || *looked.lock() += 1))).collect();
            // All but one are told at once.
            while others.iter().filter(|other| other.is_finished()).count() < 3 {
                thread::yield_now();
            }
            let meanwhile = *looked.lock();
            end.wait();
            assert_eq!(meanwhile, 0, "while another looks");
        });
        assert_eq!(*looked.lock(), 2);
    }
}
