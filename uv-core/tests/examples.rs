//! The examples run, and end well.

#[path = "../examples/custom_backend.rs"]
#[allow(dead_code)]
mod custom_backend;
#[path = "../examples/first.rs"]
mod first;

#[test]
fn a_first_program() {
    first::main().unwrap();
}

#[test]
fn a_backend_of_ones_own() {
    custom_backend::main().unwrap();
}
