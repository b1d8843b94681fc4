//! Directories of macOS, by FSEvents: the system says which entry has changed, and watches
//! all that is below if it is to.
//!
//! Its functions are looked up when the first directory is watched, so that programs that watch
//! none load no framework. A stream of events calls back on a queue of its own, which leaves
//! the news in the loop's inbox. Who stops a stream waits for a call that is under way, so what
//! a call is given lives as long as it is needed.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, OnceLock};

use super::flags::{Event, Filter};
use crate::handles::{Inbox, Watcher};
use crate::notify::{Notes, Notifier};

const CORE_FOUNDATION: &CStr =
    c"/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation";
const CORE_SERVICES: &CStr =
    c"/System/Library/Frameworks/CoreServices.framework/Versions/A/CoreServices";

/// `kFSEventStreamEventIdSinceNow`.
const SINCE_NOW: u64 = u64::MAX;
/// `kFSEventStreamCreateFlagNoDefer`, `…WatchRoot`, `…FileEvents`.
const FLAGS: u32 = 0x2 | 0x4 | 0x10;
/// How long events are gathered, in seconds: as long as libuv has it.
const LATENCY: f64 = 0.05;

/// A reference to something of CoreFoundation's, FSEvents' or libdispatch's.
type Reference = *const c_void;

type Callback =
    unsafe extern "C" fn(Reference, *mut c_void, usize, *mut c_void, *const u32, *const u64);

/// `FSEventStreamContext`.
#[repr(C)]
struct Context {
    version: isize,
    info: *mut c_void,
    retain: *const c_void,
    release: *const c_void,
    description: *const c_void,
}

type StringCreate = unsafe extern "C" fn(Reference, *const c_char) -> Reference;
type ArrayCreate =
    unsafe extern "C" fn(Reference, *const Reference, isize, *const c_void) -> Reference;
type StreamCreate =
    unsafe extern "C" fn(Reference, Callback, *mut Context, Reference, u64, f64, u32) -> Reference;
type CurrentEvent = unsafe extern "C" fn() -> u64;
type StreamSetQueue = unsafe extern "C" fn(Reference, Reference);
type StreamStart = unsafe extern "C" fn(Reference) -> u8;
type Release = unsafe extern "C" fn(Reference);

