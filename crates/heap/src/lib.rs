//! Memory that a program has freed and its allocator has kept.
//!
//! glibc's allocator gives back what lies at the end of its heaps, and keeps the rest for later: a program that has held a hundred megabytes in small
//! pieces stays that large. Where the pieces were many and their like does not come again, it can be asked for them.

/// Gives whole pages that nobody uses back to the system, wherever they lie (`malloc_trim(3)`). It takes some milliseconds for each hundred megabytes, during which
/// whoever allocates waits: for a thread that may block, and for what happens seldom. With another allocator nothing happens.
#[allow(unsafe_code, reason = "the one call that this crate is for")]
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes no pointer and asks nothing of its caller; it locks each heap that it looks at (MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}
