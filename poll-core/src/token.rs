//! Tokens: the names of registrations and of operations in flight.

use std::fmt;
use std::num::NonZeroU64;

/// Names one registration, or one operation in flight. Chosen by the caller.
///
/// The index is small and dense, so that a backend can keep its state in a
/// `Vec` (see [`Table`](crate::Table)). The generation distinguishes the uses of
/// one index: a caller that frees an index and reuses it takes
/// [`Token::next`], and calls with the old token fail with `NotFound`.
///
/// Registrations and operations are two name spaces: one token may name a
/// registration and, at the same time, an operation.
///
/// ```
/// use poll_core::Token;
///
/// let first = Token::new(7, 0);
/// let second = first.next();
/// assert_eq!(second.index(), first.index());
/// assert_ne!(second, first);
/// assert_eq!(Token::from_u64(second.to_u64()), second);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(NonZeroU64);

/// Set in memory and clear in the packed form: the niche makes an `Option` as small as a token.
const TOKEN: u64 = 1 << 63;

impl Token {
    /// The largest generation: 31 bits, so that bit 63 of the packed form stays free.
    pub const MAX_GENERATION: u32 = 0x7fff_ffff;

    /// A token for slot `index`. Only the low 31 bits of `generation` count.
    #[inline]
    pub const fn new(index: u32, generation: u32) -> Token {
        Token::from_u64(((generation & Self::MAX_GENERATION) as u64) << 32 | index as u64)
    }

    /// The dense slot number.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0.get() as u32
    }

    /// The number of earlier uses of the slot, modulo 2³¹.
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.to_u64() >> 32) as u32
    }

    /// The token for the next use of the same slot.
    #[inline]
    #[must_use = "the token itself is not changed"]
    pub const fn next(self) -> Token {
        Token::new(self.index(), self.generation().wrapping_add(1))
    }

    /// Packs the token into kernel user data. Bit 63 is always clear: a backend
    /// may use it to mark its own entries.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        self.0.get() & !TOKEN
    }

    /// Reverses [`Token::to_u64`], ignoring bit 63.
    #[inline]
    pub const fn from_u64(bits: u64) -> Token {
        match NonZeroU64::new(bits | TOKEN) {
            Some(bits) => Token(bits),
            None => unreachable!(),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}.{})", self.index(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packed_form_leaves_bit_63_free() {
        let token = Token::new(u32::MAX, u32::MAX);
        assert_eq!(token.to_u64() >> 63, 0);
        assert_eq!(Token::from_u64(token.to_u64() | 1 << 63), token);
    }

    #[test]
    fn an_option_is_as_small_as_a_token() {
        assert_eq!(size_of::<Option<Token>>(), size_of::<Token>());
    }

    #[test]
    fn generations_wrap_around() {
        let last = Token::new(3, Token::MAX_GENERATION);
        assert_eq!(last.next(), Token::new(3, 0));
    }
}
