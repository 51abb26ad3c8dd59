//! Chunk names and the place-bound checksum of a 4 KiB slice, which the wire has in common.

pub use towpath_fastpath::slice::{
    ChunkId, ParseChunkIdError, SLICE_BYTES, Span, fragment_crc, hole_crc, slice_crc, writer_crcs,
};
