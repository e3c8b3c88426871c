use super::*;

#[test]
fn cpu_time_is_what_was_not_idle() {
    let text = "cpu  10 20 30 4000 50 6 7 800 9 1\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\ncpu9 ignored";
    assert_eq!(stat(text), Some(CpuTicks { busy: 73, cpus: 2 }));
    for odd in ["", "cpu", "cpu 1 2 3", "cpu a b c d e f g", "intr 1", "cpu 1 2 3 4 5 6 -7"] {
        assert_eq!(stat(odd), None, "{odd:?}");
    }
}

#[test]
fn meminfo_is_in_bytes_and_old_kernels_have_less() {
    let text = "MemTotal:       100 kB\nMemFree:  40 kB\nInactive(file):  7 kB\n";
    let expected =
        MemInfo { total: Some(102_400), available: None, free: Some(40_960), inactive_file: Some(7_168) };
    assert_eq!(meminfo(text), expected);
    assert_eq!(meminfo("MemTotal: lots\nMemFree:"), MemInfo::default());
}

#[test]
fn pressure_has_two_decimals() {
    let text = "some avg10=14.06 avg60=0.1 avg300=100.00 total=19180725619\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    let read = pressure(text);
    assert_eq!(
        read.some,
        Some(PressureLine { averages_ppm: [140_600, 1_000, 1_000_000], total_us: 19_180_725_619 })
    );
    assert_eq!(read.full, Some(PressureLine { averages_ppm: [0; 3], total_us: 0 }));
    // cpu.pressure before Linux 5.13 has no line `full`.
    assert_eq!(pressure("some avg10=1.00 avg60=1.00 avg300=1.00 total=5").full, None);
    for odd in [
        "",
        "some",
        "some avg10=1.00 avg60=1.00 total=5",
        "some avg10=x avg60=1 avg300=1 total=5",
        "some avg10=1.é avg60=1 avg300=1 total=5",
        "some avg10=999.00 avg60=1 avg300=1 total=5",
    ] {
        assert_eq!(pressure(odd).some, None, "{odd:?}");
    }
}

#[test]
fn run_delay_is_of_all_cpus() {
    let text =
        "version 15\ntimestamp 4\ncpu0 0 0 0 0 0 0 100 20 3\ndomain0 ff 1 2 3\ncpu1 0 0 0 0 0 0 100 5 4\n";
    assert_eq!(schedstat(text), Some(RunDelay { waited_ns: 25, slices: 7 }));
    for odd in
        ["", "version 14\ncpu0 0 0 0 0 0 0 1 2 3", "version 99\n", "version 15\ncpu0 1 2", "version 15\n"]
    {
        assert_eq!(schedstat(odd), None, "{odd:?}");
    }
}

#[test]
fn disks_count_once() {
    let text = " 8 0 sda 10 0 8 0 20 0 16 0 0 0 0\n 8 1 sda1 10 0 8 0 20 0 16 0 0 0 0\n 8 16 sdb 1 0 2 0 3 0 4\n 7 0 loop0\n";
    let whole = |name: &str| name == "sda" || name == "sdb";
    assert_eq!(diskstats(text, whole), Some(IoCounts { bytes: [5_120, 10_240], operations: [11, 23] }));
    assert_eq!(diskstats(text, |_| false), None);
}

#[test]
fn io_of_cgroups_is_of_all_devices() {
    let text =
        "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=x rios=1 wios=1\n7:0\n";
    assert_eq!(io_stat(text), IoCounts { bytes: [11, 20], operations: [2, 3] });
    assert_eq!(io_stat(""), IoCounts::default());
    assert_eq!(blkio("8:0 Read 5\n8:0 Write 6\n8:0 Sync 9\n8:16 Read 1\nTotal 11\n"), [6, 6]);
}

#[test]
fn sums_and_keys() {
    assert_eq!(sum_of_prefix("allocstall_normal 3\nallocstall_movable 4\nother 9", "allocstall"), Some(7));
    assert_eq!(sum_of_prefix("other 9", "allocstall"), None);
    assert_eq!(keyed("a 1\nb x\nc", ["a", "b", "c", "d"]), [Some(1), None, None, None]);
}

proptest::proptest! {
    #[test]
    fn whatever_the_kernel_says_nothing_panics(text in "(cpu|some|full|version 15|[a-z0-9 =.\\n:]|é|\\PC){0,60}") {
        let _ = (stat(&text), meminfo(&text), pressure(&text), schedstat(&text), io_stat(&text), blkio(&text));
        let _ = (diskstats(&text, |_| true), sum_of_prefix(&text, "a"), number(&text));
    }
}

#[test]
fn lists_threads_and_cpus_are_read() {
    assert_eq!(list("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
    assert_eq!(list(""), [0_u32; 0]);
    assert_eq!(list("a,3-1,5,0-99999999"), [5]);
    assert_eq!(task_schedstat("5 70 3\n"), Some(RunDelay { waited_ns: 70, slices: 3 }));
    assert_eq!(task_schedstat("5 x 3"), None);
    assert_eq!(task_schedstat("5 7"), None);
    assert_eq!(task_schedstat("0 0 0\n"), None, "a kernel that does not measure");
    assert_eq!(task_schedstat("5 0 0"), Some(RunDelay { waited_ns: 0, slices: 0 }));
    let text = "cpu  9 9 9 9 9 9 9\ncpu0 1 2 3 100 100 4 5 6\ncpu10 1 0 0 0 0 0 0\ncpu11 1 0\nintr 5\n";
    assert_eq!(stat_by_cpu(text).collect::<Vec<_>>(), [(0, 15), (10, 1)]);
    let info = numa_meminfo("Node 1 MemTotal:  8 kB\nNode 1 MemFree: 2 kB\nNode 1 Active(file): x kB\n");
    assert_eq!((info.total, info.free, info.active_file), (Some(8_192), Some(2_048), None));
}
