//! Open files: what they are, opening, closing, and what concerns one as a whole.

use std::io;
use std::path::Path;
use std::sync::Arc;

use poll_core::{Op, RawSource};

use super::operation::{Action, Call, Operation};
use crate::pool::{Step, Task};
use crate::sys::fs as sys;

/// An open file: a descriptor, or a `HANDLE` on Windows.
///
/// Clones are the same open file. Operations keep a clone each, so it is open as long as one
/// of them uses it. [`close`](super::close) tells whether closing went well; if the last
/// clone is dropped the file is closed too, in that moment and in silence.
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
#[derive(Clone, Debug)]
pub struct File(pub(crate) Arc<std::fs::File>);

impl File {
    /// The descriptor or the handle.
    ///
    /// ```
    /// # let file = uv_core::fs::File::from(std::fs::File::open("Cargo.toml")?);
    /// println!("open as {:?}", file.source());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn source(&self) -> RawSource {
        sys::source(&self.0)
    }

    /// The file as `std` has it, if there is no other clone and no operation uses it.
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
    /// The file itself, if it is in use.
    pub fn into_std(self) -> Result<std::fs::File, File> {
        Arc::try_unwrap(self.0).map_err(File)
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File(Arc::new(file))
    }
}

impl AsRef<std::fs::File> for File {
    fn as_ref(&self) -> &std::fs::File {
        &self.0
    }
}

/// How to open a file. As `std`'s, but that it can be [performed by a backend](super::open).
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
    /// Nothing is allowed yet, and files are created with mode `0o666`, less the umask.
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
        /// The file can be read.
        read,
        /// The file can be written.
        write,
        /// Every write goes to the end, wherever the position is.
        append,
        /// Makes the file if there is none.
        create,
        /// Makes the file, and fails if there is one, even a symbolic link.
        create_new,
        /// What is in the file goes.
        truncate
    }

    /// The permissions of a file that is made, less the umask. Ignored on Windows, but that
    /// a file without `0o200` is made read-only.
    ///
    /// ```
    /// let _ = uv_core::fs::OpenOptions::new().write(true).create(true).mode(0o600);
    /// ```
    pub const fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = mode;
        self
    }

    /// That they make sense.
    pub(crate) fn check(self) -> io::Result<()> {
        let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let writes = self.write || self.append;
        if !self.read && !writes {
            return wrong("to open a file, allow to read or to write it");
        }
        if !writes && (self.create || self.create_new || self.truncate) {
            return wrong("to create or truncate a file, allow to write it");
        }
        Ok(())
    }

    /// Further flags of the system: `O_*`, but for the access mode; on Windows, `FILE_FLAG_*`
    /// and `FILE_ATTRIBUTE_*`.
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
/// A directory can be opened to be read where the system can: to ask about it, to flush it.
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
/// The system's; `InvalidInput` for options that allow nothing, or that truncate or create
/// without writing.
#[doc(alias = "uv_fs_open")]
pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Operation<Call<sys::Opening, File>> {
    Call::try_of(sys::Opening::new(path.as_ref(), options), &sys::OPEN)
}

/// Closes a file (`close(2)`). Whatever it says, the file is closed.
///
/// ```
/// # let file = uv_core::fs::File::from(std::fs::File::open("Cargo.toml")?);
/// uv_core::fs::close(file).perform()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `ResourceBusy` if there is another clone, or an operation uses the file: then it is closed
/// when the last of them is gone. Else what the system says, such as a full disk that it
/// finds out about only now.
#[doc(alias = "uv_fs_close")]
pub fn close(file: File) -> Operation<Closing> {
    Operation(Closing { file: file.into_std().ok() })
}

/// What [`close`] does.
#[derive(Debug)]
pub struct Closing {
    /// `None` if it is in use, or is the backend's to close.
    file: Option<std::fs::File>,
}

impl Task for Closing {
    type Value = ();

    fn perform(&mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), sys::close)
    }

    fn op(&mut self) -> Option<Op> {
        self.file.as_ref().map(|file| Op::Close { source: sys::source(file) })
    }

    fn submitted(&mut self) {
        // It must not be closed twice: by then the number may be another's.
        if let Some(file) = self.file.take() {
            sys::forget(file);
        }
    }

    fn step(&mut self, _: usize) -> Step<()> {
        Step::Over(Ok(()))
    }
}

impl Action for Closing {
    type Output = io::Result<()>;

    fn refusal(&mut self) -> Option<io::Error> {
        let why = "the file is in use: it is closed when its last clone and operation are gone";
        self.file.is_none().then(|| io::Error::new(io::ErrorKind::ResourceBusy, why))
    }

    fn output(self, result: io::Result<()>) -> io::Result<()> {
        result
    }
}

/// Flushes a file to its device, with all that is known about it (`fsync(2)`).
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
/// The system's.
#[doc(alias = "uv_fs_fsync")]
pub fn fsync(file: &File) -> Operation<Call<File, ()>> {
    Call::of(file.clone(), &sys::FSYNC)
}

/// Flushes what is in a file to its device (`fdatasync(2)`).
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
/// The system's.
#[doc(alias = "uv_fs_fdatasync")]
pub fn fdatasync(file: &File) -> Operation<Call<File, ()>> {
    Call::of(file.clone(), &sys::FDATASYNC)
}

/// Sets the length of a file (`ftruncate(2)`). What is added is zeros; the position stays.
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
/// The system's.
#[doc(alias = "uv_fs_ftruncate")]
pub fn ftruncate(file: &File, len: u64) -> Operation<Call<(File, u64), ()>> {
    Call::of((file.clone(), len), &sys::FTRUNCATE)
}
