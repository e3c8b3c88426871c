//! Files of the kernel that are read again and again: kept open and read from their start, without opening them anew.

use std::{fs::File, path::PathBuf};

/// The most that is read of one file: `/proc/schedstat` of hundreds of CPUs is not longer.
const LONGEST: usize = 1 << 20;

/// How many reads go by before a file that was not there is looked for again.
const LOOK_AGAIN: u32 = 60;

/// A file that stays open from one read to the next.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    file: Option<File>,
    /// Reads to pass over before it is looked for again.
    passes: u32,
}

impl Kept {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, passes: 0 }
    }

    /// The whole file as text in `buffer`; `None` if it is not there or cannot be read.
    pub(crate) fn read<'a>(&mut self, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
        if self.file.is_none() {
            if self.passes > 0 {
                self.passes -= 1;
                return None;
            }
            self.file = File::open(&self.path).ok();
        }
        let is_read = self.file.as_ref().is_some_and(|file| fill(file, buffer));
        if !is_read {
            // Gone, as the files of a cgroup that was removed are (ENODEV), or not known to this kernel.
            self.file = None;
            self.passes = LOOK_AGAIN;
            return None;
        }
        std::str::from_utf8(buffer).ok()
    }
}

/// A file that is read seldom: opened for it, so that a node of many pods does not hold a thousand descriptors.
pub(crate) fn read_once<'a>(path: &std::path::Path, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
    let file = File::open(path).ok()?;
    if fill(&file, buffer) { std::str::from_utf8(buffer).ok() } else { None }
}

/// Reads from the start to the end. The kernel gives a page or so at a time.
fn fill(file: &File, buffer: &mut Vec<u8>) -> bool {
    let mut length = 0;
    loop {
        if buffer.len() < length + 4_096 {
            buffer.resize(length + 16_384, 0);
        }
        match rustix::io::pread(file, &mut buffer[length..], length as u64) {
            Ok(0) => {
                buffer.truncate(length);
                return true;
            }
            Ok(read) => length += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
        if length >= LONGEST {
            return false;
        }
    }
}
