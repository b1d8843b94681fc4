//! Links libkqueue on Linux if `--cfg libkqueue` is set.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(libkqueue)");
    let linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if linux && env::var_os("CARGO_CFG_LIBKQUEUE").is_some() {
        link_libkqueue();
    }
}

fn link_libkqueue() {
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let flags = match Command::new("pkg-config").args(["--libs", "libkqueue"]).output() {
        Ok(output) if output.status.success() => output.stdout,
        Ok(_) => return fail("pkg-config does not find libkqueue: install libkqueue-dev"),
        Err(_) => return fail("pkg-config cannot be run: install pkg-config and libkqueue-dev"),
    };
    for flag in String::from_utf8_lossy(&flags).split_whitespace() {
        if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo::rustc-link-lib={library}");
        } else if let Some(directory) = flag.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={directory}");
        }
    }
}

fn fail(cause_and_remedy: &str) {
    println!("cargo::error=--cfg libkqueue: {cause_and_remedy}, or drop the cfg");
}
