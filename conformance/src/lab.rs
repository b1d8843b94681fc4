//! The factory of backends for cases.

use std::fmt;
use std::io;

use poll_core::{Backend, BoxedBackend};

/// A factory of backends for a case.
///
/// The backend's type is erased, so that a case is compiled once, in this crate, and not once per
/// backend. A case that needs the concrete type uses [`BoxedBackend::downcast_ref`].
pub struct Lab {
    new: Box<dyn Fn() -> io::Result<BoxedBackend> + Send + Sync>,
}

/// Why a case does not apply to a backend or cannot run on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(String);

/// The result of a case that does not panic.
pub type Verdict = Result<(), Skip>;

impl Lab {
    /// Creates a lab whose backends come from `new`.
    pub fn new<B: Backend>(new: impl Fn() -> io::Result<B> + Send + Sync + 'static) -> Lab {
        Lab { new: Box::new(move || new().map(BoxedBackend::new)) }
    }

    /// Creates a backend.
    ///
    /// # Errors
    ///
    /// A skip if the backend's constructor returns `Unsupported`.
    ///
    /// # Panics
    ///
    /// If the constructor fails with any other error.
    pub fn backend(&self) -> Result<BoxedBackend, Skip> {
        match (self.new)() {
            Ok(backend) => Ok(backend),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                Err(Skip::because(error.to_string()))
            }
            Err(error) => panic!("the backend cannot be created: {error}"),
        }
    }

    /// The constructor's result, for cases about its failure.
    pub fn try_backend(&self) -> io::Result<BoxedBackend> {
        (self.new)()
    }
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab").finish_non_exhaustive()
    }
}

impl Skip {
    /// Creates a skip with a short reason.
    pub fn because(reason: impl Into<String>) -> Skip {
        Skip(reason.into())
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.0
    }
}
