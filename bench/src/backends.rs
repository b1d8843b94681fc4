//! The backends that this machine supports.

use std::io;

use poll_core::Backend;

use crate::suite::{ContestantId, Entrants, Sample};

/// A task for any backend.
pub trait OnBackend: Clone + 'static {
    /// Runs the task once, on a backend from `make`.
    ///
    /// # Errors
    ///
    /// Those of the task.
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample>;
}

/// The names of all backends.
pub const NAMES: [&str; 6] = ["select", "poll", "epoll", "kqueue", "iocp", "uring"];

/// The backends of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Every backend.
    All,
    /// Only the default backend of `uv-core`, because the work hardly depends on the backend.
    Default,
}

/// Adds the backends, each as the contestant that `id` makes from its name.
pub fn enter(
    entrants: &mut Entrants,
    which: Which,
    id: fn(&'static str) -> ContestantId,
    task: &impl OnBackend,
) {
    let default = default_name();
    let mut on = On { entrants, id, only: (which == Which::Default).then_some(default), task };
    on.enter("select", poll_select::Select::new);
    on.enter("poll", poll_poll::Poll::new);
    #[cfg(target_os = "linux")]
    {
        on.enter("epoll", poll_epoll::Epoll::new);
        on.enter("uring", poll_uring::Uring::new);
        on.skip("kqueue", "needs a BSD or an Apple system");
    }
    #[cfg(all(unix, not(target_os = "linux")))]
    {
        on.enter("kqueue", poll_kqueue::Kqueue::new);
        on.skip("epoll", "needs Linux");
        on.skip("uring", "needs Linux");
    }
    #[cfg(unix)]
    on.skip("iocp", "needs Windows");
    #[cfg(windows)]
    {
        on.enter("iocp", poll_iocp::Iocp::new);
        on.skip("epoll", "needs Linux");
        on.skip("uring", "needs Linux");
        on.skip("kqueue", "needs a BSD or an Apple system");
    }
}

const fn default_name() -> &'static str {
    if cfg!(target_os = "linux") {
        "epoll"
    } else if cfg!(windows) {
        "iocp"
    } else {
        "kqueue"
    }
}

struct On<'a, T> {
    entrants: &'a mut Entrants,
    id: fn(&'static str) -> ContestantId,
    only: Option<&'static str>,
    task: &'a T,
}

impl<T: OnBackend> On<'_, T> {
    fn enter<B: Backend>(&mut self, name: &'static str, make: fn() -> io::Result<B>) {
        if self.only.is_some_and(|only| only != name) {
            return;
        }
        if let Err(error) = make() {
            return self.skip(name, &error.to_string());
        }
        let task = self.task.clone();
        self.entrants.enter((self.id)(name), move || task.run(make));
    }

    fn skip(&mut self, name: &'static str, why: &str) {
        if self.only.is_none() {
            self.entrants.skip((self.id)(name), why);
        }
    }
}
