//! Slices that are written in part: merged with what they held, read from the disk.

use towpath_disk::{DiskError, Op, ReadPages, WritePages};
use towpath_transport::Class;

use super::change::Change;
use super::io::Purpose;
use super::stage::Stop;
use super::state::StoreCore;
use crate::store::error::{ChangeError, SliceCorrupt};
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
    /// The old bytes are read for the second time.
    pub(super) is_second: bool,
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

    pub(super) fn corrupt(&self, chunk: ChunkId, slice: u64, found: SliceRef) -> SliceCorrupt {
        let is_there = self.layout.has(found.page);
        let offset = if is_there { self.layout.data_page(found.page).byte_offset() } else { 0 };
        SliceCorrupt { chunk, slice, file: String::from(super::DISK_NAME), offset }
    }

    pub(super) fn begin_merge(&mut self, edge: Box<Edge>) {
        let Old::At(found) = edge.old else { return self.merge(*edge, None) };
        match self.io.memory.to_fill(1) {
            Ok(mut into) => match self.away.get(found.page) {
                // Its bytes are in the log still.
                Some(logged) => {
                    into.copy_from_slice(logged);
                    self.merge(*edge, Some(into));
                }
                None => {
                    let at = self.layout.data_page(found.page);
                    let class = self.changes.get(edge.member).map(|member| member.class);
                    let class = class.unwrap_or(Class::Copper);
                    self.io.submit_as(class, Purpose::Edge(edge), Op::read(at, into));
                }
            },
            Err(source) => self.merge_failed(edge.member, no_memory(source)),
        }
    }

    pub(super) fn on_edge(&mut self, edge: Edge, op: Op, outcome: Result<(), DiskError>) {
        if self.health.failed.is_some() {
            return;
        }
        let Op::Read { mut into, .. } = op else { return };
        let (Some(page), Old::At(found)) = (into.pop(), edge.old) else { return };
        let is_good = outcome.is_ok() && slice_crc(edge.chunk, edge.slice, &page) == found.crc;
        if is_good {
            return self.merge(edge, Some(page));
        }
        if !edge.is_second {
            self.health.counts.reads_retried += 1;
            return self.begin_merge(Box::new(Edge { is_second: true, ..edge }));
        }
        let error = match outcome {
            Ok(()) => {
                self.health.counts.slices_corrupt += 1;
                ChangeError::OldSlice(self.corrupt(edge.chunk, edge.slice, found))
            }
            Err(error) => ChangeError::Media(super::media_error(&error)),
        };
        self.merge_failed(edge.member, error);
    }

    /// Puts the fragment over what the slice held, and writes the slice.
    fn merge(&mut self, edge: Edge, old: Option<ReadPages>) {
        let Edge { member, chunk, slice, position, page, from, bytes, .. } = edge;
        let made = match old {
            None => self.io.memory.zeros(),
            Some(old) => Ok(old.into_buf()),
        };
        let mut whole = match made {
            Ok(whole) => whole,
            Err(source) => return self.merge_failed(member, no_memory(source)),
        };
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

fn no_memory(source: std::io::Error) -> ChangeError {
    ChangeError::Media(MediaError::at(MediaOp::Read, "memory", 0)(source))
}
