//! The suites, one module each, with a file for each contestant.

pub mod asyncs;
pub mod calls;
pub mod echo;
pub mod files;
pub mod handlers;
pub mod http;
pub mod instructions;
pub mod iterations;
pub mod memory;
pub mod mixed;
pub mod open;
pub mod pool;
pub mod reads;
pub(crate) mod serving;
pub mod spawn;
pub mod tasks;
pub mod threads;
pub mod timers;
pub mod udp;
pub mod wait;

use crate::backends::Which;
use crate::suite::Suite;

/// The size of scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// For tests. The numbers are meaningless.
    Tiny,
    /// All suites in about a minute.
    Quick,
    /// All suites in about twenty minutes.
    Full,
}

impl Scale {
    /// Selects one of three values by scale.
    pub const fn pick(self, tiny: u64, quick: u64, full: u64) -> u64 {
        match self {
            Scale::Tiny => tiny,
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Scale::Tiny => "tiny",
            Scale::Quick => "quick",
            Scale::Full => "full",
        }
    }
}

/// The names of all suites.
pub const NAMES: [&str; 21] = [
    "timers",
    "iterations",
    "async",
    "pool",
    "wait",
    "echo",
    "connect",
    "pump",
    "open",
    "http",
    "mixed",
    "handlers",
    "threads",
    "tasks",
    "udp",
    "memory",
    "calls",
    "instructions",
    "files",
    "reads",
    "spawn",
];

/// All suites.
///
/// `which` selects the backends for work that hardly depends on them; in a full run only for the
/// long scenarios among it. Scenarios about backends always use all of them.
pub fn all(scale: Scale, which: Which) -> Vec<Suite> {
    let which_if_short = if scale == Scale::Full { Which::All } else { which };
    vec![
        timers::suite(scale, which),
        iterations::suite(scale),
        asyncs::suite(scale, which_if_short),
        pool::suite(scale, which_if_short),
        wait::suite(scale),
        echo::suite(scale),
        echo::connections(scale),
        echo::pump(scale),
        open::suite(scale),
        http::suite(scale),
        mixed::suite(scale),
        handlers::suite(scale),
        threads::suite(scale),
        tasks::suite(scale),
        udp::suite(scale),
        memory::suite(scale, which_if_short),
        calls::suite(scale),
        instructions::suite(scale),
        files::suite(scale),
        reads::suite(scale),
        spawn::suite(scale, which),
    ]
}

/// Records libuv as missing.
#[cfg(not(all(unix, feature = "libuv")))]
fn skip_libuv(entrants: &mut crate::suite::Entrants) {
    let why = if cfg!(feature = "libuv") {
        "is measured on Unix only".into()
    } else {
        not_in_this_build("libuv")
    };
    entrants.skip(crate::suite::ContestantId::Peer("libuv"), why);
}

/// The optional peers, and whether they are in this build.
const OPTIONAL: [(&str, bool); 4] = [
    ("libuv", cfg!(feature = "libuv")),
    ("compio", cfg!(feature = "compio")),
    ("monoio", cfg!(feature = "monoio")),
    ("glommio", cfg!(feature = "glommio")),
];

impl crate::suite::Entrants {
    /// Records those of these optional peers that are not in this build.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "they need Linux"))]
    pub(crate) fn skip_unbuilt(&mut self, names: &[&str]) {
        for (name, why) in unbuilt().filter(|(name, _)| names.contains(name)) {
            self.skip(crate::suite::ContestantId::Peer(name), why);
        }
    }
}

/// The optional peers that are not in this build.
pub(crate) fn unbuilt() -> impl Iterator<Item = (&'static str, String)> {
    let missing = OPTIONAL.into_iter().filter(|(_, is_built)| !is_built);
    missing.map(|(name, _)| (name, not_in_this_build(name)))
}

/// The reason for a missing optional peer.
pub(crate) fn not_in_this_build(name: &str) -> String {
    let wants = if name == "libuv" { " (needs a C compiler and libclang)" } else { "" };
    format!("not in this build: add '--features {name}'{wants}")
}
