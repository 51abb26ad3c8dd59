//! Basic types that all other crates share: time, serial numbers, bitmaps, seeded randomness,
//! checksums.
//!
//! Nothing here depends on packets, devices or channels. The crate is `no_std`, because the
//! protocol core that uses it is.

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod bitmap;
pub mod crc;
pub mod passes;
pub mod prng;
pub mod serial;
pub mod share;
pub mod time;

pub use bitmap::WindowBitmap;
pub use prng::Prng;
pub use time::{Nanos, Time};
