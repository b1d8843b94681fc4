//! System information of Linux, from `/proc`, `/sys` and the control groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::system::{CpuInfo, CpuTimes, MemoryLimit, unsupported};

pub(crate) fn cpu_info() -> io::Result<Vec<CpuInfo>> {
    let (stat, info) = (fs::read_to_string("/proc/stat")?, fs::read_to_string("/proc/cpuinfo")?);
    // SAFETY: takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Ok(parse_cpus(&stat, &info, ticks, |number| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_cur_freq");
        let khz: u32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
        Some(khz / 1_000)
    }))
}

/// Combines the times of `/proc/stat` with the models and speeds of `/proc/cpuinfo`.
fn parse_cpus(
    stat: &str,
    info: &str,
    ticks: u64,
    speed_mhz: impl Fn(usize) -> Option<u32>,
) -> Vec<CpuInfo> {
    let lines = stat.lines().filter_map(|line| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        // The line of the totals has no processor number.
        let number = words.next()?;
        let number: usize =
            line.starts_with(&format!("cpu{number}")).then_some(number)?.parse().ok()?;
        let mut time = || {
            let count = words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            Duration::from_millis(count.saturating_mul(1_000) / ticks)
        };
        let (user, nice, system, idle, _wait) = (time(), time(), time(), time(), time());
        Some((number, CpuTimes { user, nice, system, idle, irq: time() }))
    });
    let cpus = lines.map(|(number, times)| CpuInfo {
        model: cpuinfo_field(info, number, "model name").unwrap_or_default().to_owned(),
        speed_mhz: speed_mhz(number)
            .or_else(|| Some(cpuinfo_field(info, number, "cpu MHz")?.parse::<f64>().ok()? as u32))
            .unwrap_or(0),
        times,
    });
    cpus.collect()
}

/// The value of `key` for a processor in `/proc/cpuinfo`.
fn cpuinfo_field<'a>(info: &'a str, number: usize, key: &str) -> Option<&'a str> {
    let pair = |line: &'a str| line.split_once(':').map(|(key, value)| (key.trim(), value.trim()));
    let of_it = |(key, value): (&str, &str)| key == "processor" && value.parse() == Ok(number);
    let from = info.lines().position(|line| pair(line).is_some_and(of_it))?;
    let lines = info.lines().skip(from).take_while(|line| !line.trim().is_empty());
    lines.filter_map(pair).find(|(name, _)| *name == key).map(|(_, value)| value)
}

pub(crate) fn load_average() -> [f64; 3] {
    let line = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut words = line.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
    [(); 3].map(|()| words.next().unwrap_or(0.0))
}

pub(crate) fn uptime() -> io::Result<Duration> {
    // In a container this may be the uptime of the container.
    if let Ok(line) = fs::read_to_string("/proc/uptime")
        && let Some(Ok(seconds)) = line.split_whitespace().next().map(str::parse::<f64>)
    {
        return Duration::try_from_secs_f64(seconds).map_err(io::Error::other);
    }
    super::clock(libc::CLOCK_BOOTTIME)
}

/// A value of `/proc/meminfo`, in bytes.
fn meminfo(key: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kib = text.lines().find_map(|line| {
        line.strip_prefix(key)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    kib.map(|kib| kib * 1024).ok_or_else(|| unsupported("the amount of memory"))
}

pub(crate) fn free_memory() -> io::Result<u64> {
    // `MemAvailable`, which counts reclaimable memory, exists since Linux 3.14.
    meminfo("MemAvailable").or_else(|_| meminfo("MemFree"))
}

pub(crate) fn total_memory() -> io::Result<u64> {
    meminfo("MemTotal")
}

pub(crate) fn resident_memory() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    // SAFETY: takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    pages.map(|pages| pages * page).ok_or_else(|| unsupported("the resident memory"))
}

/// The lowest memory limit of the control groups that this process is in.
pub(crate) fn memory_limit() -> Option<MemoryLimit> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_under(Path::new("/sys/fs/cgroup"), &groups)
}

