//! Log records, checkpoints and file headers of the chunk store.
//!
//! The first byte of an input says which checksums are made right first, so that inputs come past
//! them.

use crate::class;
use towpath_base::crc::crc32c;
use towpath_chunkserver::store::limits::CHAIN_MAX;
use towpath_chunkserver::store::old::{
    CheckpointError, FILE_HEADER_BYTES, FileHeader, FileKind, parse_checkpoint,
};
use towpath_chunkserver::store::{
    Body, LogKey, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordError, parse_frame, parse_record,
};

/// A record as it stands in a log, with whatever follows it.
pub(crate) fn record(input: &[u8]) -> u64 {
    let Some((&how, bytes)) = input.split_first() else { return 0 };
    let mut bytes = bytes.to_vec();
    seal_record(&mut bytes, how);
    let framed = parse_frame(&bytes, LogKey::PLAIN);
    match parse_record(&bytes, LogKey::PLAIN) {
        Ok((record, taken)) => {
            assert_eq!(framed, Some(record.frame), "a sound record has a sound frame");
            assert!(taken <= bytes.len() && taken.is_multiple_of(RECORD_ALIGN));
            match record.body {
                Body::Create { limit_bytes, kind } => {
                    let zeros = u64::from(limit_bytes.leading_zeros());
                    assert!(kind.chain <= CHAIN_MAX);
                    let chain = u64::from(kind.chain != 0);
                    class(&[1, zeros, kind.unfinished.into(), kind.resident.into(), chain])
                }
                Body::Chain { chain } => {
                    assert!((1..=CHAIN_MAX).contains(&chain));
                    class(&[7, u64::from(record.stamp != 0)])
                }
                Body::Finish => class(&[5]),
                Body::Write(write) => {
                    let slices = write.slices().count() as u64;
                    assert_eq!(slices, write.span().count(), "one slice for each that is touched");
                    let extents = write.extents().count() as u64;
                    assert!(extents <= slices, "no extent is empty");
                    class(&[2, slices.min(16), extents.min(16)])
                }
                Body::Clear(clear) => {
                    let puts = clear.puts().count() as u64;
                    class(&[6, puts, clear.count.min(4), u64::from(record.stamp != 0)])
                }
                Body::Delete => 3,
                Body::Seal | Body::Void => 4,
            }
        }
        Err(error) => {
            let kind = match error {
                RecordError::Short { .. } => 0,
                other => crate::fnv1a(other.to_string().bytes().filter(|b| !b.is_ascii_digit())),
            };
            class(&[5, u64::from(framed.is_some()), kind])
        }
    }
}

fn seal_record(bytes: &mut [u8], how: u8) {
    let Some((header, rest)) = bytes.split_first_chunk_mut::<RECORD_HEADER_BYTES>() else { return };
    if how & 1 != 0 {
        let len = u32::from_le_bytes([header[12], header[13], header[14], header[15]]) as usize;
        if let Some(body) = rest.get(..len) {
            header[8..12].copy_from_slice(&crc32c(body).to_le_bytes());
        }
    }
    if how & 2 != 0 {
        let crc = crc32c(&header[8..]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A checkpoint: the fields of its header page, then the body. The rest of the page is zeros.
pub(crate) fn checkpoint(input: &[u8]) -> u64 {
    const FIELDS_BYTES: usize = 64;
    let Some((&how, rest)) = input.split_first() else { return 0 };
    let Some((fields, body)) = rest.split_at_checked(FIELDS_BYTES) else { return 1 };
    let mut bytes = vec![0; FILE_HEADER_BYTES];
    bytes[..FIELDS_BYTES].copy_from_slice(fields);
    bytes.extend_from_slice(body);
    if how & 1 != 0 {
        bytes[36..40].copy_from_slice(&crc32c(body).to_le_bytes());
        bytes[56..64].copy_from_slice(&(body.len() as u64).to_le_bytes());
    }
    if how & 2 != 0 {
        bytes[12..16].fill(0);
        let crc = crc32c(&bytes[..FILE_HEADER_BYTES]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    for kind in [FileKind::Data, FileKind::Log, FileKind::Map] {
        if let Ok(header) = FileHeader::parse(kind, &bytes) {
            assert_eq!(header.emit()[..], bytes[..FILE_HEADER_BYTES], "a header is what it was");
        }
    }
    match parse_checkpoint(&bytes) {
        Ok(found) => class(&[2, found.header.chunk_count.min(64)]),
        Err(CheckpointError::Header(error)) => {
            class(&[3, crate::fnv1a(error.to_string().bytes().filter(|b| !b.is_ascii_digit()))])
        }
        Err(error) => {
            class(&[4, crate::fnv1a(error.to_string().bytes().filter(|b| !b.is_ascii_digit()))])
        }
    }
}
