//! The kernel's texts. Pure; what is not there or is no number is `None`.

/// Ticks of CPU time of `/proc/stat`, and how many CPUs are online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTicks {
    /// All that was not idle, waiting for IO or stolen by the hypervisor.
    pub busy: u64,
    /// CPUs with a line of their own.
    pub cpus: u64,
}

/// `/proc/stat`.
pub fn stat(text: &str) -> Option<CpuTicks> {
    let mut lines = text.lines();
    let mut all = lines.next()?.split_ascii_whitespace();
    if all.next()? != "cpu" {
        return None;
    }
    // user nice system idle iowait irq softirq steal guest guest_nice; guest time is within user time.
    let ticks: Vec<u64> = all.take(7).map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq] = ticks[..] else { return None };
    let busy = [nice, system, irq, softirq].into_iter().try_fold(user, u64::checked_add)?;
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some(CpuTicks { busy, cpus: lines.take_while(is_cpu).count() as u64 })
}

/// Bytes of `/proc/meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// `MemTotal`.
    pub total: Option<u64>,
    /// `MemAvailable`.
    pub available: Option<u64>,
    /// `MemFree`.
    pub free: Option<u64>,
    /// `Inactive(file)`.
    pub inactive_file: Option<u64>,
}

/// `/proc/meminfo`, whose numbers are KiB.
pub fn meminfo(text: &str) -> MemInfo {
    let [total, available, free, inactive_file] =
        keyed(text, ["MemTotal:", "MemAvailable:", "MemFree:", "Inactive(file):"])
            .map(|kib| kib.and_then(|kib| kib.checked_mul(1_024)));
    MemInfo { total, available, free, inactive_file }
}

/// Numbers behind the first word of lines (`memory.stat`, `cpu.stat`, `memory.events`, `/proc/vmstat`).
pub fn keyed<const N: usize>(text: &str, keys: [&str; N]) -> [Option<u64>; N] {
    let mut found = [None; N];
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(key) = words.next() else { continue };
        if let Some(at) = keys.iter().position(|wanted| *wanted == key) {
            found[at] = words.next().and_then(|number| number.parse().ok());
        }
    }
    found
}

/// Sum of the numbers behind words that begin so: `allocstall_normal`, `allocstall_movable`, …
pub fn sum_of_prefix(text: &str, prefix: &str) -> Option<u64> {
    let numbers = text
        .lines()
        .filter(|line| line.starts_with(prefix))
        .map(|line| line.split_ascii_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()));
    numbers.reduce(|a, b| a?.checked_add(b?)).flatten()
}

/// A file with one number.
pub fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// A line of a pressure file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureLine {
    /// Moving averages over 10, 60 and 300 s, in parts per million.
    pub averages_ppm: [u32; 3],
    /// Microseconds since the beginning.
    pub total_us: u64,
}

/// A pressure file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureLines {
    /// At least one task waited.
    pub some: Option<PressureLine>,
    /// All waited.
    pub full: Option<PressureLine>,
}

/// `/proc/pressure/*` and `*.pressure` of a cgroup.
pub fn pressure(text: &str) -> PressureLines {
    let line = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        let value = |key: &str| {
            line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        let share = |key| value(key).and_then(ppm);
        Some(PressureLine {
            averages_ppm: [share("avg10")?, share("avg60")?, share("avg300")?],
            total_us: value("total")?.parse().ok()?,
        })
    };
    PressureLines { some: line("some"), full: line("full") }
}

/// `12.34` percent as parts per million.
fn ppm(percent: &str) -> Option<u32> {
    let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
    let digits = part.get(..2.min(part.len()))?;
    let part: u32 = digits.parse().ok()?;
    let part = if digits.len() == 1 { part * 10 } else { part };
    whole.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(part * 100).filter(|ppm| *ppm <= 1_000_000)
}

/// Waiting for a CPU, of all CPUs together, or of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunDelay {
    /// Nanoseconds that runnable tasks waited.
    pub waited_ns: u64,
    /// Time slices that were run.
    pub slices: u64,
}

/// `/proc/schedstat`: the last two of nine fields of each CPU, in versions 15 to 17.
pub fn schedstat(text: &str) -> Option<RunDelay> {
    let version: u32 = text.lines().next()?.strip_prefix("version ")?.trim().parse().ok()?;
    if !(15..=17).contains(&version) {
        return None;
    }
    let mut sum: Option<RunDelay> = None;
    for line in text.lines().filter(|line| line.starts_with("cpu")) {
        let fields: Vec<u64> =
            line.split_ascii_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        let [.., waited_ns, slices] = fields[..] else { return None };
        if fields.len() != 9 {
            return None;
        }
        let before = sum.unwrap_or(RunDelay { waited_ns: 0, slices: 0 });
        sum = Some(RunDelay {
            waited_ns: before.waited_ns.checked_add(waited_ns)?,
            slices: before.slices.checked_add(slices)?,
        });
    }
    sum
}

