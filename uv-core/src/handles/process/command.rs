//! The builder of a child process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use bitflags::bitflags;

use super::Stdio;

bitflags! {
    /// Options of a spawn.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flags: u8 {
        const DETACHED = 1;
        const VERBATIM_ARGUMENTS = 1 << 1;
        const HIDE_CONSOLE = 1 << 2;
        const HIDE_GUI = 1 << 3;
        const EXACT_NAME = 1 << 4;
        /// No `pidfd` is used, as if the kernel had none.
        const WITHOUT_PIDFD = 1 << 5;
        /// The child is created by `fork`, as if the system had nothing faster.
        const BY_FORK = 1 << 6;
        /// The child is created by `posix_spawn` where that supports all options.
        const BY_POSIX_SPAWN = 1 << 7;
    }
}

/// A program to run as a child process, with its arguments, environment and descriptors: the
/// argument of [`Process::spawn`](crate::Process::spawn).
///
/// By default the child inherits the environment and the working directory of this process, and
/// its standard streams are the null device.
///
/// ```
/// use uv_core::{Command, Stdio};
///
/// let command = Command::new("rustc")
///     .args(["--print", "sysroot"])
///     .env("LANG", "C")
///     .stdio([Stdio::Ignore, Stdio::Standard(1), Stdio::Standard(2)]);
/// ```
///
/// With an environment and a working directory of its own:
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use uv_core::{Command, Handle, Loop, Pipe, PipeFlags, Process, RunMode, Stdio, Stream};
///
/// let mut lp = Loop::with_default_backend()?;
/// let output = Pipe::new(&mut lp);
/// let command = Command::new("/bin/sh")
///     .arg0("greeter")
///     .args(["-c", "echo $0 says $WORD${NAME+ to }$NAME in $(pwd)"])
///     .env_clear()
///     .envs([("WORD", "hello"), ("NAME", "everybody")])
///     .env_remove("NAME")
///     .current_dir("/")
///     .stdio([Stdio::Ignore, Stdio::Pipe(output, PipeFlags::WRITABLE)]);
/// Process::spawn(&mut lp, &command, |lp, process, _| process.close(lp).unwrap())?;
/// output.read_start(&mut lp, |lp, output, bytes| match bytes.unwrap() {
///     [] => output.close(lp).unwrap(),
///     bytes => assert_eq!(bytes, b"greeter says hello in /\n"),
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "uv_process_options_t")]
pub struct Command<'a> {
    pub(crate) program: OsString,
    pub(crate) arg0: Option<OsString>,
    pub(crate) args: Vec<OsString>,
    pub(crate) environment: Environment,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) stdio: Vec<Stdio<'a>>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) flags: Flags,
}

/// How the child's environment differs from this process's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) cleared: bool,
    /// `None` removes a variable.
    pub(crate) changes: BTreeMap<OsString, Option<OsString>>,
}

impl Environment {
    pub(crate) fn is_inherited(&self) -> bool {
        !self.cleared && self.changes.is_empty()
    }
}

