//! Where a case gets its backends from.

use std::fmt;
use std::io;

use poll_core::Backend;

/// Makes backends for a case.
pub struct Lab<B> {
    new: Box<dyn Fn() -> io::Result<B> + Send + Sync>,
}

/// Why a case does not apply to a backend or cannot run on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(String);

/// How a case ends that does not panic.
pub type Verdict = Result<(), Skip>;

impl<B: Backend> Lab<B> {
    /// A lab whose backends come from `new`.
    pub fn new(new: impl Fn() -> io::Result<B> + Send + Sync + 'static) -> Lab<B> {
        Lab { new: Box::new(new) }
    }

    /// A fresh backend.
    ///
    /// # Errors
    ///
    /// A skip if the backend says that this machine cannot run it.
    ///
    /// # Panics
    ///
    /// If it cannot be made for any other reason.
    pub fn backend(&self) -> Result<B, Skip> {
        match (self.new)() {
            Ok(backend) => Ok(backend),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                Err(Skip::because(error.to_string()))
            }
            Err(error) => panic!("the backend cannot be made: {error}"),
        }
    }

    /// What making a backend returns, for cases about its failure.
    pub fn try_backend(&self) -> io::Result<B> {
        (self.new)()
    }
}

impl<B> fmt::Debug for Lab<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab").finish_non_exhaustive()
    }
}

impl Skip {
    /// A skip and its reason, in a few words.
    pub fn because(reason: impl Into<String>) -> Skip {
        Skip(reason.into())
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.0
    }
}
