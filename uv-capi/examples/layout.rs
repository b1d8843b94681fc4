//! Prints a C program that compiles against libuv's header only if every size and offset that this
//! library assumes is the header's. `suite/run` compiles it.

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn main() {
    println!("#include <stddef.h>\n#include <uv.h>");
    for (name, size, fields) in uv_capi::layout::LAYOUT {
        println!("_Static_assert(sizeof({name}) == {size}, \"{name}\");");
        for (field, offset) in *fields {
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