/// The functions that are used.
struct Functions {
    string_create: StringCreate,
    array_create: ArrayCreate,
    /// `kCFTypeArrayCallBacks`: an array keeps what is in it.
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

// SAFETY: functions and a constant, which threads may share.
unsafe impl Send for Functions {}
// SAFETY: as above.
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

/// The functions, or `None` where they are missing.
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
            // SAFETY: the headers say that the symbol of that name is such a function.
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

/// Opens a library, for ever.
fn open(path: &CStr) -> Option<*mut c_void> {
    let flags: c_int = libc::RTLD_LAZY | libc::RTLD_LOCAL;
    // SAFETY: the path ends with a NUL; what the frameworks do when they are loaded is theirs.
    let library = unsafe { libc::dlopen(path.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is open, and the name ends with a NUL.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// What calls are given.
#[derive(Debug)]
struct Teller {
    watcher: Watcher,
    filter: Filter,
    /// What is told when the directory itself goes.
    name: OsString,
    inbox: Arc<Inbox>,
    notifier: Arc<Notifier>,
}

/// A stream of events, until this is dropped.
#[derive(Debug)]
pub(super) struct Stream {
    stream: Reference,
    queue: Reference,
    /// Lent to the stream.
    teller: *mut Teller,
}

impl Stream {
    /// Starts a stream; `None` where FSEvents cannot be used.
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
        // SAFETY: no memory is passed.
        let since = unsafe { (functions.current_event)() };
        let teller = Teller {
            watcher,
            filter: Filter { root: root.as_os_str().as_bytes().to_vec(), recursive, since },
            name: path.file_name().unwrap_or(path.as_os_str()).to_owned(),
            inbox: Arc::clone(inbox),
            notifier: Arc::clone(notifier),
        };
        let root = CString::new(root.as_os_str().as_bytes()).ok()?;
        Stream::create(functions, &root, teller).map(Ok)
    }

    fn create(functions: &Functions, root: &CStr, teller: Teller) -> Option<Stream> {
        let paths = list_of(functions, root)?;
        let teller = Box::into_raw(Box::new(teller));
        let mut context = Context {
            version: 0,
            info: teller.cast(),
            retain: ptr::null(),
            release: ptr::null(),
            description: ptr::null(),
        };
        let (default, context) = (ptr::null(), &raw mut context);
        // SAFETY: the array is one of strings, and the stream copies the context. It calls only
        // between its start and its end, while the teller is there.
        let stream = unsafe {
            (functions.stream_create)(default, call, context, paths, SINCE_NOW, LATENCY, FLAGS)
        };
        // SAFETY: it was created above, and the stream keeps it if it needs it.
        unsafe { (functions.release)(paths) };
        // SAFETY: the label ends with a NUL; no attributes mean one call after the other.
        let queue = unsafe { dispatch_queue_create(c"uv-core.fs-events".as_ptr(), ptr::null()) };
        let made = Stream { stream, queue, teller };
        if stream.is_null() || queue.is_null() {
            return None;
        }
        // SAFETY: both were created above.
        unsafe { (functions.stream_set_queue)(stream, queue) };
        // SAFETY: the stream has a queue.
        (unsafe { (functions.stream_start)(stream) } != 0).then_some(made)
    }

    /// In a forked child: the stream is the parent's, and is left as it is.
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
                // SAFETY: the stream was created, and has a queue. One that was not started is
                // stopped in vain.
                unsafe { (functions.stream_stop)(self.stream) };
                // SAFETY: as above. From now on no call begins.
                unsafe { (functions.stream_invalidate)(self.stream) };
                // SAFETY: waits until the queue has done all before. No call waits for this
                // thread: none holds a lock when it calls the system.
                unsafe { dispatch_sync_f(self.queue, ptr::null_mut(), nothing) };
            }
            // SAFETY: created by us, and released once.
            unsafe { (functions.stream_release)(self.stream) };
        }
        if !self.queue.is_null() {
            // SAFETY: created by us, and released once.
            unsafe { dispatch_release(self.queue) };
        }
        // SAFETY: made by `Box::into_raw`; no call uses it any more.
        drop(unsafe { Box::from_raw(self.teller) });
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// An array of one string.
fn list_of(functions: &Functions, path: &CStr) -> Option<Reference> {
    // SAFETY: the path ends with a NUL.
    let string = unsafe { (functions.string_create)(ptr::null(), path.as_ptr()) };
    if string.is_null() {
        return None;
    }
    let callbacks = functions.array_callbacks;
    // SAFETY: reads one reference, which is that of a string.
    let list = unsafe { (functions.array_create)(ptr::null(), &raw const string, 1, callbacks) };
    // SAFETY: created above; the array keeps it.
    unsafe { (functions.release)(string) };
    (!list.is_null()).then_some(list)
}

/// What the system calls, on the stream's queue.
unsafe extern "C" fn call(
    _stream: Reference,
    teller: *mut c_void,
    count: usize,
    paths: *mut c_void,
    flags: *const u32,
    ids: *const u64,
) {
    // SAFETY: the stream was given this, and it lives as long as calls may come.
    let teller = unsafe { &*teller.cast::<Teller>() };
    let mut told = false;
    for index in 0..count {
        // SAFETY: there are so many paths; without another flag they are C strings.
        let path = unsafe { paths.cast::<*const c_char>().wrapping_add(index).read() };
        // SAFETY: as above: it ends with a NUL, and is there during the call.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        // SAFETY: there are as many flags.
        let flags = unsafe { flags.wrapping_add(index).read() };
        // SAFETY: and as many numbers.
        let id = unsafe { ids.wrapping_add(index).read() };
        let Some((what, below)) = teller.filter.news(Event { path, flags, id }) else { continue };
        let name = if below.is_empty() { &teller.name } else { below };
        teller.inbox.put(teller.watcher, what, name.to_owned());
        told = true;
    }
    if told {
        // If waking fails the loop finds it when it next looks.
        let _ = teller.notifier.notify(Notes::CHANGES);
    }
}
