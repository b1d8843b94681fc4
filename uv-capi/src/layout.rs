//! libuv's structs, as its header lays them out on 64-bit Linux.
//!
//! Fields that libuv's documentation names are public there and kept true here. The others are
//! storage of the library: some are used for another purpose than libuv's, most not at all.
//! [`LAYOUT`] lists sizes and offsets; they are asserted at compile time here, and compared with
//! libuv's header by a test.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::mem::{offset_of, size_of};

use libc::{DIR, addrinfo, sockaddr, sockaddr_storage};

/// A node of a circular list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uv__queue {
    pub next: *mut uv__queue,
    pub prev: *mut uv__queue,
}

/// A piece of memory; the layout is that of `iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uv_buf_t {
    pub base: *mut c_char,
    pub len: usize,
}

/// A callback with its handle or request.
pub type Callback<T> = Option<unsafe extern "C" fn(*mut T)>;
/// A callback with its handle or request and a status.
pub type StatusCallback<T> = Option<unsafe extern "C" fn(*mut T, c_int)>;
pub type uv_alloc_cb = Option<unsafe extern "C" fn(*mut uv_handle_t, usize, *mut uv_buf_t)>;
pub type uv_read_cb = Option<unsafe extern "C" fn(*mut uv_stream_t, isize, *const uv_buf_t)>;
pub type uv_poll_cb = Option<unsafe extern "C" fn(*mut uv_poll_t, c_int, c_int)>;
pub type uv_exit_cb = Option<unsafe extern "C" fn(*mut uv_process_t, i64, c_int)>;
pub type uv_walk_cb = Option<unsafe extern "C" fn(*mut uv_handle_t, *mut c_void)>;
pub type uv_udp_recv_cb =
    Option<unsafe extern "C" fn(*mut uv_udp_t, isize, *const uv_buf_t, *const sockaddr, c_uint)>;
pub type uv_fs_event_cb =
    Option<unsafe extern "C" fn(*mut uv_fs_event_t, *const c_char, c_int, c_int)>;
pub type uv_fs_poll_cb =
    Option<unsafe extern "C" fn(*mut uv_fs_poll_t, c_int, *const uv_stat_t, *const uv_stat_t)>;
pub type uv_getaddrinfo_cb =
    Option<unsafe extern "C" fn(*mut uv_getaddrinfo_t, c_int, *mut addrinfo)>;
pub type uv_getnameinfo_cb =
    Option<unsafe extern "C" fn(*mut uv_getnameinfo_t, c_int, *const c_char, *const c_char)>;
pub type uv_random_cb = Option<unsafe extern "C" fn(*mut uv_random_t, c_int, *mut c_void, usize)>;

/// The size of `uv_loop_t`, which contains a mutex.
pub(crate) const LOOP_SIZE: usize = 808 + size_of::<libc::pthread_mutex_t>();

#[repr(C)]
pub struct uv_loop_t {
    pub data: *mut c_void,
    pub active_handles: c_uint,
    pub handle_queue: uv__queue,
    /// A union: the first word is the number of requests that have not called back.
    pub active_reqs: [c_uint; 2],
    /// The loop of this library.
    pub internal_fields: *mut crate::event_loop::LoopState,
    pub stop_flag: c_uint,
    pub flags: c_ulong,
    pub backend_fd: c_int,
    pub(crate) rest: [u64; (LOOP_SIZE - 72) / 8],
}

#[repr(C)]
pub struct uv_handle_t {
    pub data: *mut c_void,
    pub loop_: *mut uv_loop_t,
    pub type_: c_int,
    pub close_cb: Callback<uv_handle_t>,
    pub handle_queue: uv__queue,
    /// The first word has the key of the handle.
    pub u: [u64; 4],
    pub next_closing: *mut uv_handle_t,
    pub flags: c_uint,
}

#[repr(C)]
pub struct uv_timer_t {
    pub base: uv_handle_t,
    pub timer_cb: Callback<uv_timer_t>,
    pub(crate) node: [usize; 3],
    pub timeout: u64,
    pub repeat: u64,
    pub start_id: u64,
}

