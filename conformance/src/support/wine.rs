//! Where Wine, which runs Windows programs on Unix, needs an allowance: all of them.

/// How many times as much a change may cost among ten thousand sources as among one
/// thousand. Four leaves room for caches and for trees. Wine's server walks lists of its
/// own for every poll: four to five times have been measured there, with backends that
/// are linear. What is quadratic in a backend costs ten times.
pub(crate) fn tolerated_growth() -> u32 {
    if is_here() { 8 } else { 4 }
}

/// To start or end a poll takes longer the more of them there are: Wine's server keeps all
/// of a socket driver's polls in one list, and walks it.
pub(crate) fn walks_all_polls() -> bool {
    is_here()
}

/// The end of what a peer sends shows only once all of it was read: Wine's server looks
/// for it by peeking at the next byte.
pub(crate) fn hides_ends_behind_data() -> bool {
    is_here()
}

/// A connection that was reset may look as if it had ended in order: Wine's server may
/// have collected the error itself.
pub(crate) fn collects_errors() -> bool {
    is_here()
}

/// A datagram that nobody receives is lost without a word, also on a connected socket.
pub(crate) fn tells_no_refusals() -> bool {
    is_here()
}

/// What cannot be sent, as the connection is none or none any more, is always a reset:
/// Wine knows no other word for `EPIPE`.
pub(crate) fn says_reset_for_a_broken_pipe() -> bool {
    is_here()
}

/// A source that has performed an operation is its backend's for ever: Wine cannot take a
/// socket or a file from one completion port to another.
pub(crate) fn binds_sources_for_ever() -> bool {
    is_here()
}

/// A thread that is bound to a processor may run on another for a while: Wine passes the
/// wish on to the thread's host, and returns.
pub(crate) fn ignores_affinity() -> bool {
    is_here()
}

/// A directory that somebody watches is removed only when nobody watches it any more, and
/// meanwhile nothing is told.
pub(crate) fn keeps_watched_directories() -> bool {
    is_here()
}

/// Of the directories below a watched one, only those are seen that appear while it is
/// watched.
pub(crate) fn watches_new_directories_only() -> bool {
    is_here()
}

/// A name of a pipe can be bound by several: Wine does not heed who wants to be the first.
pub(crate) fn shares_names_of_pipes() -> bool {
    is_here()
}

/// Symbolic links are not made, though the call says that they are.
pub(crate) fn makes_no_links() -> bool {
    is_here()
}

/// A file that is copied over keeps its own attributes.
pub(crate) fn keeps_attributes_of_what_is_replaced() -> bool {
    is_here()
}

/// A file's access time is not what it was set to, but the present.
pub(crate) fn forgets_access_times() -> bool {
    is_here()
}

/// What is read-only can be written by root: Wine asks Linux for its opinion.
pub(crate) fn lets_root_write() -> bool {
    is_here()
}

#[cfg(unix)]
fn is_here() -> bool {
    false
}

/// Wine's `ntdll` has a function that Windows' has not.
#[cfg(windows)]
fn is_here() -> bool {
    use std::ffi::{c_char, c_void};

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetModuleHandleA(name: *const c_char) -> *mut c_void;
        fn GetProcAddress(module: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    // SAFETY: the name ends with a NUL, and every process has this module.
    let ntdll = unsafe { GetModuleHandleA(c"ntdll.dll".as_ptr()) };
    // SAFETY: the module is loaded for ever, and the name ends with a NUL.
    !unsafe { GetProcAddress(ntdll, c"wine_get_version".as_ptr()) }.is_null()
}
