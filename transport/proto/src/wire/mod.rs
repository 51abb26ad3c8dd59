//! Headers, acks and the set-up message as bytes: parsed once into checked values.

mod ack;
mod chunk;
mod hello;

pub use ack::{Ack, AckError, AckFrame};
pub use chunk::{ChunkFlags, ChunkHeader, HeaderError, Kind};
pub use hello::{Hello, HelloError, HelloPath, PREFIX_BYTES, Refusal, Welcome};

/// The protocol version of this build (docs/protocol.md).
pub const VERSION: u8 = 1;

/// Reads little-endian fields at fixed offsets of a slice whose length was checked.
macro_rules! field {
    ($bytes:expr, $at:expr, $int:ty) => {{
        let mut le = [0u8; size_of::<$int>()];
        le.copy_from_slice(&$bytes[$at..$at + size_of::<$int>()]);
        <$int>::from_le_bytes(le)
    }};
}
pub(crate) use field;

/// Writes a little-endian field at a fixed offset.
macro_rules! put {
    ($bytes:expr, $at:expr, $value:expr) => {{
        let le = $value.to_le_bytes();
        $bytes[$at..$at + le.len()].copy_from_slice(&le);
    }};
}
pub(crate) use put;
