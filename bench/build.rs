//! Records the versions of the compiler and the peers for the results.

use std::process::Command;

const PEERS: [&str; 9] = [
    "libuv-sys2",
    "mio",
    "polling",
    "tokio",
    "async-io",
    "async-executor",
    "compio",
    "monoio",
    "glommio",
];

fn main() {
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    println!("cargo::rerun-if-changed={lock}");
    println!("cargo::rerun-if-changed=build.rs");
    // tokio has io_uring for files in such builds only.
    println!("cargo::rustc-check-cfg=cfg(tokio_unstable)");
    let lock = std::fs::read_to_string(lock).unwrap_or_default();
    for peer in PEERS {
        let version = version_in(&lock, peer).unwrap_or("unknown");
        let variable = peer.to_uppercase().replace('-', "_");
        println!("cargo::rustc-env=VERSION_OF_{variable}={version}");
    }
    let variable = |name| std::env::var(name).unwrap_or_default();
    println!("cargo::rustc-env=BUILT_WITH_OPT_LEVEL={}", variable("OPT_LEVEL"));
    println!("cargo::rustc-env=BUILT_FOR={}", variable("TARGET"));
    let flags = variable("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    println!("cargo::rustc-env=BUILT_WITH_RUSTFLAGS={flags}");
    println!("cargo::rustc-env=BUILT_IN_PROFILE={}", variable("PROFILE"));
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    println!("cargo::rustc-env=VERSION_OF_RUSTC={}", version_of(&rustc));
    println!("cargo::rerun-if-env-changed=CC");
    println!("cargo::rerun-if-env-changed=CFLAGS");
    if std::env::var_os("CARGO_FEATURE_LIBUV").is_some() {
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        println!("cargo::rustc-env=BUILT_WITH_C_COMPILER={}", version_of(&compiler));
        println!("cargo::rustc-env=BUILT_WITH_CFLAGS={}", variable("CFLAGS"));
    }
}

/// The first line of what a compiler says about itself.
fn version_of(compiler: &str) -> String {
    let output = Command::new(compiler).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let line = text.ok().and_then(|text| Some(text.lines().next()?.trim().to_string()));
    line.unwrap_or_else(|| "unknown".into())
}

/// The version of `package` in a lock file: the line after its name.
fn version_in<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}
