//! Sets a cfg for each backend that is enabled and that the target has: `has_epoll` and so on.

use std::env::var;

fn main() {
    let target = |key: &str| var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    let (os, vendor, arch) = (target("OS"), target("VENDOR"), target("ARCH"));
    let family = target("FAMILY");
    let any = family.split(',').any(|family| family == "unix" || family == "windows");
    let bsd = ["freebsd", "netbsd", "openbsd", "dragonfly"].contains(&os.as_str());
    // The architectures that the io-uring crate has bindings for.
    let ring = ["x86_64", "aarch64", "riscv64", "loongarch64", "powerpc64"].contains(&&*arch);

    let possible = [
        ("epoll", os == "linux" || os == "android"),
        ("kqueue", bsd || vendor == "apple"),
        ("iocp", os == "windows"),
        ("uring", os == "linux" && ring),
        ("poll", any),
        ("select", any),
    ];
    let mut enabled = 0;
    let mut usable = 0;
    for (backend, possible) in possible {
        println!("cargo::rustc-check-cfg=cfg(has_{backend})");
        if var(format!("CARGO_FEATURE_{}", backend.to_uppercase())).is_ok() {
            enabled += 1;
            if possible {
                usable += 1;
                println!("cargo::rustc-cfg=has_{backend}");
            }
        }
    }
    println!("cargo::rustc-check-cfg=cfg(lacks_enabled_backends)");
    if enabled > 0 && usable == 0 {
        println!("cargo::rustc-cfg=lacks_enabled_backends");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