/// `uv_idle_t`, `uv_prepare_t` and `uv_check_t`.
#[repr(C)]
pub struct uv_watcher_t {
    pub base: uv_handle_t,
    pub cb: Callback<uv_watcher_t>,
    pub(crate) queue: uv__queue,
}

#[repr(C)]
pub struct uv_async_t {
    pub base: uv_handle_t,
    pub async_cb: Callback<uv_async_t>,
    /// The sender: libuv's place of a queue node.
    pub(crate) sender: [usize; 2],
    /// The number of threads inside `uv_async_send`.
    pub(crate) pending: c_int,
}

#[repr(C)]
pub struct uv_stream_t {
    pub base: uv_handle_t,
    pub write_queue_size: usize,
    pub alloc_cb: uv_alloc_cb,
    pub read_cb: uv_read_cb,
    pub connect_req: *mut uv_connect_t,
    pub shutdown_req: *mut uv_shutdown_t,
    pub(crate) io_watcher: [u64; 7],
    pub(crate) write_queue: uv__queue,
    pub(crate) write_completed_queue: uv__queue,
    pub connection_cb: StatusCallback<uv_stream_t>,
    pub delayed_error: c_int,
    pub accepted_fd: c_int,
    pub queued_fds: *mut c_void,
}

pub type uv_tcp_t = uv_stream_t;

#[repr(C)]
pub struct uv_pipe_t {
    pub stream: uv_stream_t,
    pub ipc: c_int,
    pub pipe_fname: *const c_char,
}

#[repr(C)]
pub struct uv_tty_t {
    pub stream: uv_stream_t,
    pub(crate) orig_termios: [u8; 60],
    pub mode: c_int,
}

#[repr(C)]
pub struct uv_udp_t {
    pub base: uv_handle_t,
    pub send_queue_size: usize,
    pub send_queue_count: usize,
    pub alloc_cb: uv_alloc_cb,
    pub recv_cb: uv_udp_recv_cb,
    pub(crate) io_watcher: [u64; 7],
    pub(crate) write_queue: uv__queue,
    pub(crate) write_completed_queue: uv__queue,
}

#[repr(C)]
pub struct uv_poll_t {
    pub base: uv_handle_t,
    pub poll_cb: uv_poll_cb,
    /// The first word has the descriptor.
    pub(crate) io_watcher: [u64; 7],
}

#[repr(C)]
pub struct uv_signal_t {
    pub base: uv_handle_t,
    pub signal_cb: StatusCallback<uv_signal_t>,
    pub signum: c_int,
    pub(crate) tree_entry: [u64; 4],
    pub caught_signals: c_uint,
    pub dispatched_signals: c_uint,
}

#[repr(C)]
pub struct uv_process_t {
    pub base: uv_handle_t,
    pub exit_cb: uv_exit_cb,
    pub pid: c_int,
    pub(crate) queue: uv__queue,
    pub status: c_int,
}

#[repr(C)]
pub struct uv_fs_event_t {
    pub base: uv_handle_t,
    pub path: *mut c_char,
    pub cb: uv_fs_event_cb,
    pub(crate) watchers: uv__queue,
    pub wd: c_int,
}

#[repr(C)]
pub struct uv_fs_poll_t {
    pub base: uv_handle_t,
    /// The callback: libuv's place of a pointer to its state.
    pub(crate) poll_ctx: uv_fs_poll_cb,
}

#[repr(C)]
pub struct uv_req_t {
    pub data: *mut c_void,
    pub type_: c_int,
    /// The first word has the key of the request.
    pub reserved: [u64; 6],
}

#[repr(C)]
pub struct uv_connect_t {
    pub base: uv_req_t,
    pub cb: StatusCallback<uv_connect_t>,
    pub handle: *mut uv_stream_t,
    pub(crate) queue: uv__queue,
}

#[repr(C)]
pub struct uv_shutdown_t {
    pub base: uv_req_t,
    pub handle: *mut uv_stream_t,
    pub cb: StatusCallback<uv_shutdown_t>,
}

