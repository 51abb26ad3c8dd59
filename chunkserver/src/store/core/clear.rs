//! Trim, zero and truncate: slices become holes, and those at the edges of the range are merged
//! with zeros.

use smallvec::SmallVec;
use towpath_transport::Class;

use super::change::{Change, Head};
use super::merge::{Edge, Old};
use super::stage::{Known, Staged, Stop, slots_wanted};
use super::state::StoreCore;
use super::write::page_at;
use crate::store::clear::{CHUNK_SLICES_MAX, ClearBody, Length, SlicePut};
use crate::store::error::ChangeError;
use crate::store::limits::CHUNK_BYTES_MAX;
use crate::store::place::slices_in;
use crate::store::record::Extents;
use crate::store::request::{Clear, Terms};
use crate::store::slice::SLICE_BYTES;

const SLICE: u64 = SLICE_BYTES as u64;

/// A part of a slice that is to be zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    slice: u64,
    from: usize,
    len: usize,
}

/// What a clear does to a chunk.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// The first slice that becomes a hole, and how many do.
    first: u64,
    count: u64,
    length: Length,
    parts: SmallVec<[Part; 2]>,
}

impl Plan {
    fn of(clear: &Clear, head: Head) -> Result<Self, ChangeError> {
        match *clear {
            Clear::Trim { offset, byte_len } => {
                let end = end_of(offset, byte_len, head)?;
                let (first, count) = whole(offset, end, head.byte_len);
                Ok(Self { first, count, length: Length::Kept, parts: SmallVec::new() })
            }
            Clear::Zero { offset, byte_len } => {
                let end = end_of(offset, byte_len, head)?;
                let (first, count) = whole(offset, end, head.byte_len);
                let slices = [offset / SLICE, (end - 1) / SLICE];
                let is_one = slices[0] == slices[1];
                let slices = slices.into_iter().take(if is_one { 1 } else { 2 });
                let parts = slices.filter(|slice| !(first..first + count).contains(slice));
                let part = |slice: u64| {
                    let from = offset.saturating_sub(slice * SLICE).min(SLICE);
                    let to = (end - slice * SLICE).min(SLICE);
                    Part { slice, from: from as usize, len: (to - from) as usize }
                };
                let parts = parts.map(part).collect();
                Ok(Self { first, count, length: Length::AtLeast(end), parts })
            }
            Clear::Truncate { byte_len } => {
                let limit_bytes = head.limit_bytes;
                if byte_len > limit_bytes {
                    return Err(ChangeError::LimitExceeded { limit_bytes });
                }
                let first = slices_in(byte_len);
                let (slice, from) = (byte_len / SLICE, (byte_len % SLICE) as usize);
                let is_cut = from > 0 && byte_len < head.byte_len;
                let part = is_cut.then_some(Part { slice, from, len: SLICE_BYTES - from });
                let (count, length) = (CHUNK_SLICES_MAX - first, Length::Exactly(byte_len));
                Ok(Self { first, count, length, parts: part.into_iter().collect() })
            }
        }
    }
}

fn end_of(offset: u64, byte_len: u64, head: Head) -> Result<u64, ChangeError> {
    let limit_bytes = head.limit_bytes;
    if byte_len == 0 || byte_len > CHUNK_BYTES_MAX {
        return Err(ChangeError::Length { byte_len });
    }
    let end = offset.checked_add(byte_len).filter(|end| *end <= limit_bytes);
    end.ok_or(ChangeError::LimitExceeded { limit_bytes })
}

