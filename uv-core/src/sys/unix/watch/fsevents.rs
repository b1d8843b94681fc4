//! Directory notifications of macOS by FSEvents, which names the changed entry and can watch a
//! whole tree.
//!
//! The functions are looked up when the first directory is watched, so that programs without
//! watches load no framework. Each stream calls back on a dispatch queue of its own; the callback
//! puts changes into the loop's inbox and wakes the loop. Stopping a stream waits for a callback in
//! progress, so the callback's context can be freed after it.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, OnceLock};

use super::fsevents_flags::{Event, Filter};
use crate::event_loop::{Notification, Notifier};
use crate::handles::{Inbox, Watcher};

const CORE_FOUNDATION: &CStr =
    c"/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation";
const CORE_SERVICES: &CStr =
    c"/System/Library/Frameworks/CoreServices.framework/Versions/A/CoreServices";

/// `kFSEventStreamEventIdSinceNow`.
const SINCE_NOW: u64 = u64::MAX;
/// `kFSEventStreamCreateFlagNoDefer`, `…WatchRoot`, `…FileEvents`.
const FLAGS: u32 = 0x2 | 0x4 | 0x10;
/// How long events are coalesced, in seconds: libuv's value.
const LATENCY: f64 = 0.05;

/// A reference to an object of CoreFoundation, FSEvents or libdispatch.
type Reference = *const c_void;

type Callback =
    unsafe extern "C" fn(Reference, *mut c_void, usize, *mut c_void, *const u32, *const u64);

/// `FSEventStreamContext`.
#[repr(C)]
struct StreamContext {
    version: isize,
    info: *mut c_void,
    retain: *const c_void,
    release: *const c_void,
    description: *const c_void,
}

type StringCreate = unsafe extern "C" fn(Reference, *const c_char) -> Reference;
type ArrayCreate =
    unsafe extern "C" fn(Reference, *const Reference, isize, *const c_void) -> Reference;
type StreamCreate = unsafe extern "C" fn(
    Reference,
    Callback,
    *mut StreamContext,
    Reference,
    u64,
    f64,
    u32,
) -> Reference;
type CurrentEvent = unsafe extern "C" fn() -> u64;
type StreamSetQueue = unsafe extern "C" fn(Reference, Reference);
type StreamStart = unsafe extern "C" fn(Reference) -> u8;
type Release = unsafe extern "C" fn(Reference);

/// The functions of the frameworks that are used here.
struct Functions {
    string_create: StringCreate,
    array_create: ArrayCreate,
    /// `kCFTypeArrayCallBacks`: the array retains its elements.
    array_callbacks: *const c_void,
    release: Release,
    current_event: CurrentEvent,
    stream_create: StreamCreate,
    stream_set_queue: StreamSetQueue,
    stream_start: StreamStart,
    stream_stop: Release,
    stream_invalidate: Release,
    stream_release: Release,
}

// SAFETY: function pointers, and the address of a constant that the framework never changes.
unsafe impl Send for Functions {}
// SAFETY: as for `Send`; the structure is never changed.
unsafe impl Sync for Functions {}

// Part of the C library.
unsafe extern "C" {
    fn dispatch_queue_create(label: *const c_char, attributes: Reference) -> Reference;
    fn dispatch_release(object: Reference);
    fn dispatch_sync_f(
        queue: Reference,
        context: *mut c_void,
        work: unsafe extern "C" fn(*mut c_void),
    );
}

/// The functions, or `None` if the frameworks cannot be loaded.
fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    FUNCTIONS.get_or_init(look_up).as_ref()
}

