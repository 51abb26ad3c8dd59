//! Slices that are written in part: merged with what they held, read from the disk.

use towpath_disk::{Op, WritePages};
use towpath_memory::Buf;
use towpath_transport::Class;

use super::change::Change;
use super::io::Purpose;
use super::read::Then;
use super::stage::Stop;
use super::state::StoreCore;
use crate::store::error::{ChangeError, ReadError, SliceCorrupt};
use crate::store::media::{MediaError, MediaOp};
use crate::store::place::SliceRef;
use crate::store::slice::{ChunkId, slice_crc};

/// What a slice held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Old {
    /// Nothing: zeros.
    Nothing,
    /// A page with that checksum.
    At(SliceRef),
}

/// A slice that a member writes in part.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) member: usize,
    pub(super) chunk: ChunkId,
    pub(super) slice: u64,
    /// Among the slices of the write.
    pub(super) position: usize,
    /// The fresh page.
    pub(super) page: u32,
    /// Where the fragment begins in the slice.
    pub(super) from: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) old: Old,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    /// What a slice holds once all is done that is under way. Where that is being written just now,
    /// it is waited for.
    pub(super) fn newest(&self, chunk: ChunkId, slice: u64) -> Result<Old, Stop> {
        if self.changes.pending(chunk).is_some() {
            let members = self.changing().into_iter().rev();
            let members = members.filter_map(|key| self.changes.get(key));
            for member in members.filter(|member| member.chunk == chunk) {
                match (&member.change, member.change.span()) {
                    (Change::Create { .. } | Change::Delete, _) => return Ok(Old::Nothing),
                    (Change::Clear(clear), _) if clear.takes(slice) => {
                        return if member.is_sure() { Ok(Old::Nothing) } else { Err(Stop::Hold) };
                    }
                    (Change::Clear(clear), _) if clear.puts().any(|put| put.slice == slice) => {
                        return Err(Stop::Hold);
                    }
                    (_, Some(span))
                        if (span.first()..span.first() + span.count()).contains(&slice) =>
                    {
                        return Err(Stop::Hold);
                    }
                    _ => {}
                }
            }
        }
        let found = self.map.chunks.get(&chunk).map(|found| found.slice(slice));
        match found.filter(|found| !found.is_hole()) {
            None => Ok(Old::Nothing),
            Some(found) if self.layout.has(found.page) => Ok(Old::At(found)),
            Some(found) => Err(ChangeError::OldSlice(self.corrupt(chunk, slice, found)).into()),
        }
    }

    pub(super) fn corrupt(&self, chunk: ChunkId, slice: u64, found: SliceRef) -> Box<SliceCorrupt> {
        let is_there = self.layout.has(found.page);
        let offset = if is_there { self.layout.data_page(found.page).byte_offset() } else { 0 };
        Box::new(SliceCorrupt { chunk, slice, file: String::from(super::DISK_NAME), offset })
    }

    pub(super) fn begin_merge(&mut self, edge: Edge) {
        let Old::At(found) = edge.old else {
            let zeros = self.io.memory.zeros();
            let zeros = zeros.map_err(|source| MediaError::memory(MediaOp::Read, source));
            return self.on_edge(edge, zeros.map_err(ReadError::Media));
        };
        let member = edge.member;
        let class = self.changes.get(member).map_or(Class::Copper, |member| member.class);
        let of = (edge.chunk, edge.slice, found);
        if let Err(error) = self.read_slice(Then::Merge(Box::new(edge)), class, of) {
            self.merge_failed(member, error.into());
        }
    }

    /// What a slice held was read.
    pub(super) fn on_edge(&mut self, edge: Edge, old: Result<Buf, ReadError>) {
        match old {
            // Of a store that has failed nobody waits for it any more.
            _ if self.health.failed.is_some() => {}
            Ok(old) => self.merge(edge, old),
            Err(ReadError::Media(error)) => self.merge_failed(edge.member, error.into()),
            Err(ReadError::Corrupt(found)) => {
                self.merge_failed(edge.member, ChangeError::OldSlice(found));
            }
            Err(other) => tracing::error!(%other, "a slice was read, and not a chunk"),
        }
    }

    /// Puts the fragment over what the slice held, and writes the slice.
    fn merge(&mut self, edge: Edge, mut whole: Buf) {
        let Edge { member, chunk, slice, position, page, from, bytes, .. } = edge;
        whole[from..from + bytes.len()].copy_from_slice(&bytes);
        let crc = slice_crc(chunk, slice, &whole);
        let Some(found) = self.changes.get_mut(member) else { return };
        let Some(whole) = found.on_merged(position, whole, crc) else { return };
        // It is a page of memory that has only those.
        let Ok(whole) = WritePages::new(whole) else { return };
        let (class, at) = (found.class, self.layout.data_page(page));
        self.io.submit_as(class, Purpose::Data { member }, Op::write(at, whole));
    }

    fn merge_failed(&mut self, member: usize, error: ChangeError) {
        let Some(found) = self.changes.get_mut(member) else { return };
        found.merges_left -= 1;
        self.member_failed(member, error);
    }
}
