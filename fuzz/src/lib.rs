//! Fuzz targets as plain functions, and the driver that runs them.
//!
//! A target takes bytes and returns the class of the outcome: a number that distinguishes the ways
//! in which the input was accepted or refused (which error, which opcode, how many items on a log
//! scale). The driver keeps each input that reaches a new class, so finer classes make it search
//! deeper; [`class`] combines several values into one. A target panics when a property does not
//! hold, and its result must depend on nothing but its input.
//!
//! To add a target, add a file in `targets/`, a line in [`targets()`], and a few valid inputs in
//! `seeds/<name>/`. Commit each input that once failed there, under the name of its bug.

#![forbid(unsafe_code)]

pub mod drive;
mod input;
pub mod mutate;
#[cfg(test)]
mod seeds;
mod targets;

pub use targets::targets;

/// A named function under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line and of the folder with its seeds.
    pub name: &'static str,
    /// Runs one input; returns the class of its outcome; panics when a property is broken.
    pub run: fn(&[u8]) -> u64,
}

/// Folds values into one class (FNV-1a over their bytes).
#[must_use]
pub fn class(values: &[u64]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    fnv1a(bytes)
}

/// The FNV-1a hash of some bytes: names artifacts, folds classes.
#[must_use]
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.into_iter().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
