//! The registrations of a backend, by token and by source.

use std::io;

use crate::{RawSource, Table, Token};

/// The registrations of a backend, each a source and the backend's own state.
///
/// It returns the errors of point 7 of the contract: `AlreadyExists` for a token or a
/// source that is registered, `NotFound` for an unknown or stale token.
///
/// ```
/// use std::io::ErrorKind;
/// use poll_core::{RawSource, Registry, Token};
///
/// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
/// let source = RawSource::of(&socket);
/// let mut registry = Registry::default();
/// registry.insert(Token::new(0, 0), source, "state")?;
///
/// let twice = registry.insert(Token::new(1, 0), source, "other");
/// assert_eq!(twice.unwrap_err().kind(), ErrorKind::AlreadyExists);
/// assert_eq!(registry.token_of(source), Some(Token::new(0, 0)));
/// assert_eq!(registry.remove(Token::new(0, 0))?, (source, "state"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Registry<T> {
    entries: Table<(RawSource, T)>,
    by_source: BySource,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry { entries: Table::default(), by_source: BySource::default() }
    }
}

impl<T> Registry<T> {
    /// Adds a registration and borrows its state.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the token's index or the source is taken;
    /// `InvalidInput` if the source is a negative descriptor.
    pub fn insert(&mut self, token: Token, source: RawSource, state: T) -> io::Result<&mut T> {
        if self.by_source.get(source)?.is_some() {
            return Err(already_exists("this source is registered already: deregister it first"));
        }
        if self.entries.insert(token, (source, state)).is_err() {
            return Err(already_exists("this token is registered already: deregister it first"));
        }
        self.by_source.set(source, Some(token));
        self.get_mut(token)
    }

    /// The state of a registration.
    ///
    /// # Errors
    ///
    /// `NotFound` if the token is unknown or stale.
    pub fn get_mut(&mut self, token: Token) -> io::Result<&mut T> {
        self.entry_mut(token).map(|(_, state)| state)
    }

    /// The source and the state of a registration; `None` if the token is unknown or stale.
    /// For events of the kernel, where a stale token is expected: no error is built.
    #[inline]
    pub fn find(&mut self, token: Token) -> Option<(RawSource, &mut T)> {
        self.entries.get_mut(token).map(|(source, state)| (*source, state))
    }

    /// The source and the state of a registration.
    ///
    /// # Errors
    ///
    /// `NotFound` if the token is unknown or stale.
    pub fn entry_mut(&mut self, token: Token) -> io::Result<(RawSource, &mut T)> {
        self.find(token).ok_or_else(not_found)
    }

    /// Removes a registration.
    ///
    /// # Errors
    ///
    /// `NotFound` if the token is unknown or stale.
    pub fn remove(&mut self, token: Token) -> io::Result<(RawSource, T)> {
        let (source, state) = self.entries.remove(token).ok_or_else(not_found)?;
        self.by_source.set(source, None);
        Ok((source, state))
    }

    /// The token that `source` is registered under.
    pub fn token_of(&self, source: RawSource) -> Option<Token> {
        self.by_source.get(source).ok().flatten()
    }

    /// How many sources are registered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing is registered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every registration, by token index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Token, RawSource, &mut T)> {
        self.entries.iter_mut().map(|(token, (source, state))| (token, *source, state))
    }
}

fn already_exists(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

fn not_found() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no such registration: the token is unknown or stale")
}

/// Tokens by descriptor, in an array: descriptors are small and dense. A hash map takes the few
/// large ones (a caller's mistake, or `dup2`), so that the array stays small.
#[cfg(unix)]
#[derive(Debug, Default)]
struct BySource {
    dense: Vec<Option<Token>>,
    high: std::collections::HashMap<usize, Token>,
}

/// The default maximum of descriptors for a process on Linux (`fs.nr_open`).
#[cfg(unix)]
const DENSE: usize = 1 << 20;

#[cfg(unix)]
impl BySource {
    fn get(&self, source: RawSource) -> io::Result<Option<Token>> {
        let fd = usize::try_from(source.fd()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "a descriptor cannot be negative")
        })?;
        if fd >= DENSE {
            return Ok(self.high.get(&fd).copied());
        }
        Ok(self.dense.get(fd).copied().flatten())
    }

    fn set(&mut self, source: RawSource, token: Option<Token>) {
        let fd = source.fd() as usize;
        match token {
            Some(token) if fd >= DENSE => drop(self.high.insert(fd, token)),
            None if fd >= DENSE => drop(self.high.remove(&fd)),
            _ => {
                if fd >= self.dense.len() {
                    self.dense.resize(fd + 1, None);
                }
                self.dense[fd] = token;
            }
        }
    }
}

/// Tokens by socket or handle, in a hash map: their values are sparse.
#[cfg(windows)]
#[derive(Debug, Default)]
struct BySource(std::collections::HashMap<RawSource, Token>);

#[cfg(windows)]
impl BySource {
    fn get(&self, source: RawSource) -> io::Result<Option<Token>> {
        Ok(self.0.get(&source).copied())
    }

    fn set(&mut self, source: RawSource, token: Option<Token>) {
        match token {
            Some(token) => self.0.insert(source, token),
            None => self.0.remove(&source),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    fn source(number: i32) -> RawSource {
        RawSource::from_fd(number)
    }

    #[cfg(windows)]
    fn source(number: u64) -> RawSource {
        RawSource::from_socket(number)
    }

    #[test]
    fn a_refused_registration_changes_nothing() {
        let mut registry = Registry::default();
        registry.insert(Token::new(0, 0), source(8), 'a').unwrap();

        let same_source = registry.insert(Token::new(1, 0), source(8), 'b').unwrap_err();
        assert_eq!(same_source.kind(), io::ErrorKind::AlreadyExists);
        let same_token = registry.insert(Token::new(0, 3), source(12), 'c').unwrap_err();
        assert_eq!(same_token.kind(), io::ErrorKind::AlreadyExists);

        assert_eq!(registry.len(), 1);
        assert_eq!(registry.token_of(source(12)), None);
        assert_eq!(*registry.get_mut(Token::new(0, 0)).unwrap(), 'a');
    }

    #[test]
    fn a_removed_source_can_be_registered_again() {
        let mut registry = Registry::default();
        let token = Token::new(0, 0);
        registry.insert(token, source(8), 'a').unwrap();
        assert_eq!(registry.remove(token).unwrap(), (source(8), 'a'));
        assert_eq!(registry.remove(token).unwrap_err().kind(), io::ErrorKind::NotFound);
        registry.insert(token.next(), source(8), 'b').unwrap();
        assert_eq!(registry.token_of(source(8)), Some(token.next()));
        assert!(registry.get_mut(token).is_err());
        assert_eq!(registry.iter_mut().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_negative_descriptor_is_invalid() {
        let mut registry = Registry::default();
        let error = registry.insert(Token::new(0, 0), source(-1), ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(registry.is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_large_descriptor_does_not_grow_the_array() {
        let mut registry = Registry::default();
        let (token, large) = (Token::new(0, 0), source(i32::MAX));
        registry.insert(token, large, ()).unwrap();
        assert_eq!(registry.token_of(large), Some(token));
        assert_eq!(registry.by_source.dense.len(), 0);
        registry.remove(token).unwrap();
        assert_eq!(registry.token_of(large), None);
    }
}
