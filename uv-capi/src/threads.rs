//! Threads, locks, barriers, semaphores and thread-local keys: pthread's, as in libuv's header.
//!
//! As libuv, functions without a result abort the process if they fail.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null;
use std::time::Duration;

use libc::{
    EAGAIN, EBUSY, EINTR, EINVAL, ETIMEDOUT, cpu_set_t, pthread_attr_t, pthread_barrier_t,
    pthread_cond_t, pthread_condattr_t, pthread_key_t, pthread_mutex_t, pthread_mutexattr_t,
    pthread_once_t, pthread_rwlock_t, pthread_t, sched_param, sem_t,
};

use crate::errors::{last_error, of_call};
use crate::layout::uv_thread_options_t;
use crate::strings::{bytes, write_truncated};

const UV_THREAD_HAS_STACK_SIZE: c_uint = 1;
const NANOSECONDS: u64 = 1_000_000_000;

/// Aborts if a call that cannot fail in a correct program fails.
fn check(result: c_int, call: &str) {
    if result != 0 {
        eprintln!("{call}: {}", std::io::Error::from_raw_os_error(result));
        std::process::abort();
    }
}

/// As [`check`], for a call that sets `errno`.
fn check_errno(result: c_int, call: &str) {
    if result != 0 {
        check(-last_error(), call);
    }
}

/// The result of trying to take a lock.
fn tried(result: c_int, call: &str) -> c_int {
    match result {
        0 => 0,
        EBUSY | EAGAIN => -EBUSY,
        other => {
            check(other, call);
            0
        }
    }
}

/// Defines functions that pass their argument to one of pthread's or of semaphores, and what is done
/// with its result: [`check`], [`check_errno`] or [`tried`].
macro_rules! forwarded {
    ($($name:ident($type:ty) $call:ident $result:ident;)*) => {
        $( forwarded! { @ $result $name $type, $call } )*
    };
    (@ tried $name:ident $type:ty, $call:ident) => {
        #[cfg_attr(feature = "export", unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(object: *mut $type) -> c_int {
            tried(libc::$call(object), stringify!($call))
        }
    };
    (@ $check:ident $name:ident $type:ty, $call:ident) => {
        #[cfg_attr(feature = "export", unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(object: *mut $type) {
            $check(libc::$call(object), stringify!($call));
        }
    };
}

