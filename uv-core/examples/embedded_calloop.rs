//! This loop inside calloop, the callback loop of Wayland programs and of winit.
//!
//! ```sh
//! cargo run -p uv-core --example embedded_calloop -- --ticks 3 --backend auto
//! ```
//!
//! calloop reports levels: one run of this loop for each wake-up is enough. Its data is the program's
//! state, and has this loop in it, so that callbacks of both can use both. Unix only.

#[cfg(unix)]
pub(crate) fn main() -> std::io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--ticks"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let (ticks, messages) = run(&backend, arguments.get("--ticks", 3)?)?;
    println!("{ticks} ticks of this loop, {messages} messages of calloop");
    Ok(())
}

#[cfg(unix)]
mod common;

/// Runs until `until` ticks of a timer of the inner loop. Each sends a message, which the outer
/// loop receives.
#[cfg(unix)]
pub(crate) fn run(backend: &str, until: u32) -> std::io::Result<(u32, u32)> {
    use calloop::channel::{Event, channel};
    use calloop::generic::Generic;
    use calloop::{EventLoop, Interest, Mode, PostAction};
    use std::io;
    use std::time::Duration;
    use uv_core::backends::Auto;
    use uv_core::{Handle, Loop, RunMode, Timer};

    struct Data {
        lp: Loop<Auto>,
        messages: u32,
    }

    let mut outer: EventLoop<'_, Data> = EventLoop::try_new()?;
    let mut data = Data { lp: Loop::new(common::backend(backend)?), messages: 0 };

    let (sender, messages) = channel();
    let inserted = outer.handle().insert_source(messages, |event, _, data| {
        if let Event::Msg(()) = event {
            data.messages += 1;
        }
    });
    inserted.map_err(|refused| io::Error::from(refused.error))?;

    let (timer, tick) = (Timer::new(&mut data.lp), Duration::from_millis(2));
    timer.start(&mut data.lp, tick, tick, move |lp, timer| {
        *lp.state::<u32>() += 1;
        timer.attempt(lp, |_| sender.send(()).map_err(io::Error::other));
        if *lp.state::<u32>() == until {
            timer.close_if_open(lp);
        }
    })?;

    // `select` and `poll` have no descriptor: those loops need a thread of their own. calloop owns
    // what it polls, so it gets a duplicate.
    let fd = data.lp.backend_fd().ok_or(io::ErrorKind::Unsupported)?.try_clone_to_owned()?;
    let source = Generic::new(fd, Interest::READ, Mode::Level);
    let inserted = outer.handle().insert_source(source, |_, _, data| {
        data.lp.run(RunMode::NoWait).map(|_| PostAction::Continue)
    });
    inserted.map_err(|refused| io::Error::from(refused.error))?;

    while data.lp.is_alive() || data.messages < until {
        outer.dispatch(data.lp.backend_timeout(), &mut data)?;
        // Also without an event of the descriptor: timers may be due.
        data.lp.run(RunMode::NoWait)?;
    }
    Ok((*data.lp.state::<u32>(), data.messages))
}

#[cfg(not(unix))]
fn main() {
    println!("a completion port is no descriptor that another loop could poll");
}