/// The slices that lie in a range whole; behind the end of the chunk there is nothing of one.
fn whole(offset: u64, end: u64, chunk_bytes: u64) -> (u64, u64) {
    let first = offset.div_ceil(SLICE);
    let last = if end >= chunk_bytes { slices_in(end) } else { end / SLICE };
    (first, last.saturating_sub(first))
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    pub(super) fn stage_clear(
        &mut self,
        known: &Known,
        class: Class,
        clear: &Clear,
        terms: Terms,
    ) -> Result<Staged, Stop> {
        let (chunk, head) = (known.chunk, known.sound()?);
        self.check_terms(known, terms)?;
        let Plan { first, count, length, parts } = Plan::of(clear, head)?;
        let slots = slots_wanted(head, length.of(head.byte_len));
        self.check_slots(slots)?;
        let mut edges = Vec::new();
        for Part { slice, from, len } in parts {
            #[cfg(test)]
            if self.bug == Some(super::tests::Bug::KeepTail) {
                continue;
            }
            // What holds nothing reads as zeros as it is.
            if let old @ Old::At(_) = self.newest(chunk, slice)? {
                let (member, position, page) = (0, edges.len(), 0);
                let bytes = vec![0; len];
                let edge = Edge { member, chunk, slice, position, page, from, bytes, old };
                edges.push(edge);
            }
        }
        let mut puts = [None; 2];
        for (put, edge) in puts.iter_mut().zip(&edges) {
            *put = Some(SlicePut { slice: edge.slice, page: 0, crc: 0 });
        }
        let body = ClearBody { first, count, length, puts };
        self.check_group(class, Change::Clear(body).record_bytes(terms.stamp))?;
        let pages = self.take_edge_pages(edges.len() as u32)?;
        for (put, edge) in puts.iter_mut().flatten().zip(&mut edges) {
            edge.page = page_at(&pages, edge.position);
            put.page = edge.page;
        }
        let change = Change::Clear(ClearBody { puts, ..body });
        Ok(Staged { slots, edges, ..Staged::new(change, terms) })
    }

    /// Takes the pages for the edges, of those that writes leave.
    fn take_edge_pages(&mut self, count: u32) -> Result<Extents, Stop> {
        let wanted = self.changes.data_bytes() + u64::from(count) * SLICE;
        if count > 0 && !self.space.has_bytes(wanted) {
            self.measure_room();
            if !self.space.has_bytes(wanted) {
                return Err(self.no_pages());
            }
        }
        self.space.take(count, 0).ok_or_else(|| self.no_pages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(clear: Clear, byte_len: u64) -> Plan {
        let head = Head { byte_len, limit_bytes: 1 << 20, ..Head::default() };
        Plan::of(&clear, head).expect("it is within the limit")
    }

    fn holes(clear: Clear, byte_len: u64) -> (u64, u64) {
        let Plan { first, count, .. } = plan(clear, byte_len);
        (first, count)
    }

    #[test]
    fn a_trim_takes_whole_slices_alone_and_the_last_one_up_to_the_end_of_the_chunk() {
        let trim = |offset, byte_len| Clear::Trim { offset, byte_len };
        assert_eq!(holes(trim(0, 8192), 20_000), (0, 2));
        assert_eq!(holes(trim(1, 8192), 20_000), (1, 1));
        assert_eq!(holes(trim(1, 4000), 20_000), (1, 0));
        assert_eq!(holes(trim(4096, 15_904), 20_000), (1, 4));
        assert_eq!(holes(trim(4096, 15_903), 20_000), (1, 3));
        assert_eq!(holes(trim(40_960, 4096), 20_000), (10, 1), "there is nothing");
        assert!(plan(trim(1, 9000), 20_000).parts.is_empty());
    }

    #[test]
    fn a_zero_merges_the_edges_and_nothing_behind_the_end_of_the_chunk() {
        let zero = |offset, byte_len| Clear::Zero { offset, byte_len };
        let parts = |clear, byte_len| plan(clear, byte_len).parts.to_vec();
        let part = |slice, from, len| Part { slice, from, len };
        assert_eq!(parts(zero(0, 8192), 20_000), []);
        assert_eq!(parts(zero(5, 10), 20_000), [part(0, 5, 10)]);
        assert_eq!(parts(zero(5, 4091), 20_000), [part(0, 5, 4091)]);
        assert_eq!(parts(zero(5, 8200), 20_000), [part(0, 5, 4091), part(2, 0, 13)]);
        assert_eq!(holes(zero(5, 8200), 20_000), (1, 1));
        assert_eq!(parts(zero(16_384, 3616), 20_000), []);
        assert_eq!(holes(zero(16_384, 3616), 20_000), (4, 1));
        assert_eq!(parts(zero(16_384, 3615), 20_000), [part(4, 0, 3615)]);
        assert_eq!(plan(zero(16_384, 9000), 20_000).length, Length::AtLeast(25_384));
    }

    #[test]
    fn a_truncate_takes_all_behind_the_new_end() {
        let cut = |byte_len| Clear::Truncate { byte_len };
        let all_from = |first| (first, CHUNK_SLICES_MAX - first);
        assert_eq!(holes(cut(0), 20_000), all_from(0));
        assert_eq!(plan(cut(8192), 20_000).parts.to_vec(), []);
        assert_eq!(holes(cut(8193), 20_000), all_from(3));
        let part = Part { slice: 2, from: 1, len: 4095 };
        assert_eq!(plan(cut(8193), 20_000).parts.to_vec(), [part]);
        assert_eq!(plan(cut(20_001), 20_000).parts.to_vec(), []);
    }

    #[test]
    fn no_range_is_empty_or_reaches_past_the_limit() {
        let head = Head { byte_len: 5, limit_bytes: 8192, ..Head::default() };
        let over = |clear| matches!(Plan::of(&clear, head), Err(ChangeError::LimitExceeded { .. }));
        assert!(over(Clear::Trim { offset: 1, byte_len: 8192 }));
        assert!(over(Clear::Zero { offset: u64::MAX, byte_len: 8192 }));
        assert!(over(Clear::Truncate { byte_len: 8193 }));
        let empty = Plan::of(&Clear::Trim { offset: 1, byte_len: 0 }, head);
        assert!(matches!(empty, Err(ChangeError::Length { byte_len: 0 })));
    }
}
