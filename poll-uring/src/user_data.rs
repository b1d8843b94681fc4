//! What a completion is about: the 64 bits that the kernel hands back with it.
//!
//! An operation has its token, whose bit 63 is clear. With bit 63 set it is the
//! backend's own: a poll has the number of its slot, which is not given away
//! again before the poll's last completion, so that no completion can be taken
//! for that of a later poll.

use poll_core::Token;

const OURS: u64 = 1 << 63;
const BELL: u64 = OURS | 1 << 32;
const NOBODY: u64 = OURS | 2 << 32;

/// Who hears of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserData {
    /// An operation.
    Operation(Token),
    /// A poll, by its slot.
    Poll(u32),
    /// The poll of the waker's eventfd.
    Bell,
    /// A removal or a cancel: what it was aimed at completes by itself.
    Nobody,
}

impl UserData {
    pub(crate) const fn to_u64(self) -> u64 {
        match self {
            UserData::Operation(token) => token.to_u64(),
            UserData::Poll(slot) => OURS | slot as u64,
            UserData::Bell => BELL,
            UserData::Nobody => NOBODY,
        }
    }

    pub(crate) const fn from_u64(bits: u64) -> UserData {
        match bits {
            BELL => UserData::Bell,
            NOBODY => UserData::Nobody,
            _ if bits & OURS != 0 => UserData::Poll(bits as u32),
            _ => UserData::Operation(Token::from_u64(bits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_kernel() {
        let tokens = [Token::new(0, 0), Token::new(u32::MAX, Token::MAX_GENERATION)];
        let all = [UserData::Bell, UserData::Nobody, UserData::Poll(0), UserData::Poll(u32::MAX)];
        for user_data in all.into_iter().chain(tokens.map(UserData::Operation)) {
            assert_eq!(UserData::from_u64(user_data.to_u64()), user_data);
        }
    }

    #[test]
    fn no_two_are_alike() {
        let all = [
            UserData::Bell,
            UserData::Nobody,
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