fn look_up() -> Option<Functions> {
    let (foundation, services) = (open(CORE_FOUNDATION)?, open(CORE_SERVICES)?);
    /// A function by its name.
    macro_rules! function {
        ($library:expr, $name:expr, $type:ty) => {{
            let symbol = symbol($library, $name)?;
            // SAFETY: the symbol is not null, and Apple's headers declare the function of that name
            // with this type.
            unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
        }};
    }
    Some(Functions {
        string_create: function!(
            foundation,
            c"CFStringCreateWithFileSystemRepresentation",
            StringCreate
        ),
        array_create: function!(foundation, c"CFArrayCreate", ArrayCreate),
        array_callbacks: symbol(foundation, c"kCFTypeArrayCallBacks")?,
        release: function!(foundation, c"CFRelease", Release),
        current_event: function!(services, c"FSEventsGetCurrentEventId", CurrentEvent),
        stream_create: function!(services, c"FSEventStreamCreate", StreamCreate),
        stream_set_queue: function!(services, c"FSEventStreamSetDispatchQueue", StreamSetQueue),
        stream_start: function!(services, c"FSEventStreamStart", StreamStart),
        stream_stop: function!(services, c"FSEventStreamStop", Release),
        stream_invalidate: function!(services, c"FSEventStreamInvalidate", Release),
        stream_release: function!(services, c"FSEventStreamRelease", Release),
    })
}

