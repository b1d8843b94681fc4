//! Short forms of servers and clients over pipes.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use poll_core::Backend;

use super::Pipe;
use crate::Loop;
use crate::handles::Handle;
use crate::storage::InlineFnOnce;
use crate::streams::{Connecting, Listener, output};

/// The number of connections that may wait in the kernel to be accepted.
const BACKLOG: u32 = 1024;

impl Pipe {
    /// A server at a [name](Pipe::bind) that calls `callback` with each connection, from now on until
    /// it is closed.
    ///
    /// An error of the callback closes its connection, and an error of the listener closes that:
    /// both go to the handler of [`Loop::on_error`]. As [`Tcp::listen_on`](crate::Tcp::listen_on).
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Handle, Loop, Pipe, RunMode, Stream};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let name = std::env::temp_dir().join(format!("greeter-{}", std::process::id()));
    /// let server = Pipe::listen_on(&mut lp, &name, |lp, peer| {
    ///     peer.send(lp, "hello");
    ///     peer.finish(lp);
    ///     Ok(())
    /// })?;
    /// let client = Pipe::connect_to(&mut lp, &name, move |lp, _, result| {
    ///     println!("connected: {result:?}");
    ///     server.unreference(lp).unwrap(); // It is no reason to run on.
    /// });
    /// client.on_read(&mut lp, |lp, client, bytes| {
    ///     lp.state::<Vec<u8>>().extend_from_slice(bytes);
    ///     if bytes.is_empty() { client.close(lp) } else { Ok(()) }
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// assert_eq!(lp.state::<Vec<u8>>(), b"hello");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind`](Pipe::bind) and [`listen`](Listener::listen): `AddrInUse` if the name exists, also
    /// if it is the file of a server that was killed.
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn listen_on<B: Backend>(
        lp: &mut Loop<B>,
        name: impl AsRef<Path>,
        mut callback: impl FnMut(&mut Loop<B>, Pipe) -> io::Result<()> + 'static,
    ) -> io::Result<Pipe> {
        let server = Pipe::new(lp);
        let accept = move |lp: &mut Loop<B>, server: Pipe, result: io::Result<()>| match result
            .and_then(|()| server.accept(lp))
        {
            Ok(peer) => peer.attempt(lp, |lp| callback(lp, peer)),
            Err(error) => server.fail(lp, error),
        };
        let bound = server.bind(lp, name);
        let listening = bound.and_then(|()| server.listen(lp, BACKLOG, accept));
        listening.inspect_err(|_| server.close_if_open(lp))?;
        Ok(server)
    }

    /// Connects to the server at a name, and calls back once.
    ///
    /// The handle is connecting from now on: it can be read, writes may be queued, and a close
    /// cancels everything. All errors are reported by the callback. As
    /// [`Tcp::connect_to`](crate::Tcp::connect_to).
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use std::io::ErrorKind;
    /// use uv_core::{Handle, Loop, Pipe, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// Pipe::connect_to(&mut lp, "/no/such/server", |lp, client, result| {
    ///     assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
    ///     client.close_if_open(lp);
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn connect_to<B: Backend>(
        lp: &mut Loop<B>,
        name: impl AsRef<Path>,
        callback: impl FnOnce(&mut Loop<B>, Pipe, io::Result<()>) + 'static,
    ) -> Pipe {
        let client = Pipe::new(lp);
        let callback = Rc::new(Cell::new(Some(callback)));
        let connected = Rc::clone(&callback);
        let begun = client.connect(lp, name, move |lp, client, result| {
            if let Some(callback) = connected.take() {
                callback(lp, client, result);
            }
        });
        if let Err(error) = begun
            && let Some(callback) = callback.take()
        {
            let failed = move |lp: &mut Loop<B>, (_, result)| callback(lp, client, result);
            let (known, failed) = (Connecting::Known(Err(error)), InlineFnOnce::new(failed));
            let begun = output::connect::begin(lp, client.0, known, failed);
            debug_assert!(begun.is_ok(), "the handle is new, and there is nothing to wait for");
        }
        client
    }
}
