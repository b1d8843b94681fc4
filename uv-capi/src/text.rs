//! Conversions between UTF-16 and WTF-8, a superset of UTF-8 with single surrogates.

use std::ffi::{c_char, c_int};

use crate::alloc::allocate;

/// The code point at the start of a WTF-8 string and its length in bytes. The string ends with a
/// NUL, so no byte after it is read.
unsafe fn decode_wtf8(text: *const u8) -> Option<(u32, usize)> {
    let first = *text;
    let (length, mut point) = match first {
        0..=0x7f => return Some((first.into(), 1)),
        0xc2..=0xdf => (2, u32::from(first & 0x1f)),
        0xe0..=0xef => (3, u32::from(first & 0x0f)),
        0xf0..=0xf4 => (4, u32::from(first & 0x07)),
        _ => return None,
    };
    for index in 1..length {
        let next = *text.add(index);
        if next & 0xc0 != 0x80 {
            return None;
        }
        point = (point << 6) | u32::from(next & 0x3f);
    }
    (point <= 0x10_ffff).then_some((point, length))
}

/// The number of UTF-16 units of a WTF-8 string with its NUL, or `UV_EINVAL`.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_wtf8_length_as_utf16(text: *const c_char) -> isize {
    let (mut next, mut units) = (text.cast::<u8>(), 0);
    loop {
        let Some((point, length)) = decode_wtf8(next) else { return -(libc::EINVAL as isize) };
        units += if point > 0xffff { 2 } else { 1 };
        if point == 0 {
            return units;
        }
        next = next.add(length);
    }
}

/// Converts a string that `uv_wtf8_length_as_utf16` has accepted.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_wtf8_to_utf16(text: *const c_char, units: *mut u16, count: usize) {
    let (mut next, mut written) = (text.cast::<u8>(), 0);
    while written < count {
        let Some((point, length)) = decode_wtf8(next) else { return };
        let mut pair = [0; 2];
        let encoded: &[u16] = if point > 0xffff {
            pair = [0xd800 | ((point - 0x10000) >> 10) as u16, 0xdc00 | (point & 0x3ff) as u16];
            &pair
        } else {
            pair[0] = point as u16;
            &pair[..1]
        };
        for &unit in encoded.iter().take(count - written) {
            *units.add(written) = unit;
            written += 1;
        }
        if point == 0 {
            return;
        }
        next = next.add(length);
    }
}

/// The code points of UTF-16 text. With a negative length, the text ends with a NUL.
struct Points {
    next: *const u16,
    left: isize,
}

impl Points {
    /// # Safety
    ///
    /// The text must be valid for its length, or up to its NUL.
    unsafe fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        let first = u32::from(*self.next);
        if self.left < 0 && first == 0 {
            return None;
        }
        self.advance();
        if (0xd800..0xdc00).contains(&first) && self.left != 0 {
            let second = u32::from(*self.next);
            if (0xdc00..0xe000).contains(&second) {
                self.advance();
                return Some(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
            }
        }
        Some(first)
    }

    unsafe fn advance(&mut self) {
        self.next = self.next.add(1);
        if self.left > 0 {
            self.left -= 1;
        }
    }
}

fn encode_wtf8(point: u32, bytes: &mut [u8; 4]) -> &[u8] {
    let tail = |shift: u32| 0x80 | (point >> shift) as u8 & 0x3f;
    let (encoded, length) = match point {
        0..=0x7f => ([point as u8, 0, 0, 0], 1),
        0x80..=0x7ff => ([0xc0 | (point >> 6) as u8, tail(0), 0, 0], 2),
        0x800..=0xffff => ([0xe0 | (point >> 12) as u8, tail(6), tail(0), 0], 3),
        _ => ([0xf0 | (point >> 18) as u8, tail(12), tail(6), tail(0)], 4),
    };
    *bytes = encoded;
    &bytes[..length]
}

/// The length of UTF-16 text in WTF-8, without a NUL.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_utf16_length_as_wtf8(units: *const u16, count: isize) -> usize {
    let (mut points, mut length) = (Points { next: units, left: count }, 0);
    while let Some(point) = points.next() {
        length += encode_wtf8(point, &mut [0; 4]).len();
    }
    length
}

/// Converts into the caller's memory, or into new memory if `*target` is null. If the caller's is
/// too small, what fits is written, and `*target_length` becomes what is needed.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_utf16_to_wtf8(
    units: *const u16,
    count: isize,
    target: *mut *mut c_char,
    target_length: *mut usize,
) -> c_int {
    let needed = uv_utf16_length_as_wtf8(units, count);
    let is_given = !target.is_null() && !(*target).is_null();
    let room = if is_given { *target_length } else { needed };
    if !target_length.is_null() {
        *target_length = needed;
    }
    if target.is_null() {
        return 0;
    }
    if !is_given {
        *target = allocate(needed + 1).cast();
        if (*target).is_null() {
            return -libc::ENOMEM;
        }
    }
    let (mut points, mut written) = (Points { next: units, left: count }, 0);
    while let Some(point) = points.next() {
        for &byte in encode_wtf8(point, &mut [0; 4]) {
            if written < room {
                *(*target).add(written) = byte as c_char;
                written += 1;
            }
        }
    }
    *(*target).add(written) = 0;
    if needed > room { -libc::ENOBUFS } else { 0 }
}
