//! Temporary files and directories with unique names.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use super::File;
use super::operation::{Call, Operation, Way};
use crate::sys::fs as sys;
use crate::sys::fs::Name;

/// The number of names that are tried. Each may exist by chance, or by an attack.
const TRIES: u32 = 1000;

/// The characters of random names.
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The suffix of a template that is replaced.
const BLANK: &str = "XXXXXX";

/// Tries names until one does not exist.
fn make<T>(template: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    let bytes = template.as_os_str().as_encoded_bytes();
    let Some(start) = bytes.strip_suffix(BLANK.as_bytes()) else {
        let why = format!("the template does not end with {BLANK}: append it");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    };
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..TRIES {
        let path = name(start)?;
        match make(&path) {
            Ok(made) => return Ok((made, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn name(start: &[u8]) -> io::Result<PathBuf> {
    let mut random = RandomState::new().hash_one(std::process::id());
    let mut name = start.to_vec();
    for _ in 0..BLANK.len() {
        name.push(LETTERS[(random % LETTERS.len() as u64) as usize]);
        random /= LETTERS.len() as u64;
    }
    sys::path_from(name).map(OsString::into)
}

const MKDTEMP: Way<Name, PathBuf> =
    Way::blocking(|template| make(template.as_path(), sys::make_private_dir).map(|(_, path)| path));

const MKSTEMP: Way<Name, (File, PathBuf)> = Way::blocking(|template| {
    let (file, path) = make(template.as_path(), sys::make_private_file)?;
    Ok((File::from(file), path))
});

/// Creates a directory that only this user can access. Its name is the template with its last six
/// `X` replaced by random characters (`mkdtemp(3)`). Returns its path.
///
/// ```
/// let template = std::env::temp_dir().join("example-XXXXXX");
/// let dir = uv_core::fs::mkdtemp(template).perform()?;
/// assert!(dir.is_dir());
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `InvalidInput` for a template without that suffix, and the system's errors.
#[doc(alias = "uv_fs_mkdtemp")]
pub fn mkdtemp(template: impl AsRef<Path>) -> Operation<Call<Name, PathBuf>> {
    Call::try_of(Name::new(template.as_ref()), &MKDTEMP)
}

/// Creates a file that only this user can access, opened for reading and writing, with a name as
/// for [`mkdtemp`] (`mkstemp(3)`). Returns the file and its path.
///
/// ```
/// let template = std::env::temp_dir().join("example-XXXXXX");
/// let (file, path) = uv_core::fs::mkstemp(template).perform()?;
/// # drop(file);
/// uv_core::fs::unlink(path).perform()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As for `mkdtemp`.
#[doc(alias = "uv_fs_mkstemp")]
pub fn mkstemp(template: impl AsRef<Path>) -> Operation<Call<Name, (File, PathBuf)>> {
    Call::try_of(Name::new(template.as_ref()), &MKSTEMP)
}
