//! A change on its way to the disk: what it does, and how far it is.

use smallvec::SmallVec;
use towpath_disk::{Buffers, WritePages};
use towpath_memory::{Buf, Frozen};
use towpath_transport::Class;

use super::changes::Client;
use crate::store::clear::{ClearBody, Length};
use crate::store::error::ChangeError;
use crate::store::record::{Body, Extent, Extents, Frame, Record, WriteBody};
use crate::store::request::{NewChunk, Reply, Terms};
use crate::store::results::Ticket;
use crate::store::slice::{ChunkId, SLICE_BYTES, Span};

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
        extents: Extents,
        crcs: Vec<u32>,
        /// The bytes of its slices stand in the log.
        is_logged: bool,
    },
    Seal,
}

/// Where the bytes of a change go that has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To their pages, before its record counts.
    Paged,
    /// To the log, behind its record.
    Logged,
}

impl Change {
    /// What its record says. Where the bytes of its slices stand in the log, they begin so many
    /// pages behind the page where the record begins.
    fn body(&self, data_page: u32) -> Body<'_> {
        match self {
            &Self::Create { limit_bytes, kind } => Body::Create { limit_bytes, kind },
            &Self::Chain { chain } => Body::Chain { chain },
            Self::Finish { .. } => Body::Finish,
            Self::Clear(clear) => Body::Clear(*clear),
            Self::Delete => Body::Delete,
            Self::Write { offset, byte_len, extents, crcs, is_logged } => {
                let data_page = is_logged.then_some(data_page);
                Body::Write(WriteBody::new((*offset, *byte_len), data_page, extents, crcs))
            }
            Self::Seal => Body::Seal,
        }
    }

    /// Bytes of its record.
    pub(super) fn record_bytes(&self, stamp: u64) -> usize {
        self.body(1).record_bytes(stamp)
    }

    /// The slices that it writes.
    pub(super) fn span(&self) -> Option<Span> {
        match self {
            Self::Write { offset, byte_len, .. } => Some(Span::new(*offset, *byte_len)),
            _ => None,
        }
    }

    /// Slices that it brings to the disk.
    fn slices(&self) -> u64 {
        match self {
            Self::Clear(clear) => clear.puts().count() as u64,
            _ => self.span().map_or(0, |span| span.count()),
        }
    }

    /// The pages that nobody else has, as long as it is not done.
    pub(super) fn pages(&self) -> Extents {
        match self {
            Self::Write { extents, .. } => extents.clone(),
            Self::Clear(clear) => {
                clear.puts().map(|put| Extent { page: put.page, count: 1 }).collect()
            }
            _ => Extents::new(),
        }
    }

    /// Which of its slices lies on a page, counted from the first one.
    fn position_of(&self, page: u32) -> Option<usize> {
        let mut before = 0;
        for extent in self.pages() {
            if (extent.page..extent.page + extent.count).contains(&page) {
                return Some(before + (page - extent.page) as usize);
            }
            before += extent.count as usize;
        }
        None
    }

    /// The index of one of its slices, counted from the first one.
    fn slice(&self, position: usize) -> Option<u64> {
        match self {
            Self::Clear(clear) => clear.puts().nth(position).map(|put| put.slice),
            _ => self.span().map(|span| span.first() + position as u64),
        }
    }

    /// The checksum of a slice is known, which was merged with what it held.
    fn set_crc(&mut self, position: usize, crc: u32) {
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

    /// The chunk after it; none where it has none then.
    fn head_after(&self, before: Option<Head>, has_residence: bool) -> Option<Head> {
        match self {
            &Self::Create { limit_bytes, kind: NewChunk { resident, chain, .. } } => {
                let has_slots = resident && has_residence;
                Some(Head { limit_bytes, has_slots, chain, ..Head::default() })
            }
            &Self::Chain { chain } => before.map(|head| Head { chain, ..head }),
            Self::Delete => None,
            Self::Clear(clear) => {
                before.map(|head| Head { byte_len: clear.length.of(head.byte_len), ..head })
            }
            Self::Write { offset, byte_len, .. } => {
                before.map(|head| Head { byte_len: head.byte_len.max(offset + byte_len), ..head })
            }
            Self::Finish { .. } | Self::Seal => before,
        }
    }

    /// How many chunks there are more after it.
    pub(super) fn chunks(&self) -> i64 {
        match self {
            Self::Create { .. } => 1,
            Self::Delete => -1,
            _ => 0,
        }
    }
}

/// Slices of a member that stay in memory: the position of the first of each run, and their bytes.
pub(super) type Kept = SmallVec<[(usize, Frozen); 1]>;