impl<'a> Command<'a> {
    /// A program without arguments.
    ///
    /// A name without a slash is searched in the `PATH` of the child; on Windows in its working
    /// directory first, with the extensions `.com` and `.exe`. Other relative names are relative
    /// to the child's working directory.
    pub fn new(program: impl AsRef<OsStr>) -> Command<'a> {
        Command {
            program: program.as_ref().into(),
            arg0: None,
            args: Vec::new(),
            environment: Environment::default(),
            directory: None,
            stdio: Vec::new(),
            uid: None,
            gid: None,
            flags: Flags::empty(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().into()));
        self
    }

    /// Sets `argv[0]` of the child, which is the program by default.
    #[must_use]
    pub fn arg0(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.arg0 = Some(arg.as_ref().into());
        self
    }

    /// Sets a variable of the child's environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.changes.insert(name.as_ref().into(), Some(value.as_ref().into()));
        self
    }

    /// Sets variables of the child's environment.
    #[must_use]
    pub fn envs(
        self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> Self {
        variables.into_iter().fold(self, |this, (name, value)| this.env(name, value))
    }

    /// Removes a variable from the child's environment.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.changes.insert(name.as_ref().into(), None);
        self
    }

    /// Starts with an empty environment instead of this process's, and discards earlier changes of
    /// variables. Windows adds the few variables that every program needs.
    #[must_use]
    pub fn env_clear(mut self) -> Self {
        self.environment = Environment { cleared: true, changes: BTreeMap::new() };
        self
    }

    /// Sets the working directory of the child.
    #[must_use]
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().into());
        self
    }

    /// Sets the child's descriptors 0, 1, 2 and so on, replacing earlier ones. Missing standard
    /// streams are [`Stdio::Ignore`].
    #[must_use]
    pub fn stdio(mut self, stdio: impl IntoIterator<Item = Stdio<'a>>) -> Self {
        self.stdio = stdio.into_iter().collect();
        self
    }

    /// Sets the user of the child. Supplementary groups are dropped where that is permitted. On
    /// Windows, spawning is `Unsupported` then.
    ///
    /// ```
    /// use uv_core::Command;
    ///
    /// // 65534 is an unprivileged user of most systems. Only root may change the user.
    /// let command = Command::new("true").uid(65534).gid(65534);
    /// ```
    #[must_use]
    pub fn uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// Sets the group of the child. Supplementary groups are dropped where that is permitted. On
    /// Windows, spawning is `Unsupported` then.
    #[must_use]
    pub fn gid(mut self, gid: u32) -> Self {
        self.gid = Some(gid);
        self
    }

    /// Lets the child outlive this process: it leads a new session (Unix), or a new process group
    /// without a console, outside the job object that ends other children (Windows).
    ///
    /// The loop still waits for its exit; [unreference](crate::Handle::unreference) the handle to
    /// avoid that.
    ///
    /// ```
    /// use uv_core::{Command, Handle, Loop, Process};
    ///
    /// # if cfg!(windows) { return Ok(()); }
    /// let mut lp = Loop::with_default_backend()?;
    /// let command = Command::new("true").detached(true);
    /// let process = Process::spawn(&mut lp, &command, |_, _, _| {})?;
    /// process.unreference(&mut lp)?;
    /// assert!(!lp.is_alive());
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn detached(self, detached: bool) -> Self {
        self.with(Flags::DETACHED, detached)
    }

    /// Joins the arguments by spaces on Windows, without quotes or escapes. This and the following
    /// methods have no effect on Unix.
    ///
    /// ```
    /// use uv_core::Command;
    ///
    /// // `cmd` has quoting rules of its own; show no window, and try no other extension.
    /// let command = Command::new("cmd.exe")
    ///     .args(["/C", "echo \"hello\" & pause"])
    ///     .windows_verbatim_arguments(true)
    ///     .windows_hide_console(true)
    ///     .windows_hide_gui(true)
    ///     .windows_exact_name(true);
    /// ```
    #[must_use]
    pub fn windows_verbatim_arguments(self, verbatim: bool) -> Self {
        self.with(Flags::VERBATIM_ARGUMENTS, verbatim)
    }

    /// Creates no window for a console program on Windows.
    #[must_use]
    pub fn windows_hide_console(self, hide: bool) -> Self {
        self.with(Flags::HIDE_CONSOLE, hide)
    }

    /// Asks a GUI program on Windows not to show its first window.
    #[must_use]
    pub fn windows_hide_gui(self, hide: bool) -> Self {
        self.with(Flags::HIDE_GUI, hide)
    }

    /// Searches for exactly this name on Windows, without other extensions.
    #[must_use]
    pub fn windows_exact_name(self, exact: bool) -> Self {
        self.with(Flags::EXACT_NAME, exact)
    }

    /// Uses `SIGCHLD` instead of a `pidfd`. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn without_pidfd(self) -> Self {
        self.with(Flags::WITHOUT_PIDFD, true)
    }

    /// Creates the child by `fork`. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn by_fork(self) -> Self {
        self.with(Flags::BY_FORK, true)
    }

    /// Creates the child by `posix_spawn` where that supports all options. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn by_posix_spawn(self) -> Self {
        self.with(Flags::BY_POSIX_SPAWN, true)
    }

    fn with(mut self, flag: Flags, on: bool) -> Self {
        self.flags.set(flag, on);
        self
    }
}
