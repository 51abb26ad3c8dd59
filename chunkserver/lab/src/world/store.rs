//! The records that clients read: each says at both ends which one it is.

use super::plan::RECORD_BYTES;
use towpath_transport::{MemoryError, SharedMemory};

/// How many there are: 4 MiB. The paper's store holds a million; a device finds each of them in
/// the same way, and these stay in the cache of the machine that simulates.
pub(super) const RECORDS: u64 = 1_024;

const WORD_BYTES: usize = 8;

/// The memory with all records.
pub(super) fn filled() -> Result<SharedMemory, MemoryError> {
    let memory = SharedMemory::new(RECORDS as usize * RECORD_BYTES)?;
    for record in 0..RECORDS {
        memory.write(record as usize * RECORD_BYTES, &bytes_of(record))?;
    }
    Ok(memory)
}

/// A record.
pub(super) fn bytes_of(record: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [record as u8; RECORD_BYTES];
    let word = mark(record).to_le_bytes();
    bytes[..WORD_BYTES].copy_from_slice(&word);
    bytes[RECORD_BYTES - WORD_BYTES..].copy_from_slice(&word);
    bytes
}

/// Whether bytes are a record, whole.
pub(super) fn is_record(bytes: &[u8], record: u64) -> bool {
    let word = mark(record).to_le_bytes();
    bytes.len() == RECORD_BYTES && bytes.starts_with(&word) && bytes.ends_with(&word)
}

fn mark(record: u64) -> u64 {
    (record + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
