//! What a power cut leaves of writes that are not durable.

use super::state::{Change, Content, PageBytes, State};
use crate::PAGE_BYTES;

/// Bytes that reach a medium together: the logical sector of common disks.
pub const SECTOR_BYTES: usize = 512;

/// What a power cut leaves of the changes that are not durable. Those of a write that was under
/// way come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of them reached the medium in time.
    Nothing,
    /// None of them did.
    Everything,
    /// What was done first did, up to a sector chosen by the seed; all after it did not.
    Suffix,
    /// Each sector by itself, as the seed has it, whole writes kept or lost among them.
    Scattered,
}

/// Sectors of a page, a bit for each.
pub(super) type Sectors = u8;

const ALL: Sectors = Sectors::MAX;
const _: () = assert!(PAGE_BYTES / SECTOR_BYTES == Sectors::BITS as usize);

/// Puts some sectors of a page in place.
pub(super) fn persist(content: &mut Content, change: &Change, sectors: Sectors) {
    match &change.bytes {
        None if sectors == ALL => content.remove(change.page),
        Some(bytes) if sectors == ALL => content.put(change.page, bytes.clone()),
        _ if sectors == 0 => {}
        changed => {
            let mut page = content.page(change.page);
            let zeros: PageBytes = [0; PAGE_BYTES];
            let changed = changed.as_deref().unwrap_or(&zeros);
            for sector in (0..Sectors::BITS as usize).filter(|bit| sectors >> bit & 1 == 1) {
                let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                page[range.clone()].copy_from_slice(&changed[range]);
            }
            content.put(change.page, page.into());
        }
    }
}

impl State {
    /// Some sectors: each with an even chance.
    pub(super) fn some_sectors(&mut self) -> Sectors {
        self.prng.next_u32() as Sectors
    }

    pub(super) fn power_cycle(&mut self, loss: Loss) {
        self.cut();
        let changes = std::mem::take(&mut self.unflushed);
        let whole = self.prng.below(changes.len() as u64 + 1) as usize;
        let torn = (1 << self.prng.below(u64::from(Sectors::BITS))) - 1;
        for (at, change) in changes.iter().enumerate() {
            let sectors = match loss {
                Loss::Nothing => ALL,
                Loss::Everything => 0,
                Loss::Suffix if at < whole => ALL,
                Loss::Suffix if at == whole => torn,
                Loss::Suffix => 0,
                Loss::Scattered => match self.prng.below(3) {
                    0 => ALL,
                    1 => 0,
                    _ => self.some_sectors(),
                },
            };
            persist(&mut self.durable, change, sectors);
        }
        self.seen = self.durable.clone();
        self.faults = self.faults.lasting();
        (self.session, self.is_off, self.cut_at) = (None, false, None);
    }
}