forwarded! {
    uv_mutex_destroy(pthread_mutex_t) pthread_mutex_destroy check;
    uv_mutex_lock(pthread_mutex_t) pthread_mutex_lock check;
    uv_mutex_trylock(pthread_mutex_t) pthread_mutex_trylock tried;
    uv_mutex_unlock(pthread_mutex_t) pthread_mutex_unlock check;

    uv_rwlock_destroy(pthread_rwlock_t) pthread_rwlock_destroy check;
    uv_rwlock_rdlock(pthread_rwlock_t) pthread_rwlock_rdlock check;
    uv_rwlock_tryrdlock(pthread_rwlock_t) pthread_rwlock_tryrdlock tried;
    uv_rwlock_rdunlock(pthread_rwlock_t) pthread_rwlock_unlock check;
    uv_rwlock_wrlock(pthread_rwlock_t) pthread_rwlock_wrlock check;
    uv_rwlock_trywrlock(pthread_rwlock_t) pthread_rwlock_trywrlock tried;
    uv_rwlock_wrunlock(pthread_rwlock_t) pthread_rwlock_unlock check;

    uv_sem_destroy(sem_t) sem_destroy check_errno;
    uv_sem_post(sem_t) sem_post check_errno;

    uv_cond_destroy(pthread_cond_t) pthread_cond_destroy check;
    uv_cond_signal(pthread_cond_t) pthread_cond_signal check;
    uv_cond_broadcast(pthread_cond_t) pthread_cond_broadcast check;

    uv_barrier_destroy(pthread_barrier_t) pthread_barrier_destroy check;
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_mutex_init(mutex: *mut pthread_mutex_t) -> c_int {
    -libc::pthread_mutex_init(mutex, null())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_mutex_init_recursive(mutex: *mut pthread_mutex_t) -> c_int {
    let mut attributes: pthread_mutexattr_t = std::mem::zeroed();
    check(libc::pthread_mutexattr_init(&mut attributes), "pthread_mutexattr_init");
    let kind = libc::PTHREAD_MUTEX_RECURSIVE;
    check(libc::pthread_mutexattr_settype(&mut attributes, kind), "pthread_mutexattr_settype");
    let result = libc::pthread_mutex_init(mutex, &attributes);
    check(libc::pthread_mutexattr_destroy(&mut attributes), "pthread_mutexattr_destroy");
    -result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_rwlock_init(lock: *mut pthread_rwlock_t) -> c_int {
    -libc::pthread_rwlock_init(lock, null())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_sem_init(semaphore: *mut sem_t, value: c_uint) -> c_int {
    of_call(libc::sem_init(semaphore, 0, value))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_sem_wait(semaphore: *mut sem_t) {
    while libc::sem_wait(semaphore) != 0 {
        if last_error() != -EINTR {
            check_errno(-1, "sem_wait");
        }
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_sem_trywait(semaphore: *mut sem_t) -> c_int {
    loop {
        if libc::sem_trywait(semaphore) == 0 {
            return 0;
        }
        match -last_error() {
            EINTR => {}
            EAGAIN => return -EAGAIN,
            other => check(other, "sem_trywait"),
        }
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_cond_init(condition: *mut pthread_cond_t) -> c_int {
    let mut attributes: pthread_condattr_t = std::mem::zeroed();
    let mut result = libc::pthread_condattr_init(&mut attributes);
    if result != 0 {
        return -result;
    }
    result = libc::pthread_condattr_setclock(&mut attributes, libc::CLOCK_MONOTONIC);
    if result == 0 {
        result = libc::pthread_cond_init(condition, &attributes);
    }
    libc::pthread_condattr_destroy(&mut attributes);
    -result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) {
    check(libc::pthread_cond_wait(condition, mutex), "pthread_cond_wait");
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    nanoseconds: u64,
) -> c_int {
    let deadline = crate::system::uv_hrtime().saturating_add(nanoseconds);
    let deadline = libc::timespec {
        tv_sec: (deadline / NANOSECONDS) as i64,
        tv_nsec: (deadline % NANOSECONDS) as i64,
    };
    match libc::pthread_cond_timedwait(condition, mutex, &deadline) {
        ETIMEDOUT => -ETIMEDOUT,
        other => {
            check(other, "pthread_cond_timedwait");
            0
        }
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_barrier_init(barrier: *mut pthread_barrier_t, count: c_uint) -> c_int {
    -libc::pthread_barrier_init(barrier, null(), count)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    match libc::pthread_barrier_wait(barrier) {
        libc::PTHREAD_BARRIER_SERIAL_THREAD => 1,
        other => {
            check(other, "pthread_barrier_wait");
            0
        }
    }
}

unsafe extern "C" {
    fn pthread_once(guard: *mut pthread_once_t, callback: unsafe extern "C" fn()) -> c_int;
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_once(
    guard: *mut pthread_once_t,
    callback: Option<unsafe extern "C" fn()>,
) {
    if let Some(callback) = callback {
        check(pthread_once(guard, callback), "pthread_once");
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_key_create(key: *mut pthread_key_t) -> c_int {
    -libc::pthread_key_create(key, None)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_key_delete(key: *mut pthread_key_t) {
    check(libc::pthread_key_delete(*key), "pthread_key_delete");
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_key_get(key: *mut pthread_key_t) -> *mut c_void {
    libc::pthread_getspecific(*key)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_key_set(key: *mut pthread_key_t, value: *mut c_void) {
    check(libc::pthread_setspecific(*key, value), "pthread_setspecific");
}

/// The start function of a thread. libuv's type returns nothing; pthread's a pointer, which is not
/// looked at.
type Entry = unsafe extern "C" fn(*mut c_void);

struct Start {
    entry: Entry,
    argument: *mut c_void,
}

extern "C" fn run_thread(start: *mut c_void) -> *mut c_void {
    // SAFETY: `uv_thread_create_ex` passes a leaked box of this type to one thread.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start { entry, argument } = *start;
    // SAFETY: the caller of `uv_thread_create_ex` gave both for this call.
    unsafe { entry(argument) };
    std::ptr::null_mut()
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_create(
    thread: *mut pthread_t,
    entry: Option<Entry>,
    argument: *mut c_void,
) -> c_int {
    let options = uv_thread_options_t { flags: 0, stack_size: 0 };
    uv_thread_create_ex(thread, &options, entry, argument)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_create_ex(
    thread: *mut pthread_t,
    options: *const uv_thread_options_t,
    entry: Option<Entry>,
    argument: *mut c_void,
) -> c_int {
    let Some(entry) = entry else { return -EINVAL };
    let asked =
        if (*options).flags & UV_THREAD_HAS_STACK_SIZE != 0 { (*options).stack_size } else { 0 };
    let mut attributes: pthread_attr_t = std::mem::zeroed();
    check(libc::pthread_attr_init(&mut attributes), "pthread_attr_init");
    let size = if asked == 0 { default_stack_size() } else { rounded_stack_size(asked) };
    check(libc::pthread_attr_setstacksize(&mut attributes, size), "pthread_attr_setstacksize");
    let start = Box::into_raw(Box::new(Start { entry, argument }));
    let result = libc::pthread_create(thread, &attributes, run_thread, start.cast());
    libc::pthread_attr_destroy(&mut attributes);
    if result != 0 {
        drop(Box::from_raw(start));
    }
    -result
}

fn page_size() -> usize {
    // SAFETY: it reads no memory of the caller.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

fn rounded_stack_size(asked: usize) -> usize {
    let pages = asked.div_ceil(page_size());
    pages.saturating_mul(page_size()).max(minimal_stack_size())
}

/// The limit of the main thread's stack, as libuv: 8 MiB if there is none, else whole pages.
fn default_stack_size() -> usize {
    const NONE: usize = 8 << 20;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it fills the struct.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } != 0;
    if failed || limit.rlim_cur == libc::RLIM_INFINITY {
        return NONE;
    }
    let size = limit.rlim_cur as usize / page_size() * page_size();
    if size < minimal_stack_size() { NONE } else { size }
}

fn minimal_stack_size() -> usize {
    libc::PTHREAD_STACK_MIN.max(8192)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_detach(thread: *mut pthread_t) -> c_int {
    -libc::pthread_detach(*thread)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_join(thread: *mut pthread_t) -> c_int {
    -libc::pthread_join(*thread, std::ptr::null_mut())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_self() -> pthread_t {
    libc::pthread_self()
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_equal(one: *const pthread_t, other: *const pthread_t) -> c_int {
    libc::pthread_equal(*one, *other)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_getcpu() -> c_int {
    let cpu = libc::sched_getcpu();
    if cpu < 0 { last_error() } else { cpu }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_cpumask_size() -> c_int {
    libc::CPU_SETSIZE
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_getaffinity(
    thread: *mut pthread_t,
    mask: *mut c_char,
    size: usize,
) -> c_int {
    if size < libc::CPU_SETSIZE as usize {
        return -EINVAL;
    }
    let mut set: cpu_set_t = std::mem::zeroed();
    let result = libc::pthread_getaffinity_np(*thread, size_of::<cpu_set_t>(), &mut set);
    if result != 0 {
        return -result;
    }
    for cpu in 0..libc::CPU_SETSIZE as usize {
        *mask.add(cpu) = c_char::from(libc::CPU_ISSET(cpu, &set));
    }
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_setaffinity(
    thread: *mut pthread_t,
    mask: *mut c_char,
    previous: *mut c_char,
    size: usize,
) -> c_int {
    if size < libc::CPU_SETSIZE as usize {
        return -EINVAL;
    }
    if !previous.is_null() {
        let result = uv_thread_getaffinity(thread, previous, size);
        if result < 0 {
            return result;
        }
    }
    let mut set: cpu_set_t = std::mem::zeroed();
    for cpu in 0..libc::CPU_SETSIZE as usize {
        if *mask.add(cpu) != 0 {
            libc::CPU_SET(cpu, &mut set);
        }
    }
    -libc::pthread_setaffinity_np(*thread, size_of::<cpu_set_t>(), &set)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_setname(name: *const c_char) -> c_int {
    if name.is_null() {
        return -EINVAL;
    }
    // The kernel's limit, with the NUL.
    let mut short = [0; 16];
    write_truncated(bytes(name), short.as_mut_ptr(), short.len());
    -libc::pthread_setname_np(libc::pthread_self(), short.as_ptr())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_getname(
    thread: *mut pthread_t,
    name: *mut c_char,
    size: usize,
) -> c_int {
    if name.is_null() || size == 0 {
        return -EINVAL;
    }
    let mut short = [0; 16];
    let result = libc::pthread_getname_np(*thread, short.as_mut_ptr(), short.len());
    write_truncated(bytes(short.as_ptr()), name, size);
    -result
}

/// The lowest and the highest of libuv's levels.
const LOWEST: c_int = -2;
const HIGHEST: c_int = 2;

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_getpriority(thread: pthread_t, priority: *mut c_int) -> c_int {
    if priority.is_null() {
        return -EINVAL;
    }
    let (mut policy, mut parameters): (c_int, sched_param) = (0, std::mem::zeroed());
    let result = libc::pthread_getschedparam(thread, &mut policy, &mut parameters);
    if result != 0 {
        return -result;
    }
    *priority =
        if policy == libc::SCHED_OTHER && libc::pthread_equal(thread, libc::pthread_self()) != 0 {
            libc::getpriority(libc::PRIO_PROCESS, libc::gettid() as u32)
        } else {
            parameters.sched_priority
        };
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_thread_setpriority(thread: pthread_t, priority: c_int) -> c_int {
    if !(LOWEST..=HIGHEST).contains(&priority) {
        return -EINVAL;
    }
    let (mut policy, mut parameters): (c_int, sched_param) = (0, std::mem::zeroed());
    let result = libc::pthread_getschedparam(thread, &mut policy, &mut parameters);
    if result != 0 {
        return -result;
    }
    if policy == libc::SCHED_OTHER && libc::pthread_equal(thread, libc::pthread_self()) != 0 {
        return of_call(libc::setpriority(
            libc::PRIO_PROCESS,
            libc::gettid() as u32,
            -2 * priority,
        ));
    }
    let lowest = libc::sched_get_priority_min(policy);
    let highest = libc::sched_get_priority_max(policy);
    if lowest < 0 || highest < 0 {
        return last_error();
    }
    parameters.sched_priority =
        lowest + (highest - lowest) * (priority - LOWEST) / (HIGHEST - LOWEST);
    -libc::pthread_setschedparam(thread, policy, &parameters)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_sleep(milliseconds: c_uint) {
    std::thread::sleep(Duration::from_millis(milliseconds.into()));
}
