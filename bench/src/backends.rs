//! The backends of the family, as far as this machine runs them.

use std::io;

use poll_core::Backend;

use crate::suite::{Entrants, Sample, Who};

/// Work that any backend can do.
pub trait OnBackend: Clone + 'static {
    /// Does it once, on a backend that `make` makes.
    ///
    /// # Errors
    ///
    /// Whatever went wrong.
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample>;
}

/// The names of all backends.
pub const NAMES: [&str; 6] = ["select", "poll", "epoll", "kqueue", "iocp", "uring"];

/// Which backends a scenario is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Only the one that `uv-core` takes unless told otherwise, as the work is the loop's
    /// and hardly the backend's.
    Default,
}

/// Enters the backends, each as the contestant that `who` makes of its name.
pub fn enter(
    entrants: &mut Entrants,
    which: Which,
    who: fn(&'static str) -> Who,
    task: &impl OnBackend,
) {
    let default = default_name();
    let mut on = On { entrants, who, only: (which == Which::Default).then_some(default), task };
    on.enter("select", poll_select::Select::new);
    on.enter("poll", poll_poll::Poll::new);
    #[cfg(target_os = "linux")]
    {
        on.enter("epoll", poll_epoll::Epoll::new);
        on.enter("uring", poll_uring::Uring::new);
        on.excuse("kqueue", "needs a BSD or an Apple system");
    }
    #[cfg(all(unix, not(target_os = "linux")))]
    {
        on.enter("kqueue", poll_kqueue::Kqueue::new);
        on.excuse("epoll", "needs Linux");
        on.excuse("uring", "needs Linux");
    }
    #[cfg(unix)]
    on.excuse("iocp", "needs Windows");
    #[cfg(windows)]
    {
        on.enter("iocp", poll_iocp::Iocp::new);
        on.excuse("epoll", "needs Linux");
        on.excuse("uring", "needs Linux");
        on.excuse("kqueue", "needs a BSD or an Apple system");
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
    who: fn(&'static str) -> Who,
    only: Option<&'static str>,
    task: &'a T,
}

impl<T: OnBackend> On<'_, T> {
    fn enter<B: Backend>(&mut self, name: &'static str, make: fn() -> io::Result<B>) {
        if self.only.is_some_and(|only| only != name) {
            return;
        }
        if let Err(error) = make() {
            return self.excuse(name, &error.to_string());
        }
        let task = self.task.clone();
        self.entrants.enter((self.who)(name), move || task.run(make));
    }

    fn excuse(&mut self, name: &'static str, why: &str) {
        if self.only.is_none() {
            self.entrants.excuse((self.who)(name), why);
        }
    }
}
