//! Open files: opening, closing, flushing and truncating.

use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;

use poll_core::{Op, RawSource};

use super::operation::{Action, Call, Operation};
use crate::pool::{Step, Task};
use crate::sys::fs as sys;

/// An open file: a descriptor, or a `HANDLE` on Windows.
///
/// Clones share the open file. Each operation keeps a clone, so the file stays open while one uses
/// it. [`close`](super::close) reports errors of closing; dropping the last clone closes the file
/// too, in the thread that drops it, and ignores errors.
///
/// ```
/// use uv_core::fs;
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("file-XXXXXX")).perform()?;
/// # let path = dir.join("greeting");
/// let file = fs::open(&path, fs::OpenOptions::new().write(true).create(true)).perform()?;
/// let (written, _) = fs::write(&file, "hello").perform();
/// assert_eq!(written?, 5);
/// fs::close(file).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// [`borrow_raw`](File::borrow_raw) makes one of a descriptor that other code owns.
#[derive(Clone, Debug)]
pub struct File(Descriptor);

#[derive(Debug)]
enum Descriptor {
    Owned(Arc<std::fs::File>),
    /// Closed by other code.
    Borrowed(ManuallyDrop<std::fs::File>),
}

impl Clone for Descriptor {
    fn clone(&self) -> Descriptor {
        match self {
            Descriptor::Owned(file) => Descriptor::Owned(Arc::clone(file)),
            Descriptor::Borrowed(file) => Descriptor::Borrowed(sys::copy_number(file)),
        }
    }
}

impl File {
    /// A file on a descriptor, or a `HANDLE` on Windows, that other code owns and closes: for
    /// libraries whose callers pass descriptors. Nothing is allocated, and nothing is closed when
    /// the file is dropped. All operations but [`close`](super::close) accept it.
    ///
    /// ```
    /// use uv_core::fs;
    ///
    /// let owner = fs::open("Cargo.toml", fs::OpenOptions::new().read(true)).perform()?;
    /// // SAFETY: `owner` keeps the descriptor open until the operation has completed.
    /// let file = unsafe { fs::File::borrow_raw(owner.source())? };
    /// let (count, bytes) = fs::read_at(&file, vec![0; 9], 0).perform();
    /// assert_eq!(&bytes[..count?], b"[package]");
    /// drop(owner);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `EBADF` for -1 (`ERROR_INVALID_HANDLE` on Windows). Other numbers are not checked.
    ///
    /// # Safety
    ///
    /// The descriptor stays open until the file, its clones and the operations that use them are
    /// gone. If it is closed before, they may use another file that the system has given the same
    /// number.
    #[allow(unsafe_code, reason = "the caller keeps the descriptor open")]
    #[doc(alias = "uv_file")]
    pub unsafe fn borrow_raw(source: RawSource) -> io::Result<File> {
        // SAFETY: the caller keeps the descriptor open, and `ManuallyDrop` never closes it.
        unsafe { sys::borrow(source) }.map(|file| File(Descriptor::Borrowed(file)))
    }

    /// The file as `std` has it.
    pub(crate) fn std(&self) -> &std::fs::File {
        match &self.0 {
            Descriptor::Owned(file) => file,
            Descriptor::Borrowed(file) => file,
        }
    }

    /// The descriptor or the handle.
    ///
    /// ```
    /// # let file = uv_core::fs::File::from(std::fs::File::open("Cargo.toml")?);
    /// println!("open as {:?}", file.source());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn source(&self) -> RawSource {
        sys::source(self.std())
    }

    /// Converts into a `std` file, if no other clone exists, no operation uses it, and it is not
    /// [borrowed](File::borrow_raw).
    ///
    /// ```
    /// # let dir = uv_core::fs::mkdtemp(std::env::temp_dir().join("file-XXXXXX")).perform()?;
    /// # std::fs::write(dir.join("a"), "")?;
    /// let file = uv_core::fs::File::from(std::fs::File::open(dir.join("a"))?);
    /// let file: std::fs::File = file.into_std().unwrap();
    /// # drop(file);
    /// # drop(std::fs::remove_dir_all(dir));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The file itself if it is in use or borrowed.
    pub fn into_std(self) -> Result<std::fs::File, File> {
        match self.0 {
            Descriptor::Owned(file) => {
                Arc::try_unwrap(file).map_err(|file| File(Descriptor::Owned(file)))
            }
            borrowed => Err(File(borrowed)),
        }
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File(Descriptor::Owned(Arc::new(file)))
    }
}