/// One change on its way.
#[derive(Debug)]
pub(super) struct Member<W> {
    /// None where nobody waits for it.
    pub(super) to: Option<Client>,
    pub(super) class: Class,
    pub(super) chunk: ChunkId,
    pub(super) change: Change,
    pub(super) terms: Terms,
    /// The number that its record has, once its group is closed; 0 before.
    pub(super) version: u64,
    pub(super) record_bytes: usize,
    /// Writes of data under way.
    pub(super) writes_left: usize,
    /// Slices that are still to be merged with what they held.
    pub(super) merges_left: usize,
    /// The caller's buffers.
    pub(super) data: Vec<W>,
    pub(super) failed: Option<ChangeError>,
    /// Memory of resident chunks wants its slices.
    pub(super) keeps: bool,
    /// In their order where they stand in the log.
    pub(super) kept: Kept,
    /// Slots and blocks that it will take.
    pub(super) slots: u64,
    pub(super) blocks: u64,
    /// It is in a group under way.
    pub(super) is_closed: bool,
}

impl<W> Member<W> {
    /// A change without data, of who asks, of a class, and of a chunk.
    pub(super) fn new(
        (to, class, chunk): (Option<Client>, Class, ChunkId),
        change: Change,
        terms: Terms,
    ) -> Self {
        Self {
            to,
            class,
            chunk,
            terms,
            version: 0,
            record_bytes: change.record_bytes(terms.stamp),
            change,
            writes_left: 0,
            merges_left: 0,
            data: Vec::new(),
            failed: None,
            keeps: false,
            kept: Kept::new(),
            slots: 0,
            blocks: 0,
            is_closed: false,
        }
    }

    /// What its record says; of one that has failed, nothing. Its place in the log is of no matter
    /// once it is durable.
    pub(super) fn record(&self, frame: Frame, data_page: u32) -> Record<'_> {
        let (stamp, body) = match self.failed {
            Some(_) => (0, Body::Void { record_bytes: self.record_bytes }),
            None => (self.terms.stamp, self.change.body(data_page)),
        };
        Record { frame, header_crc: 0, chunk: self.chunk, stamp, body }
    }

    /// The chunk after it; none where it has none then.
    pub(super) fn head_after(&self, before: Option<Head>, has_residence: bool) -> Option<Head> {
        let (version, stamp) = (self.version, self.terms.stamp);
        let head = self.change.head_after(before, has_residence);
        head.map(|head| Head { version, stamp, ..head })
    }

    /// Pages of the log that its slices take behind the records.
    pub(super) fn logged_pages(&self) -> usize {
        match self.change {
            Change::Write { is_logged: true, .. } => self.change.slices() as usize,
            _ => 0,
        }
    }

    /// Keeps slices from a position on.
    fn keep(&mut self, position: usize, bytes: Frozen) {
        let at = self.kept.partition_point(|(before, _)| *before < position);
        self.kept.insert(at, (position, bytes));
    }

    /// Slices from page `first` on were written. They are kept where memory of resident chunks
    /// takes them.
    pub(super) fn on_written(&mut self, first: u32, from: Buffers<WritePages>) {
        let Some(mut position) = self.change.position_of(first).filter(|_| self.keeps) else {
            return;
        };
        for pages in from {
            let count = pages.count() as usize;
            self.keep(position, pages.into_buf().map_or_else(|frozen| frozen, Buf::freeze));
            position += count;
        }
    }

    /// A slice was merged with what it held. Gives the bytes back where they go to a page.
    pub(super) fn on_merged(&mut self, position: usize, bytes: Buf, crc: u32) -> Option<Buf> {
        self.change.set_crc(position, crc);
        self.merges_left -= 1;
        if self.kind() == Some(Kind::Paged) {
            self.writes_left += 1;
            return Some(bytes);
        }
        self.keep(position, bytes.freeze());
        None
    }

    /// The slices that are kept, each with its index.
    pub(super) fn kept_slices(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.kept.iter().flat_map(|(first, bytes)| {
            let slices = (*first..).zip(bytes.chunks_exact(SLICE_BYTES));
            slices.filter_map(|(at, bytes)| Some((self.change.slice(at)?, bytes)))
        })
    }

    /// Bytes of the slices that it brings to the disk.
    pub(super) fn data_bytes(&self) -> u64 {
        self.change.slices() * SLICE_BYTES as u64
    }

    /// Where its bytes go; none where it has none.
    pub(super) fn kind(&self) -> Option<Kind> {
        match self.change {
            Change::Write { is_logged: true, .. } => Some(Kind::Logged),
            _ => (self.change.slices() > 0).then_some(Kind::Paged),
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
    pub(super) fn into_reply(self, outcome: Result<Ticket, ChangeError>) -> Reply<W, Buf> {
        let outcome = self.failed.map_or(outcome, Err);
        match self.change {
            Change::Write { crcs, .. } => Reply::Write { result: outcome, data: self.data, crcs },
            _ => Reply::Change(outcome),
        }
    }
}
