//! Erasure coding of stripes, as pure functions of bytes: `k` data shards, `m` parity shards, and
//! any `k` of them give the others back.
//!
//! A shard is a column of bytes: what happens to the byte at one place of all shards does not
//! depend on other places. So everything here takes ranges of shards, of any length, in buffers of
//! the caller, and ranges may be cut and put in any order. After a [`Code`], a [`Decoder`], a
//! [`Factor`] or a [`Sketch`] is made, nothing allocates.
//!
//! The code is systematic, over GF(2^8), with a Cauchy matrix; it is a format on disk, and
//! `docs/erasure-coding.md` writes it down.
//!
//! ```
//! use towpath_ec::{Code, Decoder, Shape, ShardSet};
//!
//! let code = Code::new(Shape::new(2, 1)?);
//! let (first, second, mut parity) = (*b"what is ", *b"written.", [0; 8]);
//! code.encode(&[&first, &second], &mut [&mut parity])?;
//!
//! // The first one is lost.
//! let present = ShardSet::from_iter([1, 2]);
//! let decoder = Decoder::new(&code, present, ShardSet::from_iter([0]))?;
//! let mut read = [0; 8];
//! decoder.decode(&[&second, &parity], &mut [&mut read])?;
//! assert_eq!(read, first);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what is there |
//! |---|---|
//! | `shape` | how many shards, and sets of them |
//! | `code` | parity of data: whole, by contributions, of changes; whether it is right |
//! | `decode` | shards from `k` others |
//! | `factor` | one coefficient, for a repair that goes from server to server |
//! | `sum` | what is added up, and the CRC of a sum |
//! | `sketch` | four bytes of a slice by which parity is checked |
//! | `linear` | a matrix times shards, for all of these |
//! | `buffers` | what is asked of the buffers of a call |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod buffers;
mod code;
mod decode;
mod factor;
mod linear;
mod shape;
mod sketch;
#[cfg(test)]
mod stripes;
mod sum;

pub use buffers::BufferError;
pub use code::Code;
pub use decode::{Decoder, DecoderError};
pub use factor::Factor;
pub use shape::{SHARDS_MAX, Shape, ShapeError, ShardSet};
pub use sketch::{SKETCH_BYTES, SKETCHED_BYTES_MAX, Sketch, SketchError};
pub use sum::{add, crc_of_sum};