/// As [`memory_limit`], with the groups mounted at `root`.
fn limit_under(root: &Path, groups: &str) -> Option<MemoryLimit> {
    let mut tightest: Option<MemoryLimit> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (mount, limits, used): (_, &[&str], _) = match controllers {
            "" => (root.to_owned(), &["memory.max", "memory.high"], "memory.current"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                let files: &[&str] = &["memory.limit_in_bytes", "memory.soft_limit_in_bytes"];
                (root.join("memory"), files, "memory.usage_in_bytes")
            }
            _ => continue,
        };
        for group in ancestors(&mount, path) {
            let smallest = limits.iter().filter_map(|file| limit_in(&group.join(file))).min();
            let Some(bytes) = smallest else { continue };
            if tightest.is_none_or(|tightest| bytes < tightest.bytes) {
                let used = number_in(&group.join(used)).unwrap_or(0);
                tightest = Some(MemoryLimit { bytes, used });
            }
        }
    }
    tightest
}

/// A group and its ancestors. In a container the path may be that of the host, and only the root
/// group exists.
fn ancestors<'a>(mount: &'a Path, path: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    let path = Path::new(path.trim_start_matches('/'));
    path.ancestors().map(move |path| mount.join(path))
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The limit in a file. "max" means no limit, and so does a number beyond any memory, which
/// version 1 has.
fn limit_in(file: &Path) -> Option<u64> {
    const NO_LIMIT: u64 = 1 << 62;
    number_in(file).filter(|&bytes| bytes < NO_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_and_models_are_combined() {
        let stat = "cpu  9 9 9 9\ncpu0 100 200 300 400 5 600 7\ncpu2 1 2 3 4\nintr 5\n";
        let info = "processor\t: 0\nmodel name\t: A Model\ncpu MHz\t\t: 1234.5\n\n\
                    processor\t: 2\nmodel name\t: Another\n";
        let cpus = parse_cpus(stat, info, 100, |number| (number == 2).then_some(99));
        let ms = Duration::from_millis;
        assert_eq!(cpus.len(), 2);
        assert_eq!((&*cpus[0].model, cpus[0].speed_mhz), ("A Model", 1234));
        assert_eq!((&*cpus[1].model, cpus[1].speed_mhz), ("Another", 99));
        let CpuTimes { user, nice, system, idle, irq } = cpus[0].times;
        assert_eq!([user, nice, system, idle, irq], [1, 2, 3, 4, 6].map(|s| ms(s * 1_000)));
        assert_eq!(cpus[1].times.irq, Duration::ZERO, "an old kernel");
    }

    /// The limit of control groups given as files: `(path, content)`.
    fn limit(files: &[(&str, &str)], groups: &str) -> Option<MemoryLimit> {
        let root = std::env::temp_dir().join(format!("cgroups-{:?}", std::thread::current().id()));
        for (path, content) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let limit = limit_under(&root, groups);
        let _ = fs::remove_dir_all(root);
        limit
    }

    #[test]
    fn lowest_limit_of_cgroup_v2_ancestors_is_used() {
        let files = [
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.high", "5000\n"),
            ("a/memory.max", "4000\n"),
            ("a/memory.current", "1000\n"),
        ];
        let tightest = Some(MemoryLimit { bytes: 4000, used: 1000 });
        assert_eq!(limit(&files, "0::/a/b\n"), tightest, "that of the parent group");
        assert_eq!(limit(&files[..2], "0::/a/b\n"), Some(MemoryLimit { bytes: 5000, used: 0 }));
        assert_eq!(limit(&files[..1], "0::/a/b\n"), None);
        let outermost = [("memory.max", "77")];
        let found = limit(&outermost, "0::/path/of/the/host\n").unwrap();
        assert_eq!(found.bytes, 77, "in a container");
    }

    #[test]
    fn cgroup_v1_memory_controller_is_used() {
        let files = [
            ("memory/x/memory.limit_in_bytes", "3000\n"),
            ("memory/x/memory.soft_limit_in_bytes", "9223372036854771712\n"),
            ("memory/x/memory.usage_in_bytes", "200\n"),
        ];
        let groups = "5:cpu,cpuacct:/y\n4:memory:/x\n1:name=systemd:/z\n";
        assert_eq!(limit(&files, groups), Some(MemoryLimit { bytes: 3000, used: 200 }));
        assert_eq!(limit(&files[1..], groups), None);
        assert_eq!(limit(&files, "garbage"), None);
    }
}
