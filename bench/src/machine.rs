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
        Machine { processor, cores, system: system.trim().into(), load, versions: versions() }
    }

    /// True if other programs use the machine.
    pub fn is_busy(&self) -> bool {
        self.load.is_some_and(|load| load > 0.5 * self.cores as f64)
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
