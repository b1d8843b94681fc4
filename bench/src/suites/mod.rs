//! The suites, one module each: what every contestant does, side by side.

pub mod asyncs;
pub mod calls;
pub mod echo;
pub mod files;
pub mod memory;
pub mod pool;
pub mod spawn;
pub mod timers;
pub mod turns;
pub mod udp;
pub mod wait;

use crate::backends::Which;
use crate::suite::Suite;

/// How large scenarios are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// To see that everything works. The numbers mean nothing.
    Tiny,
    /// All suites in about one minute.
    Quick,
    /// All suites in about fifteen minutes.
    Full,
}

impl Scale {
    /// One of three numbers.
    pub const fn pick(self, tiny: u64, quick: u64, full: u64) -> u64 {
        match self {
            Scale::Tiny => tiny,
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }

    /// The name, as the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Scale::Tiny => "tiny",
            Scale::Quick => "quick",
            Scale::Full => "full",
        }
    }
}

/// The names of all suites.
pub const NAMES: [&str; 13] = [
    "timers", "turns", "async", "pool", "wait", "echo", "connect", "pump", "udp", "memory",
    "calls", "files", "spawn",
];

/// All suites.
///
/// `which` is for work that is hardly the backend's; in a full run only for what takes long
/// of that. Scenarios that are about backends have all of them in any case.
pub fn all(scale: Scale, which: Which) -> Vec<Suite> {
    let which_if_short = if scale == Scale::Full { Which::All } else { which };
    vec![
        timers::suite(scale, which),
        turns::suite(scale),
        asyncs::suite(scale, which_if_short),
        pool::suite(scale, which_if_short),
        wait::suite(scale),
        echo::suite(scale),
        echo::connections(scale),
        echo::pump(scale),
        udp::suite(scale),
        memory::suite(scale, which_if_short),
        calls::suite(scale),
        files::suite(scale),
        spawn::suite(scale, which),
    ]
}

/// Where libuv cannot be.
#[cfg(not(all(unix, feature = "libuv")))]
fn excuse_libuv(entrants: &mut crate::suite::Entrants) {
    let why = if cfg!(feature = "libuv") {
        "is compared on Unix only".into()
    } else {
        not_in_this_build("libuv")
    };
    entrants.excuse(crate::suite::Who::Peer("libuv"), why);
}

/// Why an optional peer is missing.
pub(crate) fn not_in_this_build(name: &str) -> String {
    let wants = if name == "libuv" { " (wants a C compiler and libclang)" } else { "" };
    format!("not in this build: add '--features {name}'{wants}")
}
