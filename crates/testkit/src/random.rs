//! Random numbers that depend on their seed alone, so that what was made of them can be made again.

/// `SplitMix64`: small, and the same everywhere. The seed is its state.
#[derive(Debug, Clone)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        // The remainder is below `bound`, which is a u32.
        u32::try_from(self.number() % u64::from(bound.max(1))).unwrap_or(0)
    }

    /// From 0 to 1, without 1.
    pub fn fraction(&mut self) -> f64 {
        f64::from(self.below(1 << 24)) / f64::from(1_u32 << 24)
    }

    /// One of these, of which there is one at least.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        // The remainder is below a length.
        from[usize::try_from(self.number() % from.len() as u64).unwrap_or(0)]
    }
}
