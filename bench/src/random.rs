//! A deterministic pseudo-random generator.

/// The seed.
pub const SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// Marsaglia's xorshift64 with shifts of 13, 7 and 17.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of `series`; each series has different numbers.
    pub(crate) fn new(series: u64) -> Random {
        // A state of zero would never change.
        Random((SEED ^ series.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Shuffles a slice uniformly.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, (self.draw() % (last as u64 + 1)) as usize);
        }
    }
}