/// Opens a library, which is never closed.
fn open(path: &CStr) -> Option<*mut c_void> {
    let flags: c_int = libc::RTLD_LAZY | libc::RTLD_LOCAL;
    // SAFETY: reads a NUL-terminated path. It names a framework of the system, whose initialisers
    // may run in any process.
    let library = unsafe { libc::dlopen(path.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `open` returned the library and nothing closes it; the name is NUL-terminated.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// The state that the callback uses.
#[derive(Debug)]
struct CallbackContext {
    watcher: Watcher,
    filter: Filter,
    /// The name in notices about the directory itself.
    name: OsString,
    inbox: Arc<Inbox>,
    notifier: Arc<Notifier>,
}

/// A stream of events, until this is dropped.
#[derive(Debug)]
pub(super) struct Stream {
    stream: Reference,
    queue: Reference,
    /// From `Box::into_raw`. The stream reads it until `drop` has stopped the stream.
    context: *mut CallbackContext,
}

impl Stream {
    /// Starts a stream; `None` if FSEvents cannot be used.
    pub(super) fn start(
        watcher: Watcher,
        path: &Path,
        recursive: bool,
        inbox: &Arc<Inbox>,
        notifier: &Arc<Notifier>,
    ) -> Option<io::Result<Stream>> {
        // The frameworks do not work in a forked child.
        if crate::sys::forks() > 0 {
            return None;
        }
        let functions = functions()?;
        let root = match std::fs::canonicalize(path) {
            Ok(root) => root,
            Err(error) => return Some(Err(error)),
        };
        // SAFETY: takes no pointer.
        let since = unsafe { (functions.current_event)() };
        let context = CallbackContext {
            watcher,
            filter: Filter { root: root.as_os_str().as_bytes().to_vec(), recursive, since },
            name: path.file_name().unwrap_or(path.as_os_str()).to_owned(),
            inbox: Arc::clone(inbox),
            notifier: Arc::clone(notifier),
        };
        let root = CString::new(root.as_os_str().as_bytes()).ok()?;
        Stream::create(functions, &root, context).map(Ok)
    }

    fn create(functions: &Functions, root: &CStr, context: CallbackContext) -> Option<Stream> {
        let paths = list_of(functions, root)?;
        let context = Box::into_raw(Box::new(context));
        let mut info = StreamContext {
            version: 0,
            info: context.cast(),
            retain: ptr::null(),
            release: ptr::null(),
            description: ptr::null(),
        };
        let (default, info) = (ptr::null(), &raw mut info);
        // SAFETY: `paths` is an array of strings, and the stream copies `info`. The stream calls
        // back only between its start and its stop, and `Stream::drop` frees `context` after that.
        let stream = unsafe {
            (functions.stream_create)(default, call, info, paths, SINCE_NOW, LATENCY, FLAGS)
        };
        // SAFETY: releases the reference from `list_of` once; the stream has retained the array.
        unsafe { (functions.release)(paths) };
        // SAFETY: the label is NUL-terminated; null attributes make a serial queue.
        let queue = unsafe { dispatch_queue_create(c"uv-core.fs-events".as_ptr(), ptr::null()) };
        let made = Stream { stream, queue, context };
        if stream.is_null() || queue.is_null() {
            return None;
        }
        // SAFETY: both were created above and are not null.
        unsafe { (functions.stream_set_queue)(stream, queue) };
        // SAFETY: the stream was created above and has a queue, as starting requires.
        (unsafe { (functions.stream_start)(stream) } != 0).then_some(made)
    }

    /// For a forked child: the stream belongs to the parent and is leaked here.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(functions) = functions()
            && !self.stream.is_null()
        {
            if !self.queue.is_null() {
                // SAFETY: `self` owns the stream, which has a queue. Stopping one that was not
                // started has no effect.
                unsafe { (functions.stream_stop)(self.stream) };
                // SAFETY: `self` owns the stream, which has a queue. No callback starts after this.
                unsafe { (functions.stream_invalidate)(self.stream) };
                // A callback in progress does not wait for this thread, which holds no lock here.
                // SAFETY: `self` owns the queue. `nothing` ignores its null context, and runs after
                // every callback that was queued before.
                unsafe { dispatch_sync_f(self.queue, ptr::null_mut(), nothing) };
            }
            // SAFETY: `self` owns the only reference, and releases it once.
            unsafe { (functions.stream_release)(self.stream) };
        }
        if !self.queue.is_null() {
            // SAFETY: `self` owns the only reference, and releases it once.
            unsafe { dispatch_release(self.queue) };
        }
        // SAFETY: `Box::into_raw` made the pointer, and only this frees it. The stream was never
        // started or has been stopped, and its queue was drained above: no callback uses it.
        drop(unsafe { Box::from_raw(self.context) });
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// An array of one string.
fn list_of(functions: &Functions, path: &CStr) -> Option<Reference> {
    // SAFETY: reads a NUL-terminated path, which `CStr` guarantees.
    let string = unsafe { (functions.string_create)(ptr::null(), path.as_ptr()) };
    if string.is_null() {
        return None;
    }
    let callbacks = functions.array_callbacks;
    // SAFETY: reads one reference, to the string created above; the array retains it.
    let list = unsafe { (functions.array_create)(ptr::null(), &raw const string, 1, callbacks) };
    // SAFETY: releases the reference created above once; the array holds its own.
    unsafe { (functions.release)(string) };
    (!list.is_null()).then_some(list)
}

/// `FSEventStreamCallback`, called on the stream's queue.
unsafe extern "C" fn call(
    _stream: Reference,
    context: *mut c_void,
    count: usize,
    paths: *mut c_void,
    flags: *const u32,
    ids: *const u64,
) {
    // SAFETY: `Stream::create` passed this pointer, and `Stream::drop` frees it only after the last
    // callback. Until then it is only read.
    let context = unsafe { &*context.cast::<CallbackContext>() };
    let mut notify = false;
    for index in 0..count {
        // SAFETY: `paths` is an array of `count` C strings, as `FLAGS` has no `UseCFTypes`.
        let path = unsafe { paths.cast::<*const c_char>().wrapping_add(index).read() };
        // SAFETY: FSEvents passes NUL-terminated paths that live during the callback.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        // SAFETY: `flags` is an array of `count` elements.
        let flags = unsafe { flags.wrapping_add(index).read() };
        // SAFETY: `ids` is an array of `count` elements.
        let id = unsafe { ids.wrapping_add(index).read() };
        let Some((what, below)) = context.filter.notice(Event { path, flags, id }) else {
            continue;
        };
        let name = if below.is_empty() { &context.name } else { below };
        context.inbox.put(context.watcher, what, name.to_owned());
        notify = true;
    }
    if notify {
        // If the wake fails, the loop finds the changes when it next empties the inbox.
        let _ = context.notifier.notify(Notification::CHANGES);
    }
}