#[repr(C)]
pub struct uv_write_t {
    pub base: uv_req_t,
    pub cb: StatusCallback<uv_write_t>,
    pub send_handle: *mut uv_stream_t,
    pub handle: *mut uv_stream_t,
    pub(crate) queue: uv__queue,
    pub write_index: c_uint,
    pub bufs: *mut uv_buf_t,
    pub nbufs: c_uint,
    pub error: c_int,
    pub(crate) bufsml: [uv_buf_t; 4],
}

#[repr(C)]
pub struct uv_udp_send_t {
    pub base: uv_req_t,
    pub handle: *mut uv_udp_t,
    pub cb: StatusCallback<uv_udp_send_t>,
    pub(crate) queue: uv__queue,
    pub(crate) u: sockaddr_storage,
    pub nbufs: c_uint,
    pub bufs: *mut uv_buf_t,
    pub status: isize,
    pub send_cb: StatusCallback<uv_udp_send_t>,
    pub(crate) bufsml: [uv_buf_t; 4],
}

#[repr(C)]
pub struct uv_work_t {
    pub base: uv_req_t,
    pub loop_: *mut uv_loop_t,
    pub work_cb: Callback<uv_work_t>,
    pub after_work_cb: StatusCallback<uv_work_t>,
    pub(crate) work_req: [u64; 5],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct uv_timespec_t {
    pub tv_sec: c_long,
    pub tv_nsec: c_long,
}

/// `uv_timespec64_t` and `uv_timeval64_t`.
#[repr(C)]
pub struct uv_time64_t {
    pub tv_sec: i64,
    pub tv_fraction: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct uv_stat_t {
    pub st_dev: u64,
    pub st_mode: u64,
    pub st_nlink: u64,
    pub st_uid: u64,
    pub st_gid: u64,
    pub st_rdev: u64,
    pub st_ino: u64,
    pub st_size: u64,
    pub st_blksize: u64,
    pub st_blocks: u64,
    pub st_flags: u64,
    pub st_gen: u64,
    pub st_atim: uv_timespec_t,
    pub st_mtim: uv_timespec_t,
    pub st_ctim: uv_timespec_t,
    pub st_birthtim: uv_timespec_t,
}

#[repr(C)]
pub struct uv_fs_t {
    pub base: uv_req_t,
    pub fs_type: c_int,
    pub loop_: *mut uv_loop_t,
    pub cb: Callback<uv_fs_t>,
    pub result: isize,
    pub ptr: *mut c_void,
    pub path: *const c_char,
    pub statbuf: uv_stat_t,
    pub new_path: *const c_char,
    pub file: c_int,
    pub flags: c_int,
    pub mode: c_uint,
    pub nbufs: c_uint,
    pub bufs: *mut uv_buf_t,
    pub off: i64,
    pub uid: u32,
    pub gid: u32,
    pub atime: f64,
    pub mtime: f64,
    pub(crate) work_req: [u64; 5],
    pub(crate) bufsml: [uv_buf_t; 4],
}

#[repr(C)]
pub struct uv_statfs_t {
    pub f_type: u64,
    pub f_bsize: u64,
    pub f_blocks: u64,
    pub f_bfree: u64,
    pub f_bavail: u64,
    pub f_files: u64,
    pub f_ffree: u64,
    pub f_frsize: u64,
    pub f_spare: [u64; 3],
}

#[repr(C)]
pub struct uv_dirent_t {
    pub name: *const c_char,
    pub type_: c_int,
}

#[repr(C)]
pub struct uv_dir_t {
    pub dirents: *mut uv_dirent_t,
    pub nentries: usize,
    pub(crate) reserved: [usize; 4],
    pub(crate) dir: *mut DIR,
}

#[repr(C)]
pub struct uv_getaddrinfo_t {
    pub base: uv_req_t,
    pub loop_: *mut uv_loop_t,
    pub(crate) work_req: [u64; 5],
    pub cb: uv_getaddrinfo_cb,
    pub hints: *mut addrinfo,
    pub hostname: *mut c_char,
    pub service: *mut c_char,
    pub addrinfo: *mut addrinfo,
    pub retcode: c_int,
}

#[repr(C)]
pub struct uv_getnameinfo_t {
    pub base: uv_req_t,
    pub loop_: *mut uv_loop_t,
    pub(crate) work_req: [u64; 5],
    pub getnameinfo_cb: uv_getnameinfo_cb,
    pub storage: sockaddr_storage,
    pub flags: c_int,
    pub host: [c_char; 1025],
    pub service: [c_char; 32],
    pub retcode: c_int,
}

#[repr(C)]
pub struct uv_random_t {
    pub base: uv_req_t,
    pub loop_: *mut uv_loop_t,
    pub status: c_int,
    pub buf: *mut c_void,
    pub buflen: usize,
    pub cb: uv_random_cb,
    pub(crate) work_req: [u64; 5],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union uv_stdio_data {
    pub stream: *mut uv_stream_t,
    pub fd: c_int,
}

#[repr(C)]
pub struct uv_stdio_container_t {
    pub flags: c_int,
    pub data: uv_stdio_data,
}

#[repr(C)]
pub struct uv_process_options_t {
    pub exit_cb: uv_exit_cb,
    pub file: *const c_char,
    pub args: *mut *mut c_char,
    pub env: *mut *mut c_char,
    pub cwd: *const c_char,
    pub flags: c_uint,
    pub stdio_count: c_int,
    pub stdio: *mut uv_stdio_container_t,
    pub uid: u32,
    pub gid: u32,
}

#[repr(C)]
pub struct uv_metrics_t {
    pub loop_count: u64,
    pub events: u64,
    pub events_waiting: u64,
    pub(crate) reserved: [u64; 13],
}

#[repr(C)]
pub struct uv_interface_address_t {
    pub name: *mut c_char,
    pub phys_addr: [u8; 6],
    pub is_internal: c_int,
    pub address: [u8; 28],
    pub netmask: [u8; 28],
}

#[repr(C)]
pub struct uv_cpu_info_t {
    pub model: *mut c_char,
    pub speed: c_int,
    /// User, nice, sys, idle and irq, in milliseconds.
    pub cpu_times: [u64; 5],
}

#[repr(C)]
pub struct uv_env_item_t {
    pub name: *mut c_char,
    pub value: *mut c_char,
}

#[repr(C)]
pub struct uv_passwd_t {
    pub username: *mut c_char,
    pub uid: c_ulong,
    pub gid: c_ulong,
    pub shell: *mut c_char,
    pub homedir: *mut c_char,
}

#[repr(C)]
pub struct uv_group_t {
    pub groupname: *mut c_char,
    pub gid: c_ulong,
    pub members: *mut *mut c_char,
}

#[repr(C)]
pub struct uv_utsname_t {
    pub sysname: [c_char; 256],
    pub release: [c_char; 256],
    pub version: [c_char; 256],
    pub machine: [c_char; 256],
}

#[repr(C)]
pub struct uv_lib_t {
    pub handle: *mut c_void,
    pub errmsg: *mut c_char,
}

#[repr(C)]
pub struct uv_thread_options_t {
    pub flags: c_uint,
    pub stack_size: usize,
}

/// A type of the header: its name, its size, and the names and offsets of fields.
pub type TypeLayout = (&'static str, usize, &'static [(&'static str, usize)]);

/// Asserts sizes and offsets at compile time, and lists them.
macro_rules! layout {
    ($($name:literal $type:ident $size:tt {
        $($($field:ident).+ as $c:literal $offset:literal)*
    })*) => {
        $(
            const _: () = assert!(size_of::<$type>() == $size);
            $( const _: () = assert!(offset_of!($type, $($field).+) == $offset); )*
        )*

        /// What is asserted of each struct: libuv's names, sizes and offsets.
        pub const LAYOUT: &[TypeLayout] = &[$( ($name, $size, &[$( ($c, $offset), )*]), )*];
    };
}

layout! {
    "uv_loop_t" uv_loop_t LOOP_SIZE {
        data as "data" 0 active_handles as "active_handles" 8 handle_queue as "handle_queue" 16
        active_reqs as "active_reqs" 32 internal_fields as "internal_fields" 40
        stop_flag as "stop_flag" 48 flags as "flags" 56 backend_fd as "backend_fd" 64
    }
    "uv_handle_t" uv_handle_t 96 {
        data as "data" 0 loop_ as "loop" 8 type_ as "type" 16 close_cb as "close_cb" 24
        handle_queue as "handle_queue" 32 u as "u" 48 next_closing as "next_closing" 80
        flags as "flags" 88
    }
    "uv_timer_t" uv_timer_t 152 {
        base.flags as "flags" 88 timer_cb as "timer_cb" 96 timeout as "timeout" 128
        repeat as "repeat" 136 start_id as "start_id" 144
    }
    "uv_idle_t" uv_watcher_t 120 { cb as "idle_cb" 96 }
    "uv_prepare_t" uv_watcher_t 120 { cb as "prepare_cb" 96 }
    "uv_check_t" uv_watcher_t 120 { cb as "check_cb" 96 }
    "uv_async_t" uv_async_t 128 { async_cb as "async_cb" 96 sender as "queue" 104 pending as "pending" 120 }
    "uv_stream_t" uv_stream_t 248 {
        write_queue_size as "write_queue_size" 96 alloc_cb as "alloc_cb" 104 read_cb as "read_cb" 112
        connect_req as "connect_req" 120 shutdown_req as "shutdown_req" 128
        connection_cb as "connection_cb" 224 delayed_error as "delayed_error" 232
        accepted_fd as "accepted_fd" 236 queued_fds as "queued_fds" 240
    }
    "uv_tcp_t" uv_tcp_t 248 { write_queue_size as "write_queue_size" 96 }
    "uv_pipe_t" uv_pipe_t 264 { ipc as "ipc" 248 pipe_fname as "pipe_fname" 256 }
    "uv_tty_t" uv_tty_t 312 { orig_termios as "orig_termios" 248 mode as "mode" 308 }
    "uv_udp_t" uv_udp_t 216 {
        send_queue_size as "send_queue_size" 96 send_queue_count as "send_queue_count" 104
        alloc_cb as "alloc_cb" 112 recv_cb as "recv_cb" 120
    }
    "uv_poll_t" uv_poll_t 160 { poll_cb as "poll_cb" 96 io_watcher as "io_watcher" 104 }
    "uv_signal_t" uv_signal_t 152 { signal_cb as "signal_cb" 96 signum as "signum" 104 }
    "uv_process_t" uv_process_t 136 { exit_cb as "exit_cb" 96 pid as "pid" 104 status as "status" 128 }
    "uv_fs_event_t" uv_fs_event_t 136 { path as "path" 96 cb as "cb" 104 wd as "wd" 128 }
    "uv_fs_poll_t" uv_fs_poll_t 104 { poll_ctx as "poll_ctx" 96 }
    "uv_req_t" uv_req_t 64 { data as "data" 0 type_ as "type" 8 reserved as "reserved" 16 }
    "uv_connect_t" uv_connect_t 96 { cb as "cb" 64 handle as "handle" 72 }
    "uv_shutdown_t" uv_shutdown_t 80 { handle as "handle" 64 cb as "cb" 72 }
    "uv_write_t" uv_write_t 192 {
        cb as "cb" 64 send_handle as "send_handle" 72 handle as "handle" 80
        write_index as "write_index" 104 bufs as "bufs" 112 nbufs as "nbufs" 120 error as "error" 124
        bufsml as "bufsml" 128
    }
    "uv_udp_send_t" uv_udp_send_t 320 {
        handle as "handle" 64 cb as "cb" 72 u as "u" 96 nbufs as "nbufs" 224 bufs as "bufs" 232
        status as "status" 240 send_cb as "send_cb" 248 bufsml as "bufsml" 256
    }
    "uv_work_t" uv_work_t 128 { loop_ as "loop" 64 work_cb as "work_cb" 72 after_work_cb as "after_work_cb" 80 }
    "uv_fs_t" uv_fs_t 440 {
        fs_type as "fs_type" 64 loop_ as "loop" 72 cb as "cb" 80 result as "result" 88 ptr as "ptr" 96
        path as "path" 104 statbuf as "statbuf" 112 new_path as "new_path" 272 file as "file" 280
        flags as "flags" 284 mode as "mode" 288 nbufs as "nbufs" 292 bufs as "bufs" 296 off as "off" 304
        uid as "uid" 312 gid as "gid" 316 atime as "atime" 320 mtime as "mtime" 328 bufsml as "bufsml" 376
    }
    "uv_getaddrinfo_t" uv_getaddrinfo_t 160 {
        loop_ as "loop" 64 cb as "cb" 112 hints as "hints" 120 hostname as "hostname" 128
        service as "service" 136 addrinfo as "addrinfo" 144 retcode as "retcode" 152
    }
    "uv_getnameinfo_t" uv_getnameinfo_t 1320 {
        loop_ as "loop" 64 getnameinfo_cb as "getnameinfo_cb" 112 storage as "storage" 120
        flags as "flags" 248 host as "host" 252 service as "service" 1277 retcode as "retcode" 1312
    }
    "uv_random_t" uv_random_t 144 {
        loop_ as "loop" 64 status as "status" 72 buf as "buf" 80 buflen as "buflen" 88 cb as "cb" 96
    }
    "uv_stat_t" uv_stat_t 160 { st_size as "st_size" 56 st_atim as "st_atim" 96 st_birthtim as "st_birthtim" 144 }
    "uv_statfs_t" uv_statfs_t 88 { f_type as "f_type" 0 f_ffree as "f_ffree" 48 f_frsize as "f_frsize" 56 f_spare as "f_spare" 64 }
    "uv_dirent_t" uv_dirent_t 16 { name as "name" 0 type_ as "type" 8 }
    "uv_dir_t" uv_dir_t 56 { dirents as "dirents" 0 nentries as "nentries" 8 }
    "uv_buf_t" uv_buf_t 16 { base as "base" 0 len as "len" 8 }
    "uv_stdio_container_t" uv_stdio_container_t 16 { flags as "flags" 0 data as "data" 8 }
    "uv_process_options_t" uv_process_options_t 64 {
        exit_cb as "exit_cb" 0 file as "file" 8 args as "args" 16 env as "env" 24 cwd as "cwd" 32
        flags as "flags" 40 stdio_count as "stdio_count" 44 stdio as "stdio" 48 uid as "uid" 56 gid as "gid" 60
    }
    "uv_metrics_t" uv_metrics_t 128 { loop_count as "loop_count" 0 events as "events" 8 events_waiting as "events_waiting" 16 }
    "uv_interface_address_t" uv_interface_address_t 80 {
        name as "name" 0 phys_addr as "phys_addr" 8 is_internal as "is_internal" 16 address as "address" 20
        netmask as "netmask" 48
    }
    "uv_cpu_info_t" uv_cpu_info_t 56 { model as "model" 0 speed as "speed" 8 cpu_times as "cpu_times" 16 }
    "uv_env_item_t" uv_env_item_t 16 { name as "name" 0 value as "value" 8 }
    "uv_passwd_t" uv_passwd_t 40 {
        username as "username" 0 uid as "uid" 8 gid as "gid" 16 shell as "shell" 24 homedir as "homedir" 32
    }
    "uv_group_t" uv_group_t 24 { groupname as "groupname" 0 gid as "gid" 8 members as "members" 16 }
    "uv_utsname_t" uv_utsname_t 1024 { sysname as "sysname" 0 release as "release" 256 version as "version" 512 machine as "machine" 768 }
    "uv_lib_t" uv_lib_t 16 { handle as "handle" 0 errmsg as "errmsg" 8 }
    "uv_thread_options_t" uv_thread_options_t 16 { flags as "flags" 0 stack_size as "stack_size" 8 }
    "uv_timespec64_t" uv_time64_t 16 { tv_sec as "tv_sec" 0 tv_fraction as "tv_nsec" 8 }
    "uv_timeval64_t" uv_time64_t 16 { tv_sec as "tv_sec" 0 tv_fraction as "tv_usec" 8 }
}
