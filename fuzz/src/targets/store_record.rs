//! Records of the chunk store's log.
//!
//! The first byte of an input says which checksums are made right first, so that inputs come past
//! them.

use crate::class;
use towpath_base::crc::crc32c;
use towpath_chunkserver::store::limits::CHAIN_MAX;
use towpath_chunkserver::store::{
    Body, LogKey, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordError, parse_frame, parse_record,
};

/// A record as it stands in a log, with whatever follows it.
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((&how, bytes)) = input.split_first() else { return 0 };
    let mut bytes = bytes.to_vec();
    seal_record(&mut bytes, how);
    let key = LogKey::new(0);
    let framed = parse_frame(&bytes, key);
    match parse_record(&bytes, key) {
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
                Body::Seal | Body::Void { .. } => 4,
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