/// For calls that this module lacks, of `rustix` or `std`:
///
/// ```
/// use std::os::fd::AsFd;
///
/// let file = uv_core::fs::File::from(std::fs::File::open("Cargo.toml")?);
/// let duplicate = std::fs::File::from(file.as_fd().try_clone_to_owned()?);
/// assert!(duplicate.metadata()?.is_file());
/// # std::io::Result::Ok(())
/// ```
#[cfg(unix)]
impl std::os::fd::AsFd for File {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.std().as_fd()
    }
}

/// For calls that this module lacks:
///
/// ```
/// use std::os::windows::io::AsHandle;
///
/// let file = uv_core::fs::File::from(std::fs::File::open("Cargo.toml")?);
/// let duplicate = std::fs::File::from(file.as_handle().try_clone_to_owned()?);
/// assert!(duplicate.metadata()?.is_file());
/// # std::io::Result::Ok(())
/// ```
#[cfg(windows)]
impl std::os::windows::io::AsHandle for File {
    fn as_handle(&self) -> std::os::windows::io::BorrowedHandle<'_> {
        self.std().as_handle()
    }
}

impl AsRef<std::fs::File> for File {
    fn as_ref(&self) -> &std::fs::File {
        self.std()
    }
}

/// Options of [`open`](super::open), as those of `std`; a backend can perform the operation.
///
/// ```
/// use uv_core::fs::OpenOptions;
///
/// let append = OpenOptions::new().append(true).create(true).mode(0o600);
/// # let _ = append;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options do nothing by themselves"]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
    pub(crate) mode: u32,
    pub(crate) custom: i32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new()
    }
}

macro_rules! options {
    ($( $(#[$doc:meta])* $name:ident ),*) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("let _ = uv_core::fs::OpenOptions::new().", stringify!($name), "(true);")]
        /// ```
        pub const fn $name(mut self, yes: bool) -> OpenOptions {
            self.$name = yes;
            self
        }
    )* };
}

impl OpenOptions {
    /// Options without any access. Files are created with mode `0o666`, less the umask.
    ///
    /// ```
    /// let _ = uv_core::fs::OpenOptions::new().read(true);
    /// ```
    pub const fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            create: false,
            create_new: false,
            truncate: false,
            mode: 0o666,
            custom: 0,
        }
    }

    options! {
        /// Opens the file for reading.
        read,
        /// Opens the file for writing.
        write,
        /// Writes to the end of the file, whatever the position is.
        append,
        /// Creates the file if it does not exist.
        create,
        /// Creates the file, and fails if the path exists, even as a symbolic link.
        create_new,
        /// Truncates an existing file to length 0.
        truncate
    }

    /// The permissions of a file that is created, less the umask. On Windows only `0o200` has an
    /// effect: without it the file is created read-only.
    ///
    /// ```
    /// let _ = uv_core::fs::OpenOptions::new().write(true).create(true).mode(0o600);
    /// ```
    pub const fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = mode;
        self
    }

    /// Checks that the options are consistent.
    pub(crate) fn check(self) -> io::Result<()> {
        let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let writes = self.write || self.append;
        if !self.read && !writes {
            return wrong("no access: set `read`, `write` or `append`");
        }
        if !writes && (self.create || self.create_new || self.truncate) {
            return wrong("to create or truncate a file, set `write` or `append`");
        }
        Ok(())
    }

    /// Additional flags of the system: `O_*` without the access mode; on Windows `FILE_FLAG_*` and
    /// `FILE_ATTRIBUTE_*`.
    ///
    /// ```
    /// # const O_DIRECTORY: i32 = 0;
    /// let _ = uv_core::fs::OpenOptions::new().read(true).custom_flags(O_DIRECTORY);
    /// ```
    pub const fn custom_flags(mut self, flags: i32) -> OpenOptions {
        self.custom = flags;
        self
    }
}

