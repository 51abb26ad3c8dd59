//! What servers remember of changes in place (docs/updates.md section 3).

use towpath_base::crc::crc32c;
use towpath_ec::ShardSet;
use towpath_fastpath::SLICE_BYTES;

/// Bytes of a record without those of an intent.
pub(crate) const HEAD_BYTES: usize = SLICE_BYTES;

/// The highest number of a change: nobody counts so far, and what is higher was made up.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

pub(super) const MAGIC: &[u8; 8] = b"towpupd1";
const PARTS_MAX: usize = 32;
const VERSIONS_AT: usize = 56;
const BODY_CRC_AT: usize = VERSIONS_AT + 8 * PARTS_MAX;
const CRC_AT: usize = BODY_CRC_AT + 4;

/// Set in the stamps of records that say that a change is made, whose own stamp is that of its
/// intent.
const MADE: u64 = 1 << 63;

/// What it says of the change of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It is meant to be made: what it writes to each of these parts is in the record.
    Intent { parts: ShardSet, offset: u64, bytes: u32, body_crc: u32 },
    /// It was made.
    Made,
    /// A repair has made a newer layout: by this one nothing is changed any more.
    Closed,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Of the layout.
    pub(crate) generation: u64,
    /// One more with each change of the file.
    pub(crate) number: u64,
    /// Tells the change from all others, with the highest bit clear, and not 0.
    pub(crate) id: u64,
    pub(crate) stage: Stage,
    /// Of each part, before an intent, and else after what was made.
    pub(crate) versions: Vec<Option<u64>>,
}

impl Record {
    /// The higher, the newer.
    pub(crate) fn age(&self) -> (u64, u64, u8) {
        let stage = match self.stage {
            Stage::Intent { .. } => 0,
            Stage::Made => 1,
            Stage::Closed => 2,
        };
        (self.generation, self.number, stage)
    }

    /// Of the write of the record: whoever writes the same one gives it the same stamp.
    pub(crate) fn stamp(&self) -> u64 {
        match self.stage {
            Stage::Intent { .. } | Stage::Closed => self.id,
            Stage::Made => self.id | MADE,
        }
    }

    /// A number that can be an id.
    pub(crate) fn id_of(drawn: u64) -> u64 {
        (drawn & !MADE).max(1)
    }

    /// Bytes of the record behind its head.
    pub(crate) fn body_bytes(&self) -> usize {
        match self.stage {
            Stage::Intent { parts, bytes, .. } => parts.len() * bytes as usize,
            Stage::Made | Stage::Closed => 0,
        }
    }

    /// Whether what it writes is within parts of that length.
    pub(crate) fn is_within(&self, part_bytes: u64) -> bool {
        match self.stage {
            Stage::Intent { offset, bytes, .. } => {
                offset.checked_add(bytes.into()).is_some_and(|end| end <= part_bytes)
            }
            Stage::Made | Stage::Closed => true,
        }
    }

    /// Whether that is what the intent writes.
    pub(crate) fn has_body(&self, body: &[u8]) -> bool {
        match self.stage {
            Stage::Intent { body_crc, .. } => {
                body.len() == self.body_bytes() && crc32c(body) == body_crc
            }
            Stage::Made | Stage::Closed => body.is_empty(),
        }
    }

