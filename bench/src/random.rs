//! Numbers that look random, and are the same in every run and on every machine.

/// What all of them are drawn from.
pub const SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// Marsaglia's generator with shifts of 13, 7 and 17.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of `series`, which differ from those of another.
    pub(crate) fn new(series: u64) -> Random {
        // Zero would stay zero.
        Random((SEED ^ series.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Puts things into another order, each as likely as any other.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, (self.draw() % (last as u64 + 1)) as usize);
        }
    }
}
