//! What the peer of a queue pair did to memory here by itself.

use core::ops::AddAssign;

/// What a peer did by one-sided operations to memory that it may reach. Each only grows.
///
/// Requests are counted, and a long READ may come as several. What was refused is not counted, and
/// what came again only where it was done again: a READ is, since it may be of other memory the
/// second time, and costs as much. So who serves for tokens charges for all READs, and may let
/// those go that lost packets explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Served {
    /// READs that are answered, those that were answered before included.
    pub reads: u64,
    /// Bytes of those, as they were asked for; of what was on its way already, only what is sent
    /// again.
    pub read_bytes: u64,
    /// Of the READs, those that were answered before, at least in part.
    pub reads_again: u64,
    /// Bytes of those.
    pub read_again_bytes: u64,
    /// WRITEs that are in memory whole.
    pub writes: u64,
    /// Bytes that were written, those of WRITEs that never became whole included.
    pub write_bytes: u64,
    /// FETCH_ADDs and CMP_SWAPs, whether or not they changed the word; each once.
    pub atomics: u64,
}

impl AddAssign for Served {
    fn add_assign(&mut self, other: Self) {
        // Put together by name, so that a new count cannot be forgotten.
        *self = Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            reads_again: self.reads_again + other.reads_again,
            read_again_bytes: self.read_again_bytes + other.read_again_bytes,
            writes: self.writes + other.writes,
            write_bytes: self.write_bytes + other.write_bytes,
            atomics: self.atomics + other.atomics,
        };
    }
}
