//! What the kernel says of a process on this machine: processor time, memory, writes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// A running process, by its number.
#[derive(Clone, Copy)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// The process whose command line has this program and this word.
    pub(crate) fn find(program: &str, word: &str) -> Result<Self> {
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let text = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let mut words = text.split(|byte| *byte == 0);
            let is = words.next().is_some_and(|first| first.ends_with(program.as_bytes()));
            if is && words.any(|other| other == word.as_bytes()) {
                return Ok(Self(entry.file_name().to_string_lossy().parse()?));
            }
        }
        anyhow::bail!("no {program} with {word} on this machine")
    }

    /// User and system time.
    pub(crate) fn cpu_seconds(self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // proc(5): utime and stime are fields 14 and 15 of the line, 12 and 13 after the name, in ticks of 10 ms.
        let ticks: f64 =
            fields.get(11..13).context("stat")?.iter().filter_map(|f| f.parse::<f64>().ok()).sum();
        Ok(ticks / 100.0)
    }

    /// Memory that is resident now.
    pub(crate) fn resident_mb(self) -> Result<f64> {
        Ok(self.number("status", "VmRSS:")? / 1024.0)
    }

    /// The most that was resident since the start, or since the last [`Process::forget_peak`].
    pub(crate) fn peak_mb(self) -> Result<f64> {
        Ok(self.number("status", "VmHWM:")? / 1024.0)
    }

    /// From now on the peak is counted anew.
    pub(crate) fn forget_peak(self) -> Result<()> {
        // proc(5): 5 resets the peak of the resident set.
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.0), "5")?)
    }

    /// Bytes that it made the kernel write to a disk.
    pub(crate) fn written_bytes(self) -> Result<f64> {
        self.number("io", "write_bytes:")
    }

    fn number(self, file: &str, name: &'static str) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.0))?;
        let line = text.lines().find(|line| line.starts_with(name)).context(name)?;
        Ok(line.split_whitespace().nth(1).context(name)?.parse()?)
    }
}

/// Processor seconds so far of all running processes, by the first 15 bytes of their programs' names.
pub(crate) fn cpu_by_program() -> Result<BTreeMap<String, f64>> {
    let mut programs = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let Ok(name) = std::fs::read_to_string(entry.path().join("comm")) else { continue };
        // One that ended meanwhile counts no more.
        let Ok(seconds) = Process(pid).cpu_seconds() else { continue };
        *programs.entry(name.trim().to_owned()).or_default() += seconds;
    }
    Ok(programs)
}
