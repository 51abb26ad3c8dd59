//! Changes on their way to the disk, and the groups in which they become durable.

use smallvec::SmallVec;
use towpath_disk::WritePages;

use super::join::Kind;
use super::superblock::LogPoint;
use crate::store::clear::{ClearBody, Length};
use crate::store::error::{ChangeError, Refused};
use crate::store::record::{Extent, Op};
use crate::store::request::{NewChunk, Reply, Terms};
use crate::store::results::Ticket;
use crate::store::slice::{ChunkId, SLICE_BYTES, Span};
use towpath_memory::{Buf, Frozen};
use towpath_transport::Class;

/// Who asked, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The number of who asked.
    pub asker: usize,
    /// The mark of the request.
    pub token: u64,
}

/// State of a chunk as the changes under way will leave it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub(super) byte_len: u64,
    pub(super) limit_bytes: u64,
    /// Its slices take slots in memory.
    pub(super) has_slots: bool,
    /// Number and stamp of the change that made it so.
    pub(super) version: u64,
    pub(super) stamp: u64,
    /// The chain version that changes must name; 0 for none.
    pub(super) chain: u32,
}

/// A chunk that changes are under way for.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// None where they delete it.
    pub(super) head: Option<Head>,
    /// How many they are.
    pub(super) count: usize,
    /// The last of them may fail, and if it does, what comes after it is not what it seems:
    /// changes wait until its fate is known.
    pub(super) is_barrier: bool,
}

/// The bytes of the slices of a write, as they stand in the log; none of one that is still to be
/// merged with what it held.
pub(super) type Logged = SmallVec<[Option<Frozen>; 1]>;

/// What a member does.
#[derive(Debug)]
pub(super) enum Change {
    Create {
        limit_bytes: u64,
        kind: NewChunk,
    },
    Chain {
        chain: u32,
    },
    Finish {
        byte_len: u64,
    },
    Clear(ClearBody),
    Delete,
    Write {
        offset: u64,
        byte_len: u64,
        extents: Vec<Extent>,
        crcs: Vec<u32>,
        logged: Option<Logged>,
    },
    Seal,
}

impl Change {
    /// What its record says. Where the bytes of its slices stand in the log, they begin so many
    /// pages behind the page where the record begins.
    pub(super) fn op(&self, data_page: u32) -> Op<'_> {
        match self {
            &Self::Create { limit_bytes, kind } => Op::Create { limit_bytes, kind },
            &Self::Chain { chain } => Op::Chain { chain },
            Self::Finish { .. } => Op::Finish,
            Self::Clear(clear) => Op::Clear(*clear),
            Self::Delete => Op::Delete,
            Self::Write { offset, byte_len, extents, crcs, logged } => {
                let data_page = logged.as_ref().map(|_| data_page);
                Op::Write { offset: *offset, byte_len: *byte_len, data_page, extents, crcs }
            }
            Self::Seal => Op::Seal,
        }
    }

    /// Bytes of its record.
    pub(super) fn record_bytes(&self, stamp: u64) -> usize {
        self.op(1).encoded_len_with(stamp)
    }

    /// The slices whose bytes stand in the log.
    pub(super) fn logged(&self) -> &[Option<Frozen>] {
        match self {
            Self::Write { logged: Some(logged), .. } => logged,
            _ => &[],
        }
    }

    /// The slices that it writes.
    pub(super) fn span(&self) -> Option<Span> {
        match self {
            Self::Write { offset, byte_len, .. } => Some(Span::new(*offset, *byte_len)),
            _ => None,
        }
    }

    /// Bytes of slices that it brings to the disk.
    pub(super) fn data_bytes(&self) -> u64 {
        let slices = match self {
            Self::Clear(clear) => clear.puts().count() as u64,
            _ => self.span().map_or(0, |span| span.count()),
        };
        slices * SLICE_BYTES as u64
    }

    /// Whether it takes pages.
    fn has_pages(&self) -> bool {
        match self {
            Self::Write { .. } => true,
            Self::Clear(clear) => clear.puts().next().is_some(),
            _ => false,
        }
    }

    /// The pages that nobody else has, as long as it is not done.
    pub(super) fn pages(&self) -> SmallVec<[Extent; 2]> {
        match self {
            Self::Write { extents, .. } => extents.iter().copied().collect(),
            Self::Clear(clear) => {
                clear.puts().map(|put| Extent { page: put.page, count: 1 }).collect()
            }
            _ => SmallVec::new(),
        }
    }

    /// Which of its slices lies on a page, counted from the first one.
    pub(super) fn position_of(&self, page: u32) -> Option<usize> {
        let mut before = 0;
        for extent in self.pages() {
            if (extent.page..extent.page + extent.count).contains(&page) {
                return Some(before + (page - extent.page) as usize);
            }
            before += extent.count as usize;
        }
        None
    }

    /// The index of one of its slices, counted as by [`position_of`](Self::position_of).
    pub(super) fn slice(&self, position: usize) -> Option<u64> {
        match self {
            Self::Clear(clear) => clear.puts().nth(position).map(|put| put.slice),
            _ => self.span().map(|span| span.first() + position as u64),
        }
    }

    /// The checksum of a slice is known, which was merged with what it held.
    pub(super) fn set_crc(&mut self, position: usize, crc: u32) {
        match self {
            Self::Write { crcs, .. } => crcs[position] = crc,
            Self::Clear(clear) => {
                if let Some(put) = &mut clear.puts[position] {
                    put.crc = crc;
                }
            }
            _ => {}
        }
    }

    /// How long a chunk is after it that had `before` bytes.
    pub(super) fn byte_len(&self, before: u64) -> u64 {
        match self {
            Self::Clear(clear) => clear.length.of(before),
            _ => before.max(self.span().map_or(0, |span| span.end())),
        }
    }
}

