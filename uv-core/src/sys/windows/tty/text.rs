//! Incremental conversion between UTF-8 of streams and UTF-16 of consoles.

use std::io;

/// The maximum number of units of one write: consoles reject more than a few thousand.
const UNITS: usize = 2048;

/// The replacement for invalid input.
const UNKNOWN: char = char::REPLACEMENT_CHARACTER;

/// Converts UTF-8 to UTF-16, and keeps the bytes of an incomplete character.
#[derive(Debug, Default)]
pub(super) struct ToUtf16 {
    partial: [u8; 4],
    length: usize,
}

impl ToUtf16 {
    /// Calls `emit` with the units for `bytes`.
    pub(super) fn convert(
        &mut self,
        mut bytes: &[u8],
        mut emit: impl FnMut(&[u16]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut units = Units { units: [0; UNITS], count: 0 };
        while self.length > 0
            && let Some((&first, rest)) = bytes.split_first()
        {
            self.partial[self.length] = first;
            match str::from_utf8(&self.partial[..=self.length]) {
                Ok(text) => {
                    self.length = 0;
                    text.chars().try_for_each(|character| units.push(character, &mut emit))?;
                }
                Err(error) if error.error_len().is_none() => self.length += 1,
                Err(_) => {
                    // The kept bytes are invalid; this byte may start another character.
                    self.length = 0;
                    units.push(UNKNOWN, &mut emit)?;
                    continue;
                }
            }
            bytes = rest;
        }
        for chunk in bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                units.push(character, &mut emit)?;
            }
            let invalid = chunk.invalid();
            match str::from_utf8(invalid) {
                Ok(_) => {} // No invalid bytes.
                Err(error) if error.error_len().is_none() => {
                    self.partial[..invalid.len()].copy_from_slice(invalid);
                    self.length = invalid.len();
                }
                Err(_) => units.push(UNKNOWN, &mut emit)?,
            }
        }
        units.flush(&mut emit)
    }
}

/// Buffered units that were not emitted yet.
struct Units {
    units: [u16; UNITS],
    count: usize,
}

impl Units {
    fn push(
        &mut self,
        character: char,
        emit: &mut impl FnMut(&[u16]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.count + 2 > UNITS {
            self.flush(emit)?;
        }
        self.count += character.encode_utf16(&mut self.units[self.count..]).len();
        Ok(())
    }

    fn flush(&mut self, emit: &mut impl FnMut(&[u16]) -> io::Result<()>) -> io::Result<()> {
        let count = std::mem::take(&mut self.count);
        if count == 0 { Ok(()) } else { emit(&self.units[..count]) }
    }
}

/// Converts UTF-16 to UTF-8, and keeps the first half of a surrogate pair.
#[derive(Debug, Default)]
pub(super) struct ToUtf8 {
    half: Option<u16>,
}

impl ToUtf8 {
    /// Appends the bytes for `units` to `text`.
    pub(super) fn convert(&mut self, units: &[u16], text: &mut String) {
        let (mut units, mut last) = (units, None);
        if let Some((&unit, rest)) = units.split_last()
            && (0xD800..0xDC00).contains(&unit)
        {
            (units, last) = (rest, Some(unit));
        }
        let all = self.half.take().into_iter().chain(units.iter().copied());
        text.extend(char::decode_utf16(all).map(|decoded| decoded.unwrap_or(UNKNOWN)));
        self.half = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(pieces: &[&[u8]]) -> String {
        let (mut converter, mut all) = (ToUtf16::default(), Vec::new());
        for piece in pieces {
            let emit = |units: &[u16]| {
                all.extend_from_slice(units);
                Ok(())
            };
            converter.convert(piece, emit).unwrap();
        }
        String::from_utf16(&all).unwrap()
    }

    #[test]
    fn characters_may_come_in_pieces() {
        let text = "a ä € 😀 z".repeat(1000);
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(utf16(&bytes), text);
        assert_eq!(utf16(&[text.as_bytes()]), text);
        let thirds: Vec<&[u8]> = text.as_bytes().chunks(3).collect();
        assert_eq!(utf16(&thirds), text);
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        assert_eq!(utf16(&[b"a\xFFb"]), "a\u{FFFD}b");
        assert_eq!(utf16(&[b"a\xE2\x82", b"b"]), "a\u{FFFD}b");
        assert_eq!(utf16(&[b"\xF0\x9F", "😀".as_bytes()]), "\u{FFFD}😀");
    }

    #[test]
    fn pairs_may_come_in_halves() {
        let (mut converter, mut text) = (ToUtf8::default(), String::new());
        let units: Vec<u16> = "x😀y".encode_utf16().collect();
        units.chunks(1).for_each(|unit| converter.convert(unit, &mut text));
        assert_eq!(text, "x😀y");
        converter.convert(&units[1..2], &mut text);
        converter.convert(&units[..1], &mut text);
        assert_eq!(text, "x😀y\u{FFFD}x");
    }
}
