//! A first program: a repeating timer, and a thread that ends it by a message.
//!
//! ```sh
//! cargo run -p uv-core --example first
//! ```

use std::time::Duration;

use uv_core::{Channel, Handle, Loop, RunMode, Timer};

pub(crate) fn main() -> std::io::Result<()> {
    let mut lp = Loop::with_default_backend()?;

    let timer = Timer::new(&mut lp);
    let (begun, tick, mut ticks) = (lp.now(), Duration::from_millis(10), 0);
    timer.start(&mut lp, tick, tick, move |lp, _| {
        ticks += 1;
        println!("tick {ticks} after {:?}", lp.now() - begun);
    })?;

    let (_, sender) = Channel::new(&mut lp, move |lp: &mut Loop, channel, word: &str| {
        println!("message from the thread: {word}");
        if word == "stop" {
            // No active handle is left, so `run` returns.
            let closed = timer.close(lp).and_then(|()| channel.handle().close(lp));
            closed.expect("both are open");
        }
    });
    let thread = std::thread::spawn(move || {
        for word in ["hello", "and", "stop"] {
            std::thread::sleep(Duration::from_millis(20));
            sender.send(word).expect("the channel is open until the last message");
        }
    });

    lp.run(RunMode::Default)?;
    thread.join().expect("the thread does not panic");
    Ok(())
}
