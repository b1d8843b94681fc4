//! The machine of a measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The machine, its system and the versions of everything measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The name of the processor.
    pub processor: String,
    /// The number of cores that this process may use.
    pub cores: usize,
    /// The operating system and its kernel version.
    pub system: String,
    /// The load average of the last minute before the measurement. More than a few tenths is
    /// noise.
    pub load: Option<f64>,
    /// The compiler, this program and its peers.
    pub versions: BTreeMap<String, String>,
    /// Other facts that may matter: the kernel's command line and mitigations, frequency control,
    /// virtualisation, and how everything was built.
    pub facts: BTreeMap<String, String>,
}

impl Machine {
    /// Queries this machine.
    pub fn here() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let system = format!("{} {} {}", std::env::consts::OS, std::env::consts::ARCH, release);
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split(' ').next()?.parse().ok());
        let processor = processor().unwrap_or_else(|| "unknown".into());
        let (versions, facts) = (versions(), facts());
        Machine { processor, cores, system: system.trim().into(), load, versions, facts }
    }

    /// True if other programs use the machine.
    pub fn is_busy(&self) -> bool {
        self.load.is_some_and(|load| load > 0.5 * self.cores as f64)
    }
}

/// A file of the kernel, in one line.
fn line_of(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

fn facts() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, what: Option<String>| {
        facts.extend(what.map(|what| (name.to_string(), what)));
    };
    add("Kernel command line", line_of("/proc/cmdline").map(|line| settings_of(&line)));
    add("Huge pages", line_of("/sys/kernel/mm/transparent_hugepage/enabled").map(chosen));
    add("Mitigations", mitigations());
    let governor = line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let hidden = || cfg!(target_os = "linux").then(|| "not visible here".to_string());
    add("Governor", governor.or_else(hidden));
    let smt = line_of("/sys/devices/system/cpu/smt/active");
    add("SMT", smt.map(|active| if active == "1" { "on".into() } else { "off".into() }));
    add("Virtual", virtual_machine());
    add("Rust build", Some(flags()));
    #[cfg(all(unix, feature = "libuv"))]
    add("libuv's build", Some(build_of_libuv()));
    facts
}

/// How libuv was built. Its assertions stay unless the user's flags remove them, as in the packages
/// of most distributions.
#[cfg(all(unix, feature = "libuv"))]
fn build_of_libuv() -> String {
    let (compiler, own) = (env!("BUILT_WITH_C_COMPILER"), env!("BUILT_WITH_CFLAGS"));
    let assertions = if own.contains("NDEBUG") { "no assertions" } else { "with assertions" };
    let own = if own.is_empty() { String::new() } else { format!(" {own}") };
    format!("{compiler}, -O{}{own}, {assertions}", env!("BUILT_WITH_OPT_LEVEL"))
}

/// The parameters of a kernel command line that change what code costs. The others name disks,
/// consoles, addresses and other matters of the host.
fn settings_of(line: &str) -> String {
    /// Parameters, and the beginnings of families of them.
    const KEPT: [&str; 33] = [
        "mitigations",
        "nospectre_",
        "spectre_",
        "spec_store_bypass_disable",
        "nopti",
        "pti",
        "kpti",
        "l1tf",
        "mds",
        "tsx",
        "srbds",
        "retbleed",
        "gather_data_sampling",
        "isolcpus",
        "nohz",
        "rcu_nocb",
        "irqaffinity",
        "nosmt",
        "maxcpus",
        "nr_cpus",
        "cpufreq.",
        "cpuidle.",
        "intel_pstate",
        "intel_idle.",
        "amd_pstate",
        "processor.max_cstate",
        "idle",
        "clocksource",
        "tsc",
        "transparent_hugepage",
        "hugepages",
        "preempt",
        "audit",
    ];
    let kept = |word: &&str| {
        let name = word.split('=').next().unwrap_or(word);
        KEPT.iter().any(|kept| match kept.ends_with(['_', '.']) || *kept == "nohz" {
            true => name.starts_with(kept),
            false => name == *kept,
        })
    };
    let words: Vec<_> = line.split_whitespace().filter(kept).collect();
    match words.is_empty() {
        true => "nothing that concerns performance".into(),
        false => words.join(" "),
    }
}

/// The chosen one of the alternatives in a file of the kernel, which is in brackets.
fn chosen(line: String) -> String {
    let inner = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(line.clone(), |(chosen, _)| chosen.into())
}

