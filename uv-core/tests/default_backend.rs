//! `DefaultBackend`: an opaque type over the first backend of the table, at no cost.

use std::any::TypeId;

use uv_core::backends::{Auto, DefaultBackend};
use uv_core::{Loop, RunMode};

#[test]
fn default_backend_is_the_first_enabled_one_of_the_table() {
    let mut lp: Loop = Loop::with_default_backend().unwrap();
    assert_eq!(lp.backend().name(), Auto::NAMES[0]);
    assert!(!lp.run(RunMode::NoWait).unwrap());
}

/// Asserts that the default is a type of its own, which no feature can change.
fn assert_distinct<B: 'static>() {
    assert_ne!(TypeId::of::<DefaultBackend>(), TypeId::of::<B>());
}

#[test]
fn default_backend_is_no_alias_of_a_named_backend() {
    assert_distinct::<Auto>();
    assert_distinct::<uv_core::backends::Poll>();
    assert_distinct::<uv_core::backends::Select>();
    #[cfg(any(target_os = "linux", target_os = "android"))]
    assert_distinct::<uv_core::backends::Epoll>();
    #[cfg(windows)]
    assert_distinct::<uv_core::backends::Iocp>();
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn default_backend_adds_no_memory_to_the_poller() {
    use uv_core::backends::Epoll;
    use uv_core::poll_core::Backend;

    assert_eq!(size_of::<DefaultBackend>(), size_of::<Epoll>());
    type WakerOf<B> = <B as Backend>::Waker;
    assert_eq!(size_of::<WakerOf<DefaultBackend>>(), size_of::<WakerOf<Epoll>>());
}

/// The name of a backend is the same whatever wraps it.
#[test]
fn every_backend_has_a_name() {
    use uv_core::backends::Auto;
    use uv_core::poll_core::{Backend, BoxedBackend, MaskOps};

    for name in Auto::NAMES {
        let Ok(backend) = Auto::named(name) else { continue };
        let masked = MaskOps::to_readiness(backend);
        assert_eq!(masked.name(), *name);
        let boxed = BoxedBackend::new(masked);
        assert_eq!(boxed.name(), *name);
        assert!(format!("{:?}", uv_core::Loop::new(boxed)).contains(name));
    }
}
