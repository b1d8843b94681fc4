//! A loop inside smol: tasks and callbacks of the loop beside tasks of smol, in one thread.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use uv_async::{Rt, TcpStream, channel, drive_in_smol};
use uv_core::poll_core::Backend;
use uv_core::{Loop, Timer};

/// A task of smol sends a message after a time, which a task of the loop writes and another reads,
/// beside a callback. Returns what was read, and whether the callback ran.
///
/// # Errors
///
/// `Unsupported` on a backend without a descriptor, and those of the network.
pub fn run<B: Backend>(lp: &mut Loop<B>) -> io::Result<(Vec<u8>, bool)> {
    let (rt, fired) = (Rt::attach(lp), Rc::new(Cell::new(false)));
    let set = Rc::clone(&fired);
    Timer::after(lp, Duration::from_millis(3), move |_, _| set.set(true));
    let (sender, mut receiver) = rt.enter(lp, || channel(&rt));
    let task = rt.clone();
    let echoed = rt.spawn_local(async move {
        let (one, other) = TcpStream::pair(&task)?;
        one.write_all(receiver.recv().await.unwrap_or("no message")).await.0?;
        task.sleep(Duration::from_millis(2)).await;
        let lent = other.lend().await?;
        io::Result::Ok(lent.to_vec())
    });
    let smol = smol::LocalExecutor::new();
    let sent = smol.spawn(async move {
        smol::Timer::after(Duration::from_millis(2)).await;
        sender.send("hello").is_ok()
    });
    let read = smol::block_on(smol.run(async {
        drive_in_smol(lp).await?;
        assert!(sent.await, "the loop waits for the sender");
        echoed.await?
    }))?;
    Ok((read, fired.get()))
}
