//! Resident chunks: their slices are kept in memory as well, as the commits leave them.

use std::fmt;

use super::engine::{Head, Store};
use super::error::{LocateError, Refused};
use super::map::{Chunk, SliceRef, slices_in};
use super::media::Media;
use super::pages::{Pages, SliceName, stored_crc};
use super::record::{Body, Record};
use super::slice::{ChunkId, SLICE_BYTES, Span};

/// Memory for the slices of resident chunks. A store tells it what its commits change, before
/// whoever asked for the change is answered, in the order of the commits.
pub trait Residence: fmt::Debug + Send {
    /// Slices that it holds at most.
    fn slots(&self) -> u64;

    /// Slices that it can still take in.
    fn slots_free(&self) -> u64;

    /// Whether it has the slices of a chunk.
    fn holds(&self, chunk: ChunkId) -> bool;

    /// Takes a chunk of no slices in.
    fn place(&mut self, chunk: ChunkId);

    /// A chunk that it holds spans `slices` from now on; new ones are zeros of that version. False
    /// where they do not fit: nothing is changed then.
    fn grow(&mut self, chunk: ChunkId, slices: u64, version: u64) -> bool;

    /// Puts a slice of a chunk that it holds, with its checksum; none where the medium does not
    /// give the bytes.
    fn put(&mut self, name: SlicePlace, version: u64, content: Option<(u32, &[u8])>);

    /// Lets a chunk go, if it holds it.
    fn remove(&mut self, chunk: ChunkId);

    /// Where the slices of a chunk lie from one on: runs of slots, and whether there are more.
    fn runs(&self, chunk: ChunkId, first_slice: u64, runs_max: usize) -> (Vec<Slots>, bool);
}

/// A slice: its chunk and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlicePlace {
    /// The chunk.
    pub chunk: ChunkId,
    /// Index in the chunk.
    pub slice: u64,
}

/// Slots that lie together and hold slices that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The slice in the first of them.
    pub first_slice: u64,
    /// The first of them.
    pub slot: u32,
    /// How many.
    pub count: u32,
}

/// Where the slices of a chunk lie in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Its version.
    pub version: u64,
    /// Its length in bytes.
    pub byte_len: u64,
    /// Its slots from the slice on that was asked for; none where it has none.
    pub slots: Option<(Vec<Slots>, bool)>,
}

impl<M: Media> Store<M> {
    /// Keeps the slices of resident chunks in `residence` from now on, and fills it with those
    /// that are there, chunk by chunk in the order of their names. Those that do not fit are left
    /// out whole, and served from the medium alone. Gives how many chunks were taken in, and how
    /// many left out.
    pub fn keep_in(&mut self, mut residence: Box<dyn Residence>) -> (u64, u64) {
        let Self { map, pages, media, scratch, .. } = self;
        let (mut taken, mut left_out) = (0, 0);
        let resident = map.chunks.iter().filter(|(_, chunk)| chunk.resident && !chunk.suspect);
        for (&id, chunk) in resident {
            residence.place(id);
            if !residence.grow(id, slices_in(chunk.byte_len), chunk.version) {
                residence.remove(id);
                left_out += 1;
                continue;
            }
            taken += 1;
            let mut keeper =
                Keeper { pages, media, scratch: &mut scratch[..], residence: &mut *residence };
            for (slice, found) in chunk.slices_from(0) {
                keeper.put(SliceName { chunk: id, slice }, found, chunk.version);
            }
        }
        self.residence = Some(residence);
        (taken, left_out)
    }

    /// Where the slices of a chunk lie in memory, from slice `first_slice` on.
    ///
    /// # Errors
    /// See [`LocateError`].
    pub fn locate(
        &self,
        chunk: ChunkId,
        first_slice: u64,
        runs_max: usize,
    ) -> Result<Located, LocateError> {
        let found = match self.map.chunks.get(&chunk) {
            Some(found) if !found.suspect => found,
            None if !self.map.may_miss_chunks() => return Err(LocateError::NoSuchChunk(chunk)),
            _ => return Err(LocateError::Suspect(chunk)),
        };
        if found.unfinished {
            return Err(LocateError::Unfinished(chunk));
        }
        let residence = self.residence.as_ref().filter(|residence| residence.holds(chunk));
        let slots = residence.map(|residence| residence.runs(chunk, first_slice, runs_max));
        Ok(Located { version: found.version, byte_len: found.byte_len, slots })
    }