/// `/proc/<thread>/schedstat`: nanoseconds run, nanoseconds waited, slices. Zeros alone are what a kernel prints that does not measure
/// (and of a thread that has not run yet): they say nothing.
pub fn task_schedstat(text: &str) -> Option<RunDelay> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
    let [run, waited_ns, slices] = [fields.next()??, fields.next()??, fields.next()??];
    ([run, waited_ns, slices] != [0; 3]).then_some(RunDelay { waited_ns, slices })
}

/// Ticks of CPU time by the number of the CPU, of `/proc/stat`; see [`CpuTicks::busy`].
pub fn stat_by_cpu(text: &str) -> impl Iterator<Item = (u32, u64)> + '_ {
    text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let number = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
        let ticks: Vec<u64> = words.take(7).map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _iowait, irq, softirq] = ticks[..] else { return None };
        let busy = [nice, system, irq, softirq].into_iter().try_fold(user, u64::checked_add)?;
        Some((number, busy))
    })
}

/// A list of numbers as the kernel writes it: `0-3,8,10-11`. What is odd is passed over.
pub fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (last.checked_sub(first)? < 4_096).then_some(first..=last)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// `/sys/devices/system/node/node<n>/meminfo`, whose lines begin `Node <n>` and whose numbers are KiB; there is no `MemAvailable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaMemInfo {
    /// `MemTotal`.
    pub total: Option<u64>,
    /// `MemFree`.
    pub free: Option<u64>,
    /// `Active(file)`.
    pub active_file: Option<u64>,
    /// `Inactive(file)`.
    pub inactive_file: Option<u64>,
    /// `SReclaimable`.
    pub reclaimable: Option<u64>,
}

/// See [`NumaMemInfo`].
pub fn numa_meminfo(text: &str) -> NumaMemInfo {
    let mut info = NumaMemInfo::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        let (Some(key), Some(kib)) = (words.next(), words.next().and_then(|kib| kib.parse::<u64>().ok()))
        else {
            continue;
        };
        let place = match key {
            "MemTotal:" => &mut info.total,
            "MemFree:" => &mut info.free,
            "Active(file):" => &mut info.active_file,
            "Inactive(file):" => &mut info.inactive_file,
            "SReclaimable:" => &mut info.reclaimable,
            _ => continue,
        };
        *place = kib.checked_mul(1_024);
    }
    info
}

/// Block IO since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Bytes read and written.
    pub bytes: [u64; 2],
    /// Reads and writes.
    pub operations: [u64; 2],
}

impl IoCounts {
    fn add(&mut self, bytes: [u64; 2], operations: [u64; 2]) {
        for at in 0..2 {
            self.bytes[at] = self.bytes[at].saturating_add(bytes[at]);
            self.operations[at] = self.operations[at].saturating_add(operations[at]);
        }
    }
}

/// `/proc/diskstats`: whole disks only, of those that are not built of others; `is_disk` says which.
pub fn diskstats(text: &str, mut is_disk: impl FnMut(&str) -> bool) -> Option<IoCounts> {
    let mut sum: Option<IoCounts> = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        let Some(name) = words.next() else { continue };
        let fields: Vec<u64> = words.map_while(|field| field.parse().ok()).collect();
        let [reads, _, read_sectors, _, writes, _, written_sectors, ..] = fields[..] else { continue };
        if !is_disk(name) {
            continue;
        }
        // A sector is 512 bytes here, whatever the disk's own is.
        let bytes = [read_sectors.saturating_mul(512), written_sectors.saturating_mul(512)];
        sum.get_or_insert_default().add(bytes, [reads, writes]);
    }
    sum
}

/// `io.stat` of cgroup v2. A cgroup that has done no IO has an empty file: that is zero.
pub fn io_stat(text: &str) -> IoCounts {
    let mut sum = IoCounts::default();
    for line in text.lines() {
        let value = |key: &str| {
            let found =
                line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            found.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        sum.add([value("rbytes"), value("wbytes")], [value("rios"), value("wios")]);
    }
    sum
}

/// `blkio.*_recursive` of cgroup v1: reads and writes of all devices.
pub fn blkio(text: &str) -> [u64; 2] {
    let mut sum = [0_u64; 2];
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_device, operation, number] = words[..] else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match operation {
            "Read" => sum[0] = sum[0].saturating_add(number),
            "Write" => sum[1] = sum[1].saturating_add(number),
            _ => {}
        }
    }
    sum
}

#[cfg(test)]
mod tests;
