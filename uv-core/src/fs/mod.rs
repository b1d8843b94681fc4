//! Files: all that can be done with them, without blocking the loop or by blocking.
//!
//! Each function here makes an [`Operation`], which does nothing until it is
//! [started](Operation::start) in a loop, or [performed](Operation::perform) here and now:
//!
//! ```
//! use uv_core::{Loop, RunMode, fs};
//!
//! let mut lp = Loop::with_default_backend()?;
//! let options = fs::OpenOptions::new().read(true);
//! fs::open("Cargo.toml", options).start(&mut lp, |lp, file| {
//!     let file = file.unwrap();
//!     let read = fs::read(&file, vec![0; 4096]).start(lp, |_, (count, bytes)| {
//!         println!("{}", String::from_utf8_lossy(&bytes[..count.unwrap()]));
//!     });
//!     read.unwrap();
//! })?;
//! lp.run(RunMode::Default)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! Where the backend performs an operation itself, it does (io_uring: `open`, `close`, `read`,
//! `write`, `fsync`, `fdatasync`, `ftruncate`, `stat`, `lstat`, `fstat`, `unlink`, `rmdir`,
//! `mkdir`, `rename`, `link`, `symlink`, as far as the kernel has them); else a thread of a
//! [pool](crate::Pool). The results are the same. On Linux a [`read_at`] of up to 64 KiB that
//! are in the kernel's memory needs no thread: it is over when it has started, as it blocks
//! nobody, and is told later as any other.
//!
//! What is given to an operation is its own until it calls back: paths are copied, files are
//! kept open, buffers come back with the result. That holds when the loop is dropped, too:
//! what a thread has begun then it ends, and nobody is told.
//!
//! | for | there is |
//! |---|---|
//! | open files | [`open`], [`close`], [`read`], [`read_at`], [`write`](write()), [`write_at`], [`sendfile`], [`fsync`], [`fdatasync`], [`ftruncate`] |
//! | what is known | [`stat`](stat()), [`lstat`], [`fstat`], [`statfs`], [`access`] |
//! | what is set | [`chmod`], [`fchmod`], [`chown`], [`fchown`], [`lchown`], [`utime`], [`futime`], [`lutime`] |
//! | names | [`unlink`], [`rename`], [`link`], [`symlink`], [`readlink`], [`realpath`] |
//! | directories | [`mkdir`], [`rmdir`], [`opendir`], [`readdir`], [`closedir`], [`scandir`] |
//! | more files | [`copyfile`], [`mkdtemp`], [`mkstemp`] |

mod attributes;
mod copy;
mod dir;
mod file;
mod names;
mod operation;
mod stat;
mod temporary;
mod transfer;

pub use attributes::{SetTime, chmod, chown, fchmod, fchown, futime, lchown, lutime, utime};
pub use copy::{CopyFlags, copyfile};
pub use dir::{Dir, Dirent, EntryKind, closedir, opendir, readdir, scandir};
pub use file::{File, OpenOptions, close, fdatasync, fsync, ftruncate, open};
pub use names::{
    Access, SymlinkKind, access, link, mkdir, readlink, realpath, rename, rmdir, symlink, unlink,
};
pub(crate) use operation::Way;
pub use operation::{Action, FsRequest, Operation};
pub use stat::{Stat, StatFs, Timestamp, fstat, lstat, stat, statfs};
pub use temporary::{mkdtemp, mkstemp};
pub use transfer::{read, read_at, sendfile, write, write_at};

/// What operations are made of: named by types, never made by hand.
///
/// ```
/// use uv_core::fs::{self, Operation, actions};
///
/// /// What is still to be done to a file.
/// struct Plan {
///     write: Operation<actions::Writing<&'static str>>,
///     read: Operation<actions::Reading<Vec<u8>>>,
/// }
///
/// /// Performs what takes no buffer: a call, with arguments that only its maker can name.
/// fn logged<A: Send, T: Send>(call: Operation<actions::Call<A, T>>) -> std::io::Result<T> {
///     println!("{call:?}");
///     call.perform()
/// }
///
/// let (file, path) = logged(fs::mkstemp(std::env::temp_dir().join("plan-XXXXXX")))?;
/// let (write, read) = (fs::write_at(&file, "hello", 0), fs::read_at(&file, vec![0; 16], 0));
/// let plan = Plan { write, read };
/// assert_eq!(plan.write.perform().0?, 5);
/// assert_eq!(plan.read.perform().0?, 5);
/// let close: Operation<actions::Closing> = fs::close(file);
/// close.perform()?;
/// logged(fs::unlink(path))?;
/// # std::io::Result::Ok(())
/// ```
pub mod actions {
    pub use super::file::Closing;
    pub use super::operation::Call;
    pub use super::transfer::{Reading, Writing};
}
