//! `user_data`: the 64 bits that the kernel copies from an entry to its completions.
//!
//! An operation has its token, whose bit 63 is clear. Bit 63 marks the backend's own entries. A
//! poll has the number of its slot. The slot is free again only after the poll's last completion,
//! so no completion can be attributed to a later poll.

use poll_core::Token;

const INTERNAL: u64 = 1 << 63;
const WAKER: u64 = INTERNAL | 1 << 32;
const IGNORED: u64 = INTERNAL | 2 << 32;

/// The subject of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserData {
    /// An operation.
    Operation(Token),
    /// A poll, by its slot.
    Poll(u32),
    /// The poll of the waker's eventfd.
    Waker,
    /// A removal or a cancel: its target has a completion of its own.
    Ignored,
}

impl UserData {
    pub(crate) const fn to_u64(self) -> u64 {
        match self {
            UserData::Operation(token) => token.to_u64(),
            UserData::Poll(slot) => INTERNAL | slot as u64,
            UserData::Waker => WAKER,
            UserData::Ignored => IGNORED,
        }
    }

    pub(crate) const fn from_u64(bits: u64) -> UserData {
        match bits {
            WAKER => UserData::Waker,
            IGNORED => UserData::Ignored,
            _ if bits & INTERNAL != 0 => UserData::Poll(bits as u32),
            _ => UserData::Operation(Token::from_u64(bits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_round_trips() {
        let tokens = [Token::new(0, 0), Token::new(u32::MAX, Token::MAX_GENERATION)];
        let all = [UserData::Waker, UserData::Ignored, UserData::Poll(0), UserData::Poll(u32::MAX)];
        for user_data in all.into_iter().chain(tokens.map(UserData::Operation)) {
            assert_eq!(UserData::from_u64(user_data.to_u64()), user_data);
        }
    }

    #[test]
    fn encodings_are_distinct() {
        let all = [
            UserData::Waker,
            UserData::Ignored,
            UserData::Poll(1),
            UserData::Poll(2),
            UserData::Operation(Token::new(1, 0)),
            UserData::Operation(Token::new(0, 1)),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|other| other.to_u64() != one.to_u64()));
        }
    }
}
