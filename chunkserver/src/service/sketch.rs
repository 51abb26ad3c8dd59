//! Sketches of slices that were read: four bytes of each, for whoever compares parts of a stripe.

use towpath_ec::Sketch;
use towpath_fastpath::ErrorReply;
use towpath_fastpath::digest::SketchReply;

use super::answer::Answer;
use super::errors::of_read;
use crate::store::{ChunkId, ReadDone, ReadError, SLICE_BYTES};

/// The answer with the sketches of what the store has read.
pub(super) fn sketched(
    chunk: ChunkId,
    seed: u64,
    result: Result<ReadDone, ReadError>,
    bytes: &[u8],
) -> Answer {
    match result {
        Ok(ReadDone { unfinished: true, .. }) => Answer::Error(ErrorReply::Unfinished { chunk }),
        Ok(ReadDone { version, chunk_bytes: byte_len, .. }) => {
            let sketch = Sketch::new(seed);
            // No piece is longer than a slice.
            let sketches = bytes.chunks(SLICE_BYTES).filter_map(|slice| sketch.of(slice).ok());
            let sketches = sketches.map(u32::from_le_bytes).collect();
            Answer::Sketch(SketchReply { version, byte_len, sketches })
        }
        Err(error) => Answer::Error(of_read(chunk, error)),
    }
}
