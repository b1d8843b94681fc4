//! The linker arguments that make the library libuv's.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(name).unwrap_or_default();
    if target("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    // The name that programs built for libuv look for; cargo sets none.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libuv.so.1");
    // Threads of the pool and thread-local destructors outlive a dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
