//! Starting children by `posix_spawn`, which does not copy the memory of this process.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use super::ChildEnd;
use super::plan::Plan;

/// True if `posix_spawn` can express the whole plan.
pub(super) fn supports(plan: &Plan) -> bool {
    plan.uid.is_none() && plan.gid.is_none() && plan.directory.is_none() && !plan.detached
}

pub(super) fn spawn(plan: &Plan) -> io::Result<libc::pid_t> {
    let (actions, attributes) = (Actions::new(plan)?, Attributes::new()?);
    let environment = plan.environment_pointer();
    let mut result = libc::ENOENT;
    for path in &plan.paths {
        let mut pid = 0;
        // SAFETY: the path is NUL-terminated, and `Strings` ends the arrays with null.
        // `Actions::new` and `Attributes::new` have initialised the objects. All outlive the call.
        let error = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                path.as_ptr(),
                &raw const actions.raw,
                &raw const attributes.0,
                plan.arguments.as_ptr().cast(),
                environment.cast(),
            )
        };
        match error {
            0 => return Ok(pid),
            libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ESTALE | libc::ETIMEDOUT => {}
            // Another candidate may be executable.
            libc::EACCES => result = libc::EACCES,
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
    Err(io::Error::from_raw_os_error(result))
}

/// The file actions that set up the child's descriptors.
struct Actions {
    raw: libc::posix_spawn_file_actions_t,
    /// Duplicates of sources whose number is the target of another one.
    moved: Vec<OwnedFd>,
}

impl Actions {
    fn new(plan: &Plan) -> io::Result<Actions> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: writes one object, to a local of its type.
        check(unsafe { libc::posix_spawn_file_actions_init(raw.as_mut_ptr()) })?;
        // SAFETY: the call above has succeeded, so the object is initialised. C libraries allow the
        // object to be moved.
        let mut actions = Actions { raw: unsafe { raw.assume_init() }, moved: Vec::new() };
        let count = plan.ends.len() as libc::c_int;
        for (target, end) in (0..).zip(&plan.ends) {
            match *end {
                ChildEnd::Ignore if target < 3 => actions.open_null(target)?,
                ChildEnd::Ignore => actions.close(target)?,
                ChildEnd::Inherit(source) | ChildEnd::Made(source) => {
                    let source = if source < count {
                        actions.duplicate_above(source, count)?
                    } else {
                        source
                    };
                    if target < 3 && matches!(end, ChildEnd::Inherit(_)) {
                        make_blocking(source)?;
                    }
                    actions.place(source, target)?;
                }
            }
        }
        Ok(actions)
    }

    fn open_null(&mut self, target: libc::c_int) -> io::Result<()> {
        let mode = if target == 0 { libc::O_RDONLY } else { libc::O_RDWR };
        let (raw, path) = (&raw mut self.raw, c"/dev/null".as_ptr());
        // SAFETY: `new` has initialised the actions, and the path is NUL-terminated and static.
        check(unsafe { libc::posix_spawn_file_actions_addopen(raw, target, path, mode, 0) })
    }

    fn close(&mut self, target: libc::c_int) -> io::Result<()> {
        // SAFETY: takes no pointer.
        if unsafe { libc::fcntl(target, libc::F_GETFD) } == -1 {
            return Ok(()); // On some systems closing a descriptor that is not open fails the spawn.
        }
        // SAFETY: `new` has initialised the actions.
        check(unsafe { libc::posix_spawn_file_actions_addclose(&raw mut self.raw, target) })
    }

    fn place(&mut self, source: libc::c_int, target: libc::c_int) -> io::Result<()> {
        // SAFETY: `new` has initialised the actions.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.raw, source, target) })
    }

    /// Duplicates a descriptor to a number above all targets.
    fn duplicate_above(
        &mut self,
        source: libc::c_int,
        count: libc::c_int,
    ) -> io::Result<libc::c_int> {
        // SAFETY: takes no pointer.
        match unsafe { libc::fcntl(source, libc::F_DUPFD_CLOEXEC, count) } {
            -1 => Err(io::Error::last_os_error()),
            fd => {
                // SAFETY: the call has returned a new descriptor, which nothing else owns.
                self.moved.push(unsafe { OwnedFd::from_raw_fd(fd) });
                Ok(fd)
            }
        }
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: `new` has initialised the actions, and only this destroys them.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.raw) };
    }
}

/// Spawn attributes: every signal has its default action and none is blocked.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Attributes> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: writes one object, to a local of its type.
        check(unsafe { libc::posix_spawnattr_init(raw.as_mut_ptr()) })?;
        // SAFETY: the call above has succeeded, so the object is initialised. C libraries allow the
        // object to be moved.
        let mut attributes = Attributes(unsafe { raw.assume_init() });
        let (mut all, mut none) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: writes one set, to a local.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: writes one set, to a local.
        unsafe { libc::sigemptyset(none.as_mut_ptr()) };
        for signum in [libc::SIGKILL, libc::SIGSTOP] {
            // Some systems refuse signals whose action cannot be changed.
            // SAFETY: changes the set that `sigfillset` has initialised.
            unsafe { libc::sigdelset(all.as_mut_ptr(), signum) };
        }
        let raw = &raw mut attributes.0;
        // SAFETY: the attributes and the set are initialised above.
        check(unsafe { libc::posix_spawnattr_setsigdefault(raw, all.as_ptr()) })?;
        // SAFETY: the attributes and the set are initialised above.
        check(unsafe { libc::posix_spawnattr_setsigmask(raw, none.as_ptr()) })?;
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: the attributes are initialised above.
        check(unsafe { libc::posix_spawnattr_setflags(raw, flags as libc::c_short) })?;
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: `new` has initialised the attributes, and only this destroys them.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

fn make_blocking(fd: libc::c_int) -> io::Result<()> {
    let mut off: libc::c_int = 0;
    // SAFETY: `FIONBIO` reads one `int`, a local that outlives the call.
    match unsafe { libc::ioctl(fd, libc::FIONBIO, &raw mut off) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The result of a function that returns its error number.
fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}
