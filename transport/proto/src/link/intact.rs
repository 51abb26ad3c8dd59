//! Whether the body of a chunk is as it was sent, by its checksum.

use crate::config::LinkConfig;
use crate::event::PieceBuffers;
use crate::limits::PAGE_BYTES;
use towpath_base::crc::{Crc32c, crc32c, crc32c_then_page};

/// Pages of a body whose CRCs the driver is told of at a time: those of most chunks.
const PAGES_AT_A_TIME: usize = 16;

const _: () = assert!(PAGE_BYTES == towpath_base::crc::PAGE_BYTES);

#[cfg(not(feature = "sabotage"))]
fn skips_payload_crc(_: &LinkConfig) -> bool {
    false
}

#[cfg(feature = "sabotage")]
fn skips_payload_crc(config: &LinkConfig) -> bool {
    config.sabotage.skip_payload_crc
}

/// Whether a body has the checksum that its header tells, if it does.
#[inline]
pub(super) fn body_is_intact(
    config: &LinkConfig,
    crc: Option<u32>,
    body: &[u8],
    buffers: &mut dyn PieceBuffers,
) -> bool {
    crc.is_none_or(|crc| crc_of_body(body, buffers) == crc || skips_payload_crc(config))
}

/// CRC32C of a body, page by page: those of its pages go to the driver.
#[inline]
fn crc_of_body(body: &[u8], buffers: &mut dyn PieceBuffers) -> u32 {
    let (pages, rest) = body.as_chunks::<PAGE_BYTES>();
    if pages.is_empty() {
        return crc32c(rest);
    }
    let mut whole = 0;
    for some in pages.chunks(PAGES_AT_A_TIME) {
        let mut crcs = [0; PAGES_AT_A_TIME];
        for (page, crc) in some.iter().zip(&mut crcs) {
            *crc = crc32c(page);
            whole = crc32c_then_page(whole, *crc);
        }
        buffers.note_pages(&crcs[..some.len()]);
    }
    if rest.is_empty() {
        return whole;
    }
    let mut crc = Crc32c::resume(whole);
    crc.update(rest);
    crc.value()
}