/// Opens a file, close-on-exec (`open(2)`).
///
/// A directory can be opened for reading on systems that allow it, for [`fstat`](super::fstat) and
/// [`fsync`].
///
/// ```
/// use uv_core::{Loop, RunMode, fs};
///
/// let mut lp = Loop::with_default_backend()?;
/// let options = fs::OpenOptions::new().read(true);
/// fs::open("no such file", options).start(&mut lp, |_, file| {
///     assert_eq!(file.unwrap_err().kind(), std::io::ErrorKind::NotFound);
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors; `InvalidInput` for options without access, or that truncate or create
/// without write access.
#[doc(alias = "uv_fs_open")]
pub fn open(
    path: impl AsRef<Path>,
    options: OpenOptions,
) -> Operation<Call<sys::OpenRequest, File>> {
    Call::try_of(sys::OpenRequest::new(path.as_ref(), options), &sys::OPEN)
}

/// Closes a file (`close(2)`). The file is closed even if the system reports an error.
///
/// ```
/// # let file = uv_core::fs::File::from(std::fs::File::open("Cargo.toml")?);
/// uv_core::fs::close(file).perform()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `ResourceBusy` if another clone exists or an operation uses the file: it is closed when the last
/// of them is dropped. The same for a [borrowed](File::borrow_raw) file, which its owner closes.
/// Otherwise the system's errors, such as a full disk that it detects only now.
#[doc(alias = "uv_fs_close")]
pub fn close(file: File) -> Operation<Closing> {
    Operation(Closing { file: file.into_std().ok() })
}

/// The action of [`close`].
#[derive(Debug)]
pub struct Closing {
    /// `None` if the file is in use, or the backend closes it.
    file: Option<std::fs::File>,
}

// SAFETY: the operation names only the descriptor of `file`, and `submitted` passes its ownership
// to the backend.
#[allow(unsafe_code, reason = "the kernel uses the memory that `op` names")]
unsafe impl Task for Closing {
    type Value = ();

    fn perform(&mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), sys::close)
    }

    fn op(&mut self) -> Option<Op> {
        self.file.as_ref().map(|file| Op::Close { source: sys::source(file) })
    }

    fn submitted(&mut self) {
        // It must not be closed twice: by then the number may belong to another file.
        if let Some(file) = self.file.take() {
            sys::forget(file);
        }
    }

    fn step(&mut self, _: usize) -> Step<()> {
        Step::Done(Ok(()))
    }
}

impl Action for Closing {
    type Output = io::Result<()>;

    fn refusal(&mut self) -> Option<io::Error> {
        let why = "the file is borrowed, or in use until its last clone and operation are dropped";
        self.file.is_none().then(|| io::Error::new(io::ErrorKind::ResourceBusy, why))
    }

    fn output(self, result: io::Result<()>) -> io::Result<()> {
        result
    }
}

/// Flushes the data and the metadata of a file to its device (`fsync(2)`).
///
/// ```
/// # let dir = uv_core::fs::mkdtemp(std::env::temp_dir().join("file-XXXXXX")).perform()?;
/// # let file = uv_core::fs::File::from(std::fs::File::create(dir.join("a"))?);
/// uv_core::fs::fsync(&file).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_fsync")]
pub fn fsync(file: &File) -> Operation<Call<File, ()>> {
    Call::of(file.clone(), &sys::FSYNC)
}

/// Flushes the data of a file to its device (`fdatasync(2)`).
///
/// ```
/// # let dir = uv_core::fs::mkdtemp(std::env::temp_dir().join("file-XXXXXX")).perform()?;
/// # let file = uv_core::fs::File::from(std::fs::File::create(dir.join("a"))?);
/// uv_core::fs::fdatasync(&file).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_fdatasync")]
pub fn fdatasync(file: &File) -> Operation<Call<File, ()>> {
    Call::of(file.clone(), &sys::FDATASYNC)
}

/// Sets the length of a file (`ftruncate(2)`). New bytes are zero; the position is unchanged.
///
/// ```
/// use uv_core::fs;
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("file-XXXXXX")).perform()?;
/// # let file = fs::File::from(std::fs::File::create(dir.join("a"))?);
/// fs::ftruncate(&file, 1 << 32).perform()?;
/// assert_eq!(fs::fstat(&file).perform()?.size, 1 << 32);
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_ftruncate")]
pub fn ftruncate(file: &File, len: u64) -> Operation<Call<(File, u64), ()>> {
    Call::of((file.clone(), len), &sys::FTRUNCATE)
}
