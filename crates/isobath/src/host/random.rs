//! Randomness.

use std::hash::{BuildHasher, Hasher};

/// A source of random bits. They are used only for identities and are not fit for secrets.
pub trait Random: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Bits from the standard library's randomly keyed hasher, which the system seeds.
#[derive(Debug)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        std::hash::RandomState::new().build_hasher().finish()
    }
}
