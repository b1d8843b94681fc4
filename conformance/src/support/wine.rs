//! Allowances for Wine, which runs Windows programs on Unix.

/// The tolerated growth of the cost of a change between one thousand and ten thousand sources. Four
/// allows for caches and trees. Wine's server walks its own lists for every poll: factors of four
/// to five were measured there, with backends that are linear. A quadratic backend reaches ten.
pub(crate) fn tolerated_growth() -> u32 {
    if is_here() { 8 } else { 4 }
}

/// Starting or ending a poll takes longer the more polls exist: Wine's server keeps all polls of a
/// socket driver in one list and walks it.
pub(crate) fn walks_all_polls() -> bool {
    is_here()
}

/// The end of file is reported only once all data was read: Wine's server detects it by peeking at
/// the next byte.
pub(crate) fn delays_end_of_file() -> bool {
    is_here()
}

/// A reset connection may be reported as an orderly end: Wine's server may have consumed the error.
pub(crate) fn collects_errors() -> bool {
    is_here()
}

/// A datagram to a closed port is lost without an error, also on a connected socket.
pub(crate) fn reports_no_refused_datagrams() -> bool {
    is_here()
}

/// A send on a connection that is not or no longer established always fails as a reset: Wine maps
/// `EPIPE` to it.
pub(crate) fn reports_reset_for_broken_pipe() -> bool {
    is_here()
}

/// A source that has performed an operation stays with its backend: Wine cannot move a socket or a
/// file to another completion port.
pub(crate) fn binds_sources_permanently() -> bool {
    is_here()
}

/// A thread bound to a processor may run on another for a while: Wine forwards the affinity to the
/// host and returns.
pub(crate) fn ignores_affinity() -> bool {
    is_here()
}

/// A watched directory is removed only when it is no longer watched, and no event is reported
/// meanwhile.
pub(crate) fn keeps_watched_directories() -> bool {
    is_here()
}

/// Of the subdirectories of a watched directory, only those created while it is watched are
/// reported.
pub(crate) fn watches_new_directories_only() -> bool {
    is_here()
}

/// Several servers can bind the name of a pipe: Wine ignores `FILE_FLAG_FIRST_PIPE_INSTANCE`.
pub(crate) fn shares_names_of_pipes() -> bool {
    is_here()
}

/// Symbolic links are not created, though the call succeeds.
pub(crate) fn makes_no_links() -> bool {
    is_here()
}

/// A file that is replaced by a copy keeps its own attributes.
pub(crate) fn keeps_attributes_of_replaced_file() -> bool {
    is_here()
}

/// A file's access time is the current time, not the value set.
pub(crate) fn ignores_access_times() -> bool {
    is_here()
}

/// Root can write read-only files: Wine leaves the check to Linux.
pub(crate) fn lets_root_write() -> bool {
    is_here()
}

#[cfg(unix)]
fn is_here() -> bool {
    false
}

/// Wine's `ntdll` exports a function that Windows' does not.
#[cfg(windows)]
fn is_here() -> bool {
    use std::ffi::{c_char, c_void};

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetModuleHandleA(name: *const c_char) -> *mut c_void;
        fn GetProcAddress(module: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    // SAFETY: the name is NUL-terminated, and every process has loaded this module.
    let ntdll = unsafe { GetModuleHandleA(c"ntdll.dll".as_ptr()) };
    // SAFETY: the module is never unloaded, and the name is NUL-terminated.
    !unsafe { GetProcAddress(ntdll, c"wine_get_version".as_ptr()) }.is_null()
}
