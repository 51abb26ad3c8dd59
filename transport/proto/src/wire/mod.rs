//! Headers, acks and the set-up message as bytes: parsed once into checked values.

mod ack;
mod app;
mod chunk;
mod frames;
mod hello;
mod lane;
mod refusal;

pub use ack::{Ack, AckError, AckFrame};
pub(crate) use ack::{HOLD_UNKNOWN, KIND_ACK};
pub use app::{AppProtocol, AppProtocolError};
pub use chunk::{ChunkFlags, ChunkHeader, HeaderError, Kind};
pub use frames::{BodyError, Frame, FrameTable, body_bytes, emit_table, place};
pub use hello::{Hello, HelloError, HelloPath, HelloSeal, PREFIX_BYTES, SETUP_VERSION, Welcome};
pub use lane::{
    LANE_ANSWER_BYTES, LANE_PIECE_BYTES, LANE_REQUEST_BYTES, LaneAnswer, LaneMessageError,
    LaneRequest,
};
pub use refusal::Refusal;

use crate::limits::HEADER_BYTES;
use towpath_base::crc::{crc32c, crc32c_of_60};

/// The version of headers and acks of this build (docs/protocol.md).
pub const VERSION: u8 = 4;

/// Reads little-endian fields at fixed offsets of a slice whose length was checked.
macro_rules! field {
    ($bytes:expr, $at:expr, $int:ty) => {{
        // Not by `copy_from_slice`, which stays a call for each field.
        <$int>::from_le_bytes(*$bytes[$at..].first_chunk().expect("the length was checked"))
    }};
}
pub(crate) use field;

/// Writes a little-endian field at a fixed offset.
macro_rules! put {
    ($bytes:expr, $at:expr, $value:expr) => {{
        let le = $value.to_le_bytes();
        *$bytes[$at..].first_chunk_mut().expect("there is room for all fields") = le;
    }};
}
pub(crate) use put;

/// A header of 64 bytes: its struct, and how each field is read and written, from one list of the
/// fields and the bytes at which they begin. The fields in brackets are read and written apart.
macro_rules! header {
    ($(#[$doc:meta])* $name:ident [$($(#[$of_own:meta])* $own:ident: $own_type:ty,)*] {
        $($(#[$of:meta])* $at:literal => $field:ident: $type:ty,)+
    }) => {
        $(#[$doc])*
        pub struct $name {
            $($(#[$of_own])* pub $own: $own_type,)*
            $($(#[$of])* pub $field: $type,)+
        }

        impl $name {
            #[inline(always)]
            fn read(bytes: &[u8; HEADER_BYTES], $($own: $own_type),*) -> Self {
                Self { $($own,)* $($field: field!(bytes, $at, $type),)+ }
            }

            #[inline(always)]
            fn words(&self) -> [u64; 8] {
                let mut words = [0; 8];
                $(words[$at / 8] |= u64::from(self.$field) << ($at % 8 * 8);)+
                words
            }
        }
    };
}
pub(crate) use header;

/// Writes the words of a header but for the last half of the last, which is the checksum.
///
/// In whole words: the checksum reads words, and would have to wait for each that was just written
/// in pieces until it has left the store buffer.
fn seal(bytes: &mut [u8; HEADER_BYTES], words: [u64; 8]) {
    let (places, _) = bytes.as_chunks_mut::<8>();
    for (place, word) in places.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    let crc = crc32c_of_60(bytes);
    put!(bytes, 60, crc);
}

/// Puts into the header of a chunk or ack the checksums that it has where nothing is sealed, for
/// one that came sealed and was opened: a seal takes their place on the wire
/// (docs/secure-links.md section 5). Chunks tell no checksum of their bodies then.
pub fn put_checksums(header: &mut [u8; HEADER_BYTES], body: &[u8]) {
    put!(header, 56, if header[1] == KIND_ACK { crc32c(body) } else { 0 });
    let crc = crc32c_of_60(header);
    put!(header, 60, crc);
}

/// Whether the checksum of a header matches.
fn is_sealed(bytes: &[u8; HEADER_BYTES]) -> bool {
    crc32c_of_60(bytes) == field!(bytes, 60, u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::crc::crc32c;

    #[test]
    fn a_header_is_sealed_by_the_checksum_of_its_first_60_bytes_and_by_nothing_else() {
        let mut prng = towpath_base::Prng::new(1);
        for _ in 0..1_000 {
            let mut bytes = [0; HEADER_BYTES];
            prng.fill(&mut bytes);
            let crc = crc32c(&bytes[..60]);
            assert_eq!(is_sealed(&bytes), field!(bytes, 60, u32) == crc);
            put!(bytes, 60, crc);
            assert!(is_sealed(&bytes));
            let bit = prng.below(HEADER_BYTES as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_sealed(&bytes), "bit {bit} of {bytes:?}");
        }
    }
}
