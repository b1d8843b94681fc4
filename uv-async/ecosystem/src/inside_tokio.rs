//! A loop inside tokio: tasks and callbacks of the loop beside tasks of tokio, in one thread.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use uv_async::{Rt, TcpStream, drive_in_tokio};
use uv_core::poll_core::Backend;
use uv_core::{Loop, Timer};

/// A timer of tokio wakes a task of the loop, whose bytes another task of the loop reads, beside a
/// callback. Returns what was read, and whether the callback ran.
///
/// # Errors
///
/// `Unsupported` on a backend without a descriptor, and those of the network.
pub fn run<B: Backend>(lp: &mut Loop<B>) -> io::Result<(Vec<u8>, bool)> {
    let (rt, fired) = (Rt::attach(lp), Rc::new(Cell::new(false)));
    let set = Rc::clone(&fired);
    Timer::after(lp, Duration::from_millis(3), move |_, _| set.set(true));
    let task = rt.clone();
    let echoed = rt.spawn_local(async move {
        let (one, other) = TcpStream::pair(&task)?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let _ = sender.send("hello"); // Fails if the loop is gone.
        });
        one.write_all(receiver.await.map_err(io::Error::other)?).await.0?;
        task.sleep(Duration::from_millis(2)).await;
        let lent = other.lend().await?;
        io::Result::Ok(lent.to_vec())
    });
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let read = tokio.block_on(async {
        drive_in_tokio(lp).await?;
        echoed.await?
    })?;
    Ok((read, fired.get()))
}
