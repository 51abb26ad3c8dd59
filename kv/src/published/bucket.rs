//! A bucket as bytes.
//!
//! ```text
//! bucket  0 version (u64, odd: closed)  8 CRC-32C of all but itself (u32)  12 zero (u32)  16 slots
//! slot    0 length of the key and 1 (u16, 0: empty)  2 length of the value (u16)  4 key, value
//! ```

use towpath_base::crc::Crc32c;

/// Where the slots begin, behind all that is of the bucket as a whole.
pub(super) const SLOTS: usize = 16;

/// Where what is written behind the version begins.
pub(super) const BODY: usize = 8;

/// Bytes of a slot in front of the key.
const SLOT_HEADER_BYTES: usize = 4;

/// What a bucket says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// Its value.
    Value(&'a [u8]),
    /// Nothing: the server may have it.
    Absent,
    /// A key of the bucket is being changed.
    Closed,
    /// Its bytes are not of one moment.
    Torn,
}

/// What became of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Nothing,
    Removed,
    Put,
    Displaced,
    TooLong { was_there: bool },
}

fn checksum(bucket: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&bucket[..BODY]);
    crc.update(&bucket[BODY + 4..]);
    crc.value()
}

fn half(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// The key and value of a slot; none where it is empty, or says what it has no room for.
fn entry(slot: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key_len, value_len) = (half(slot, 0).checked_sub(1)?, half(slot, 2));
    let body = slot.get(SLOT_HEADER_BYTES..)?;
    let (key, rest) = body.split_at_checked(key_len)?;
    Some((key, rest.get(..value_len)?))
}

/// What a bucket, as a READ brought it, says of a key. `slot_bytes` is that of the memory's shape.
#[must_use]
pub fn find<'a>(bucket: &'a [u8], slot_bytes: usize, key: &[u8]) -> Found<'a> {
    let Some(crc) = bucket.get(BODY..BODY + 4).filter(|_| bucket.len() >= SLOTS) else {
        return Found::Torn;
    };
    if bucket[0] & 1 == 1 {
        return Found::Closed;
    }
    if crc != checksum(bucket).to_le_bytes() {
        return Found::Torn;
    }
    let slots = bucket[SLOTS..].chunks_exact(slot_bytes.max(SLOT_HEADER_BYTES));
    let entries = slots.filter_map(entry);
    let found = entries.filter(|(has, _)| *has == key).map(|(_, value)| value).next();
    found.map_or(Found::Absent, Found::Value)
}

/// Gives a bucket its version and its checksum.
pub(super) fn seal(bucket: &mut [u8], version: u64) {
    bucket[..BODY].copy_from_slice(&version.to_le_bytes());
    let crc = checksum(bucket);
    bucket[BODY..BODY + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Puts a key's value into a bucket, in place of another key's where all slots are taken, by
/// `turn`; or removes the key.
pub(super) fn put(
    bucket: &mut [u8],
    slot_bytes: usize,
    (key, value): (&[u8], Option<&[u8]>),
    turn: u64,
) -> Done {
    let mut slots: Vec<&mut [u8]> = bucket[SLOTS..].chunks_exact_mut(slot_bytes).collect();
    let has = slots.iter().position(|slot| entry(slot).is_some_and(|(has, _)| has == key));
    let fits = |value: &&[u8]| SLOT_HEADER_BYTES + key.len() + value.len() <= slot_bytes;
    let (Some(value), Some(places)) = (value.filter(fits), u64::try_from(slots.len()).ok()) else {
        if let Some(at) = has {
            slots[at].fill(0);
        }
        return match (value, has) {
            (Some(_), _) => Done::TooLong { was_there: has.is_some() },
            (None, Some(_)) => Done::Removed,
            (None, None) => Done::Nothing,
        };
    };
    let empty = || slots.iter().position(|slot| entry(slot).is_none());
    let (at, done) = match has.or_else(empty) {
        Some(at) => (at, Done::Put),
        None => ((turn % places) as usize, Done::Displaced),
    };
    let slot = &mut *slots[at];
    slot.fill(0);
    // Keys have fewer than 64 Ki bytes, and slots as well.
    slot[..2].copy_from_slice(&(key.len() as u16 + 1).to_le_bytes());
    slot[2..4].copy_from_slice(&(value.len() as u16).to_le_bytes());
    let (key_end, end) =
        (SLOT_HEADER_BYTES + key.len(), SLOT_HEADER_BYTES + key.len() + value.len());
    slot[SLOT_HEADER_BYTES..key_end].copy_from_slice(key);
    slot[key_end..end].copy_from_slice(value);
    done
}
