//! Files of the kernel that are read again and again: kept open and read from their start, without opening them anew.

use std::{fs::File, path::PathBuf};

/// The most that is read of one file: `/proc/schedstat` of hundreds of CPUs is not longer.
const LONGEST: usize = 1 << 20;

/// How many reads go by before a file that was not there is looked for again.
const LOOK_AGAIN: u32 = 60;

/// The same where what had the file comes back soon: a program that is started anew.
const LOOK_SOON: u32 = 3;

/// A file that stays open from one read to the next.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    file: Option<File>,
    /// Reads to pass over before it is looked for again.
    passes: u32,
    /// How many those are.
    look_again: u32,
}

impl Kept {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, passes: 0, look_again: LOOK_AGAIN }
    }

    /// Looked for every few reads where it is not.
    pub(crate) fn soon(self) -> Self {
        Self { look_again: LOOK_SOON, ..self }
    }

    /// The whole file as text in `buffer`; `None` if it is not there or cannot be read.
    pub(crate) fn read<'a>(&mut self, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
        let was_open = self.file.is_some();
        if !was_open && self.passes > 0 {
            self.passes -= 1;
            return None;
        }
        // One that was open is gone, as the files of a cgroup that was removed are (ENODEV). Another of its name may be there already.
        let is_read = was_open && self.fill(buffer) || {
            self.file = File::open(&self.path).ok();
            self.fill(buffer)
        };
        if !is_read {
            self.file = None;
            // What was there a moment ago may be back the next; what was not is not known to this kernel, or does not run.
            self.passes = if was_open { 0 } else { self.look_again };
            return None;
        }
        std::str::from_utf8(buffer).ok()
    }

    fn fill(&self, buffer: &mut Vec<u8>) -> bool {
        self.file.as_ref().is_some_and(|file| fill(file, buffer))
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

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::symlink,
        path::Path,
        process::{Child, Command},
    };

    use super::*;

    /// A process, whose files the kernel does not read any more when it has ended: as those of a cgroup that is gone.
    struct Process(Child);

    impl Process {
        fn at(path: &Path) -> Self {
            let process = Self(Command::new("sleep").arg("600").spawn().unwrap());
            let _ = std::fs::remove_file(path);
            symlink(format!("/proc/{}/stat", process.0.id()), path).unwrap();
            process
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_comes_back_is_found_soon() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut buffer) = (folder.path().join("stat"), Vec::new());
        for (mut file, reads) in [(Kept::new(path.clone()), 61), (Kept::new(path.clone()).soon(), 4)] {
            let mut process = Process::at(&path);
            assert!(file.read(&mut buffer).is_some());
            // Started anew at once.
            drop(std::mem::replace(&mut process, Process::at(&path)));
            assert!(file.read(&mut buffer).is_some());
            // After a moment.
            drop(process);
            assert!(file.read(&mut buffer).is_none());
            let process = Process::at(&path);
            assert!(file.read(&mut buffer).is_some(), "one that was there is looked for at once");
            // After longer.
            drop(process);
            assert!(file.read(&mut buffer).is_none());
            assert!(file.read(&mut buffer).is_none());
            let _process = Process::at(&path);
            let missed = (1..=100).find(|_| file.read(&mut buffer).is_some()).unwrap();
            assert_eq!(missed, reads);
        }
    }
}
