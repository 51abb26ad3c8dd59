//! The smallest shared pieces: time, serial numbers, bitmaps, seeded randomness, checksums.
//!
//! Nothing here knows of packets, devices or channels. Everything is `no_std`, so that the
//! protocol core above it can be.

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod bitmap;
pub mod crc;
pub mod prng;
pub mod serial;
pub mod time;

pub use bitmap::WindowBitmap;
pub use prng::Prng;
pub use time::{Nanos, Time};