/// The mitigations that are in force, by the name of the vulnerability.
fn mitigations() -> Option<String> {
    let folder = std::fs::read_dir("/sys/devices/system/cpu/vulnerabilities").ok()?;
    let mut active: Vec<String> = folder
        .flatten()
        .filter_map(|entry| {
            let what = std::fs::read_to_string(entry.path()).ok()?;
            let what = what.trim().strip_prefix("Mitigation: ")?.to_string();
            let what = what.split([';', ',']).next().unwrap_or_default().to_string();
            Some(format!("{} ({what})", entry.file_name().to_string_lossy()))
        })
        .collect();
    active.sort_unstable();
    Some(if active.is_empty() { "none in force".into() } else { active.join(", ") })
}

fn virtual_machine() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    let is_virtual = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let maker = line_of("/sys/class/dmi/id/sys_vendor").map(|maker| format!(" ({maker})"));
    Some(match is_virtual {
        true => format!("yes{}", maker.unwrap_or_default()),
        false => "no".into(),
    })
}

/// How the Rust code, that of the peers too, was built.
fn flags() -> String {
    let more = match env!("BUILT_WITH_RUSTFLAGS") {
        "" => String::new(),
        flags => format!(", {flags}"),
    };
    let (profile, level) = (env!("BUILT_IN_PROFILE"), env!("BUILT_WITH_OPT_LEVEL"));
    format!("{profile} profile, opt-level {level}, {}{more}", env!("BUILT_FOR"))
}

/// Measures what other programs use of the machine.
#[derive(Debug)]
pub(crate) struct Foreign {
    before: Option<(u64, u64)>,
}

impl Foreign {
    pub(crate) fn start() -> Foreign {
        Foreign { before: Foreign::read() }
    }

    /// The share of all cores' time that others have used since the start.
    pub(crate) fn share(&self) -> Option<f64> {
        let ((busy, all), (busy_now, all_now)) = (self.before?, Foreign::read()?);
        let all = all_now.saturating_sub(all);
        let busy = busy_now.saturating_sub(busy);
        (all > 0).then(|| (busy as f64 / all as f64).min(1.0))
    }

    /// Clock ticks of all cores: used by others than this process and its children, and in all.
    fn read() -> Option<(u64, u64)> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let fields = stat.lines().next()?.split_whitespace().skip(1);
        // user, nice, system, idle, iowait, irq, softirq, steal.
        let ticks: Vec<u64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else {
            return None;
        };
        let own = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name is in parentheses and may have spaces; utime is the twelfth field after it.
        let own: u64 = own
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .skip(11)
            .take(4)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        let busy = user + nice + system + irq + softirq + steal;
        Some((busy.saturating_sub(own), busy + idle + iowait))
    }
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().into())
}

fn versions() -> BTreeMap<String, String> {
    let mut versions = BTreeMap::from([
        ("rustc".to_string(), env!("VERSION_OF_RUSTC").to_string()),
        ("uv-core".into(), env!("CARGO_PKG_VERSION").into()),
        ("polling".into(), env!("VERSION_OF_POLLING").into()),
    ]);
    if cfg!(unix) {
        versions.insert("mio".into(), env!("VERSION_OF_MIO").into());
    }
    if cfg!(target_os = "linux") {
        versions.insert("tokio".into(), env!("VERSION_OF_TOKIO").into());
        let (io, executor) = (env!("VERSION_OF_ASYNC_IO"), env!("VERSION_OF_ASYNC_EXECUTOR"));
        versions.insert("smol".into(), format!("async-io {io}, async-executor {executor}"));
    }
    if cfg!(all(target_os = "linux", feature = "compio")) {
        versions.insert("compio".into(), env!("VERSION_OF_COMPIO").into());
    }
    if cfg!(all(target_os = "linux", feature = "monoio")) {
        versions.insert("monoio".into(), env!("VERSION_OF_MONOIO").into());
    }
    if cfg!(all(target_os = "linux", feature = "glommio")) {
        versions.insert("glommio".into(), env!("VERSION_OF_GLOMMIO").into());
    }
    #[cfg(all(unix, feature = "libuv"))]
    versions.insert("libuv".into(), crate::libuv::version());
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_reduced_to_what_matters() {
        let line = "console=ttyS0 root=/dev/vda ip=10.0.0.2 mitigations=off nohz_full=1 idle=poll \
                    isolcpus=1,2 idlewild=x spectre_v2=off secret=tea -- --token=1";
        let kept = "mitigations=off nohz_full=1 idle=poll isolcpus=1,2 spectre_v2=off";
        assert_eq!(settings_of(line), kept);
        assert_eq!(settings_of("root=/dev/vda"), "nothing that concerns performance");
    }

    #[test]
    fn the_chosen_alternative_is_named() {
        assert_eq!(chosen("always [madvise] never".into()), "madvise");
        assert_eq!(chosen("always".into()), "always");
    }
}