/// One change on its way.
#[derive(Debug)]
pub(super) struct Member<W> {
    /// None where nobody waits for it.
    pub(super) to: Option<Client>,
    pub(super) class: Class,
    pub(super) chunk: ChunkId,
    pub(super) change: Change,
    pub(super) terms: Terms,
    /// The number that its record has, once its group is closed.
    pub(super) version: u64,
    pub(super) record_bytes: usize,
    /// Writes of data under way.
    pub(super) writes_left: usize,
    /// Slices that are still to be merged with what they held.
    pub(super) merges_left: usize,
    /// The caller's buffers.
    pub(super) data: Vec<W>,
    pub(super) failed: Option<ChangeError>,
    /// Its slices are kept for the memory of resident chunks: the position of the first of them,
    /// and their bytes. None where they are not wanted.
    pub(super) kept: Option<Vec<(usize, WritePages)>>,
    /// Slots and blocks that it will take.
    pub(super) slots: u64,
    pub(super) blocks: u64,
    /// It is in the group under way.
    pub(super) is_closed: bool,
}

impl<W> Member<W> {
    /// Pages of the log that its slices take behind the records.
    pub(super) fn logged_pages(&self) -> usize {
        self.change.logged().len()
    }

    /// The slices whose bytes stand in the log.
    pub(super) fn logged_slices(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let slices = self.change.logged().iter().enumerate();
        slices.filter_map(|(at, bytes)| Some((self.change.slice(at)?, &bytes.as_ref()?[..])))
    }

    /// Where its bytes go; none where it has none.
    pub(super) fn kind(&self) -> Option<Kind> {
        match (self.logged_pages(), self.change.has_pages()) {
            (_, false) => None,
            (0, true) => Some(Kind::Paged),
            (_, true) => Some(Kind::Logged),
        }
    }

    /// Whether nothing but the end of the store keeps it from happening.
    pub(super) fn is_sure(&self) -> bool {
        self.terms.version.is_none() && self.kind() != Some(Kind::Paged)
    }

    /// Whether changes that come after it wait until its fate is known: where it takes bytes away
    /// and may fail, what is left is not known before.
    pub(super) fn is_barrier(&self) -> bool {
        match &self.change {
            Change::Delete => self.terms.version.is_some(),
            Change::Clear(clear) => matches!(clear.length, Length::Exactly(_)),
            _ => false,
        }
    }

    /// The answer once its fate is known.
    pub(super) fn into_reply(self, outcome: Result<Ticket, Refused>) -> Reply<W, Buf> {
        let outcome = match self.failed {
            Some(error) => Err(error),
            None => outcome.map_err(ChangeError::from),
        };
        match self.change {
            Change::Create { .. } => Reply::Create(outcome),
            Change::Chain { .. } => Reply::Chain(outcome),
            Change::Finish { .. } => Reply::Finish(outcome),
            Change::Write { crcs, .. } => Reply::Write { result: outcome, data: self.data, crcs },
            Change::Clear(_) => Reply::Clear(outcome),
            Change::Delete | Change::Seal => Reply::Delete(outcome),
        }
    }
}

/// Changes that no group under way has.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// In the order of their effect.
    pub(super) members: Vec<usize>,
    /// What they are, class by class: none keeps another from gathering.
    pub(super) by_class: [Gathered; Class::COUNT],
    /// Pages that stand in the log behind their records.
    pub(super) logged_pages: usize,
    /// Changes of this kind were ready when the last group closed, and others went first.
    pub(super) passed_over: Option<Kind>,
}

/// How much of one class gathers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gathered {
    pub(super) members: usize,
    pub(super) record_bytes: u64,
    pub(super) data_bytes: u64,
}

impl<W> Member<W> {
    /// Bytes of the slices that it writes.
    pub(super) fn data_bytes(&self) -> u64 {
        self.change.data_bytes()
    }
}

impl Group {
    /// The number by which its operations name it: that of its first record.
    pub(super) fn number(&self) -> u64 {
        self.start.sequence
    }

    /// Whether nothing can change what its records say any more.
    pub(super) fn is_settled(&self) -> bool {
        self.is_logged || self.is_flushing || self.is_durable
    }
}

impl Gathering {
    pub(super) fn add<W>(&mut self, key: usize, member: &Member<W>) {
        self.members.push(key);
        self.logged_pages += member.logged_pages();
        let of_class = &mut self.by_class[member.class.index()];
        of_class.members += 1;
        of_class.record_bytes += member.record_bytes as u64;
        of_class.data_bytes += member.data_bytes();
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.by_class.iter().map(|of_class| of_class.data_bytes).sum()
    }
}

/// A group that is closed, and not applied.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) members: Vec<usize>,
    /// Its records, in whole pages.
    pub(super) bytes: Vec<u8>,
    pub(super) start: LogPoint,
    pub(super) end: LogPoint,
    /// All that is to last stands in the log, whose writes are durable: it takes no flush.
    pub(super) is_logged: bool,
    pub(super) is_durable: bool,
    /// Writes of records under way.
    pub(super) log_left: usize,
    /// Writes of data under way.
    pub(super) data_left: usize,
    /// Some member has failed since the records were written.
    pub(super) is_stale: bool,
    /// The records were written anew since a member has failed.
    pub(super) is_rewritten: bool,
    /// Pages of the ring from which on one copy could not be written.
    pub(super) bad_pages: Vec<u64>,
    pub(super) is_flushing: bool,
}