    /// Bytes of slices in memory, and how many there may be.
    pub(super) fn resident_bytes(&self) -> (u64, u64) {
        let Some(residence) = &self.residence else { return (0, 0) };
        let (slots, free) = (residence.slots(), residence.slots_free());
        (slots.saturating_sub(free) * SLICE_BYTES as u64, slots * SLICE_BYTES as u64)
    }

    /// Whether changes of a chunk take slots.
    pub(super) fn has_slots(&self, id: ChunkId, chunk: &Chunk) -> bool {
        chunk.resident && self.residence.as_ref().is_some_and(|residence| residence.holds(id))
    }

    /// Whether there are slots for what a write adds to a chunk.
    pub(super) fn check_slots_of(&self, head: Head, span: Span) -> Result<(), Refused> {
        if head.has_slots { self.check_slots(slots_wanted(head, span)) } else { Ok(()) }
    }

    /// Whether so many slots are free that nothing staged will take. A delete that is staged may
    /// give some, so with a batch open the answer is to commit it.
    pub(super) fn check_slots(&self, wanted: u64) -> Result<(), Refused> {
        let free = self.residence.as_ref().map_or(0, |residence| residence.slots_free());
        let left = free.saturating_sub(self.promised_slots);
        match left >= wanted {
            true => Ok(()),
            false if !self.staged.is_empty() => Err(Refused::BatchFull),
            false => Err(Refused::ResidentFull { left_bytes: left * SLICE_BYTES as u64 }),
        }
    }
}

/// How many slots a write adds to a chunk.
pub(super) fn slots_wanted(head: Head, span: Span) -> u64 {
    if !head.has_slots {
        return 0;
    }
    slices_in(span.end().max(head.byte_len)) - slices_in(head.byte_len)
}

/// What it takes to bring slices from the medium to memory.
pub(super) struct Keeper<'a, M: Media> {
    pub(super) pages: &'a mut Pages<M::File>,
    pub(super) media: &'a M,
    pub(super) scratch: &'a mut [u8],
    pub(super) residence: &'a mut dyn Residence,
}

impl<M: Media> Keeper<'_, M> {
    /// Does to the memory what a record did to `chunk`, the chunk that it changed, if that is
    /// there still.
    pub(super) fn follow(&mut self, record: &Record<'_>, chunk: Option<&Chunk>) {
        let id = record.chunk;
        match (&record.body, chunk) {
            (Body::Create { resident: true, .. }, _) => self.residence.place(id),
            (Body::Write(write), Some(chunk)) if self.residence.holds(id) => {
                let version = record.frame.sequence;
                if !self.residence.grow(id, slices_in(chunk.byte_len), version) {
                    // Staging has seen to it. What is not in memory is served from the medium.
                    tracing::error!(chunk = %id, "a resident chunk has lost its place in memory");
                    self.residence.remove(id);
                    return;
                }
                for (slice, (page, crc)) in (write.span().first()..).zip(write.slices()) {
                    self.put(SliceName { chunk: id, slice }, SliceRef { page, crc }, version);
                }
            }
            (Body::Delete, _) => self.residence.remove(id),
            _ => {}
        }
    }

    /// Brings one slice to memory. One that is damaged is not.
    fn put(&mut self, name: SliceName, found: SliceRef, version: u64) {
        let SliceName { chunk, slice } = name;
        let place = SlicePlace { chunk, slice };
        let content = match self.pages.load(self.media, name, found, self.scratch) {
            Ok(()) => Some((stored_crc(name, found), &*self.scratch)),
            Err(_) => {
                tracing::error!(%chunk, slice, "a slice of a resident chunk cannot be read");
                None
            }
        };
        self.residence.put(place, version, content);
    }
}
