//! Packets that are too short for a header and a tag.

use super::Refusal;
use crate::limits::{HEADER_BYTES, TAG_BYTES};

pub(super) const MEANING: &str =
    "a packet is too short for its header and tag: something on the way cuts packets";

/// A packet in its three parts.
pub(crate) struct Parts<'h, 'b> {
    pub(crate) header: &'h [u8; HEADER_BYTES],
    pub(crate) body: &'b mut [u8],
    pub(crate) tag: [u8; TAG_BYTES],
}

/// Cuts a packet into its parts; `body` has the tag at its end.
pub(crate) fn check<'h, 'b>(
    header: &'h [u8],
    body: &'b mut [u8],
) -> Result<Parts<'h, 'b>, Refusal> {
    let header = header.first_chunk().ok_or(Refusal::Truncated)?;
    let (body, tag) = body.split_last_chunk_mut().ok_or(Refusal::Truncated)?;
    Ok(Parts { header, body, tag: *tag })
}
