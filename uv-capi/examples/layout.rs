//! Prints a C program that compiles against libuv's header only if every size and offset that this
//! library assumes is the header's. `suite/run` compiles it with the header of libuv 1.53. With the
//! argument `1.44` it leaves out what that header has not; `clients/run` compiles it with Debian's.

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn main() {
    /// Types, and fields in the place of reserved words, that libuv has had since 1.45 or later.
    const NEWER: [&str; 6] = [
        "uv_metrics_t",
        "uv_group_t",
        "uv_timespec64_t",
        "uv_udp_send_t.u",
        "uv_statfs_t.f_frsize",
        "uv_statfs_t.f_spare",
    ];
    let old = std::env::args().nth(1).is_some_and(|version| version == "1.44");
    println!("#include <stddef.h>\n#include <uv.h>");
    for (name, size, fields) in uv_capi::layout::LAYOUT {
        if old && NEWER.contains(name) {
            continue;
        }
        println!("_Static_assert(sizeof({name}) == {size}, \"{name}\");");
        for (field, offset) in *fields {
            if old && NEWER.contains(&format!("{name}.{field}").as_str()) {
                continue;
            }
            println!("_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");");
        }
    }
}

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
fn main() {}