    /// Its head.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, MAGIC);
        put(8, &self.generation.to_le_bytes());
        put(16, &self.number.to_le_bytes());
        put(24, &self.id.to_le_bytes());
        put(33, &[self.versions.len() as u8]);
        match self.stage {
            Stage::Intent { parts, offset, bytes, body_crc } => {
                put(32, &[1]);
                put(36, &parts.bits().to_le_bytes());
                put(40, &offset.to_le_bytes());
                put(48, &bytes.to_le_bytes());
                put(BODY_CRC_AT, &body_crc.to_le_bytes());
            }
            Stage::Made => put(32, &[2]),
            Stage::Closed => put(32, &[3]),
        }
        for (part, version) in self.versions.iter().enumerate() {
            put(VERSIONS_AT + 8 * part, &version.unwrap_or(0).to_le_bytes());
        }
        let crc = crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// From its head, of a file of so many parts; none where it is no such record.
    pub(crate) fn parse(head: &[u8], parts: usize) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let is_it = head.starts_with(MAGIC) && half(CRC_AT)? == crc32c(head.get(..CRC_AT)?);
        if !is_it || usize::from(*head.get(33)?) != parts || parts > PARTS_MAX {
            return None;
        }
        let versions =
            (0..parts).map(|part| Some(word(VERSIONS_AT + 8 * part)?).filter(|v| *v > 0));
        let versions = versions.collect();
        let stage = match head[32] {
            1 => {
                let (set, offset, bytes) = (half(36)?, word(40)?, half(48)?);
                let slice = SLICE_BYTES as u32;
                let is_cut = bytes == 0
                    || !bytes.is_multiple_of(slice)
                    || !offset.is_multiple_of(slice.into());
                // It would be more than one operation of a server writes.
                let is_long = u64::from(bytes) * u64::from(set.count_ones()) > 32 << 20;
                if is_cut || is_long || set == 0 || u64::from(set) >> parts != 0 {
                    return None;
                }
                let (parts, body_crc) = (ShardSet::from_bits(set), half(BODY_CRC_AT)?);
                Stage::Intent { parts, offset, bytes, body_crc }
            }
            2 => Stage::Made,
            3 => Stage::Closed,
            _ => return None,
        };
        let (generation, number, id) = (word(8)?, word(16)?, word(24)?);
        // No layout has the last generation: none could come after it.
        let is_counted = (1..=NUMBER_MAX).contains(&number) && generation < u64::MAX;
        (is_counted && id > 0 && id & MADE == 0).then_some(Self {
            generation,
            number,
            id,
            stage,
            versions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    fn intent() -> Record {
        let parts = ShardSet::from_bits(0b1101);
        let stage = Stage::Intent { parts, offset: 8_192, bytes: 4_096, body_crc: 77 };
        let versions = vec![Some(9), None, Some(u64::MAX), Some(1)];
        Record { generation: 3, number: 1 << 40, id: 5, stage, versions }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for stage in [intent().stage, Stage::Made, Stage::Closed] {
            let record = Record { stage, ..intent() };
            assert_eq!(Record::parse(&record.emit(), 4), Some(record.clone()));
            assert_eq!(Record::parse(&record.emit(), 5), None, "of another file");
            assert_ne!(record.stamp(), 0);
        }
        assert_eq!(intent().body_bytes(), 3 * 4_096);
        let made = Record { stage: Stage::Made, ..intent() };
        assert_ne!(made.stamp(), intent().stamp());
        assert!(made.age() > intent().age());
    }

    #[test]
    fn no_byte_of_a_record_can_be_changed_and_what_cannot_be_is_refused() {
        let (seed, good) = (61, intent().emit());
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        for _ in 0..2_000 {
            let mut other = good.clone();
            other[prng.below(CRC_AT as u64 + 4) as usize] ^= 1 << prng.below(8);
            assert_eq!(Record::parse(&other, 4), None);
            let cut = prng.below(CRC_AT as u64 + 4) as usize;
            assert_eq!(Record::parse(&good[..cut], 4), None);
        }
        let with = |at: usize, value: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            let crc = crc32c(&bytes[..CRC_AT]);
            bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
            Record::parse(&bytes, 4)
        };
        assert_eq!(with(8, &3_u64.to_le_bytes()), Some(intent()));
        for (at, value) in [
            (8, u64::MAX.to_le_bytes()),
            (16, 0_u64.to_le_bytes()),
            (16, (NUMBER_MAX + 1).to_le_bytes()),
            (16, u64::MAX.to_le_bytes()),
            (24, 0_u64.to_le_bytes()),
            (24, (1_u64 << 63 | 1).to_le_bytes()),
            (40, 4_097_u64.to_le_bytes()),
        ] {
            assert_eq!(with(at, &value), None, "at {at}");
        }
        for (at, value) in [(36, 0_u32), (36, 1 << 4), (48, 0), (48, 4_095), (48, 1 << 30)] {
            assert_eq!(with(at, &value.to_le_bytes()), None, "{value} at {at}");
        }
        assert_eq!(with(32, &[4]), None);
        let far = with(40, &(u64::MAX - 4_095).to_le_bytes()).expect("it is a multiple");
        assert!(!far.is_within(u64::MAX) && !intent().is_within(12_287));
        assert!(intent().is_within(12_288));
    }
}
