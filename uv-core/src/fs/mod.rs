//! File operations, asynchronous in a loop, awaited, or blocking.
//!
//! Each function here makes an [`Operation`], which does nothing until it is
//! [started](Operation::start) in a loop, [awaited](#futures) or [performed](Operation::perform) in this
//! thread:
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
//! The backend performs an operation if it supports it (io_uring: `open`, `close`, `read`,
//! `write`, `fsync`, `fdatasync`, `ftruncate`, `stat`, `lstat`, `fstat`, `unlink`, `rmdir`,
//! `mkdir`, `rename`, `link`, `symlink`, as far as the kernel has them); otherwise a thread of a
//! [pool](crate::Pool) does. The results are the same. On Linux a [`read_at`] of up to 64 KiB that
//! are in the page cache needs no thread: it completes when it is started, because it does not
//! block, and its callback runs later like any other.
//!
//! An operation owns its arguments until its callback runs: paths are copied, files are kept open,
//! buffers are returned with the result. If the loop is dropped, a thread finishes the operation
//! that it runs, and no callback runs.
//!
//! # Futures
//!
//! An operation can be awaited as it is, in any `async` function and on any executor. It needs no
//! loop: the process's [pool](crate::Pool::global) performs it, and a thread of the pool wakes the task.
//!
//! ```
//! use uv_core::fs;
//!
//! async fn first_bytes(path: &str) -> std::io::Result<Vec<u8>> {
//!     let file = fs::open(path, fs::OpenOptions::new().read(true)).await?;
//!     let (count, mut bytes) = fs::read_at(&file, vec![0; 9], 0).await;
//!     bytes.truncate(count?);
//!     Ok(bytes)
//! }
//!
//! # #[cfg(unix)] {
//! let tokio = tokio::runtime::Builder::new_current_thread().build()?;
//! assert_eq!(tokio.block_on(first_bytes("Cargo.toml"))?, b"[package]");
//! # }
//! # std::io::Result::Ok(())
//! ```
//!
//! The results are the same in all three ways. Tasks of a loop, with the crate `uv-async`, have the
//! choice between `operation.await` and `operation.on(&rt).await`. The second starts the operation in the
//! loop, so that a backend such as io_uring performs it, a pool of the [loop](crate::Loop::set_pool) is
//! used, and it is one of the loop's active requests. The first is for code that has no `rt`, and for
//! libraries that should run on every executor.
//!
//! [`OperationFuture`] states what dropping such a future means.
//!
//! | topic | functions |
//! |---|---|
//! | open files | [`open`], [`close`], [`read`], [`read_at`], [`write`](write()), [`write_at`], [`sendfile`], [`fsync`], [`fdatasync`], [`ftruncate`] |
//! | metadata | [`stat`](stat()), [`lstat`], [`fstat`], [`statfs`], [`access`] |
//! | permissions, owners, times | [`chmod`], [`fchmod`], [`chown`], [`fchown`], [`lchown`], [`utime`], [`futime`], [`lutime`] |
//! | paths | [`unlink`], [`rename`], [`link`], [`symlink`], [`readlink`], [`realpath`] |
//! | directories | [`mkdir`], [`rmdir`], [`opendir`], [`readdir`], [`closedir`], [`scandir`] |
//! | copies, temporary files | [`copyfile`], [`mkdtemp`], [`mkstemp`] |

mod attributes;
mod copy;
mod dir;
mod file;
mod future;
mod operation;
mod path_ops;
mod read_write;
mod stat;
mod temp;

pub use attributes::{SetTime, chmod, chown, fchmod, fchown, futime, lchown, lutime, utime};
pub use copy::{CopyFlags, copyfile};
pub use dir::{Dir, Dirent, EntryKind, closedir, opendir, readdir, scandir};
pub use file::{File, OpenOptions, close, fdatasync, fsync, ftruncate, open};
pub use future::OperationFuture;
pub(crate) use operation::Way;
pub use operation::{Action, FsRequest, Operation};
pub use path_ops::{
    Access, SymlinkKind, access, link, mkdir, readlink, realpath, rename, rmdir, symlink, unlink,
};
pub use read_write::{read, read_at, sendfile, write, write_at};
pub use stat::{Stat, StatFs, Timestamp, fstat, lstat, stat, statfs};
pub use temp::{mkdtemp, mkstemp};

/// The actions of operations, to name their types. Only this module creates values of them.
///
/// ```
/// use uv_core::fs::{self, Operation, actions};
///
/// /// Operations to be performed on a file.
/// struct Plan {
///     write: Operation<actions::Writing<&'static str>>,
///     read: Operation<actions::Reading<Vec<u8>>>,
/// }
///
/// /// Performs an operation without a buffer, and prints it.
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
    pub use super::read_write::{Reading, Writing};
}
