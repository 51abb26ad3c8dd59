//! Taking in what arrived: each chunk goes to its link, which keeps pieces of it or does not.

use super::Rx;
use super::slots::{Slot, Slots};
use crate::conn::{Conn, Links, Phase};
use crate::ids::LinkId;
use crate::limits::SLOTS_AT_A_TIME;
use crate::message::Loan;
use crate::secure::LinkSeal;
use crate::stats::EndpointStats;
use crate::wr_id::{NO_QUEUE, WrId};
use std::hint::cold_path;
use std::sync::Arc;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::limits::HEADER_BYTES;
use towpath_proto::wire::{ChunkHeader, FrameTable, Kind};
use towpath_proto::{Arrival, BufToken, PathId, PieceBuffers, Verdict};
use towpath_verbs::{Device, Wc, WcStatus};

/// No slot: what has no payload to keep needs none.
const NO_SLOT: BufToken = BufToken(u32::MAX);

impl Rx {
    /// Takes in the receives in front that came over one queue pair; returns how many, at least
    /// one.
    pub(crate) fn take_in<D: Device<Memory = Region>>(
        &mut self,
        (device, links): (&mut D, &mut Links),
        stats: &mut EndpointStats,
        now: Time,
        wcs: &[Wc],
    ) -> usize {
        let way = links.of_qp(wcs[0].qp_num);
        let share = self.share();
        let conn = way.and_then(|(index, path)| Some((links.at(index)?, path)));
        let Some((conn, path)) = conn.filter(|(conn, _)| conn.phase == Phase::Up) else {
            return self.pass_over(stats, &wcs[0]);
        };
        let Conn { id, link: Some(link), class, held, seal, .. } = conn else {
            return self.pass_over(stats, &wcs[0]);
        };
        let Self { slots, queues, unkept, page_crcs, .. } = self;
        let (id, mut taken) = (*id, 0);
        for wc in wcs.iter().take_while(|wc| wc.qp_num == wcs[0].qp_num) {
            let Some(WrId::DataRecv { slot: number }) = WrId::unpack(wc.wr_id) else { break };
            taken += 1;
            let Some(slot) = slots.reclaim(number) else {
                cold_path();
                stats.strays += 1;
                continue;
            };
            // It is not posted any more, on the queue that it was posted to.
            queues.on_completed(slot.queue, wc.status);
            let received = match seal.as_deref_mut() {
                None => take_whole(slot, wc, stats),
                Some(seal) => open_sealed(slot, wc, stats, (seal, now)),
            };
            let Some((header, loan)) = received else {
                unkept.push(number);
                continue;
            };
            class.note(wc.tclass);
            // Parts of pieces that have their buffers are taken all the same: they bring them home.
            let may_keep = *held < share;
            let received_at = wc.timestamp.unwrap_or(now);
            let (body, buf) = (loan.bytes(), BufToken(number));
            let arrival = Arrival { header: &header, body, buf, may_keep, received_at };
            let of = (slot.queue, id);
            page_crcs.clear();
            let (device, slots) = (&mut *device, &mut *slots);
            let mut pieces = Pieces { device, slots, of, unkept, held, share, page_crcs };
            let verdict = link.handle_chunk(now, PathId(path), &arrival, &mut pieces);
            drop(loan);
            match verdict {
                Verdict::Kept(pieces) => {
                    *held += 1;
                    if let Some(slot) = slots.at(number) {
                        slot.keep(pieces, id, page_crcs);
                    }
                }
                Verdict::Recycle => {
                    let is_data = header[1] == Kind::Data as u8;
                    stats.over_share += u64::from(is_data && !may_keep);
                    unkept.push(number);
                }
            }
        }
        links.touch(id.index);
        self.post_unkept();
        taken
    }

    /// Posts the slots again whose chunks nobody kept.
    #[inline(always)]
    fn post_unkept(&mut self) {
        while let Some(number) = self.unkept.pop() {
            self.repost(number);
        }
    }

    /// A receive is for nobody.
    #[cold]
    fn pass_over(&mut self, stats: &mut EndpointStats, wc: &Wc) -> usize {
        let slot = match WrId::unpack(wc.wr_id) {
            Some(WrId::DataRecv { slot }) => slot,
            _ => u32::MAX,
        };
        let Some(Slot { queue, .. }) = self.slots.reclaim(slot) else {
            stats.strays += 1;
            return 1;
        };
        stats.note_recv(wc);
        self.queues.on_completed(*queue, wc.status);
        self.repost(slot);
        1
    }

    /// Hands a frame of a stream to its link; false when there is no buffer for what it brings. The
    /// link checks header, generation and payload as those of any path.
    pub(crate) fn take_frame<D: Device<Memory = Region>>(
        &mut self,
        (device, links): (&mut D, &mut Links),
        (index, path): (u16, PathId),
        (header, payload): (&[u8; HEADER_BYTES], &[u8]),
        now: Time,
    ) -> bool {
        let mut slot = None;
        let is_data = header[1] == Kind::Data as u8;
        // A body that fits no buffer is refused for its length.
        let fits = is_data && payload.len() <= self.sizes.chunk_bytes_max as usize;
        let share = self.share();
        // Slots that are taken here may be missed elsewhere.
        self.queues.has_changed = true;
        if fits {
            let held = links.at(index).map_or(0, |conn| conn.held);
            slot = if held < share { self.spare_slot(device, NO_QUEUE) } else { None };
            // What completes a piece that has its buffer brings that home.
            if slot.is_none() && !brings_part(header, payload) {
                return false;
            }
        }
        let body = if is_data && !fits { &[] } else { payload };
        let Self { slots, unkept, page_crcs, .. } = self;
        let conn = links.at(index).filter(|conn| conn.phase == Phase::Up);
        let Some(Conn { id, link: Some(link), held, .. }) = conn else {
            if let Some(slot) = slot {
                slots.put_free(slot);
            }
            return true;
        };
        let of = (NO_QUEUE, *id);
        let buf = slot.map_or(NO_SLOT, BufToken);
        let arrival = Arrival { header, body, buf, may_keep: slot.is_some(), received_at: now };
        page_crcs.clear();
        let mut pieces = Pieces { device, slots: &mut *slots, of, unkept, held, share, page_crcs };
        let verdict = link.handle_chunk(now, path, &arrival, &mut pieces);
        if let Some(number) = slot {
            match (verdict, slots.at(number)) {
                (Verdict::Kept(pieces), Some(slot)) => {
                    let filled = slot.fill(body);
                    debug_assert!(filled, "the slot is free, and the body fits");
                    slot.keep(pieces, *id, page_crcs);
                    *held += 1;
                }
                _ => slots.put_free(number),
            }
        }
        self.post_unkept();
        true
    }
}

/// What a completed receive brought: a header, and what holds the body.
#[inline(always)]
fn take_whole(
    slot: &mut Slot,
    wc: &Wc,
    stats: &mut EndpointStats,
) -> Option<([u8; HEADER_BYTES], Arc<Loan>)> {
    let is_whole = wc.status == WcStatus::Success;
    let received = if is_whole { slot.received(wc.byte_len) } else { None };
    if received.is_none() {
        cold_path();
        stats.runts += u64::from(is_whole);
        stats.note_recv(wc);
    }
    received
}

/// The same of a sealed link, opened. None for what is refused.
#[inline(never)]
fn open_sealed(
    slot: &mut Slot,
    wc: &Wc,
    stats: &mut EndpointStats,
    (seal, now): (&mut LinkSeal, Time),
) -> Option<([u8; HEADER_BYTES], Arc<Loan>)> {
    // Nobody else has the body while it is opened.
    let (mut header, _) = take_whole(slot, wc, stats)?;
    let body = slot.body_mut()?;
    let length = seal.open(now, &mut header, body)?;
    body.set_len(length).ok()?;
    Some((header, slot.loan()))
}

/// Where a link puts pieces together that come in parts: spare receive slots.
struct Pieces<'a, D> {
    device: &'a mut D,
    slots: &'a mut Slots,
    /// The queue where they are posted later, and the link that they are for.
    of: (u32, LinkId),
    /// What is to be posted again.
    unkept: &'a mut Vec<u32>,
    /// Buffers that the link holds.
    held: &'a mut usize,
    /// How many it may hold.
    share: usize,
    /// CRC32C of the pages of the chunk.
    page_crcs: &'a mut Vec<u32>,
}

impl<D: Device<Memory = Region>> PieceBuffers for Pieces<'_, D> {
    #[cold]
    fn take(&mut self, length: u32) -> Option<BufToken> {
        if *self.held >= self.share {
            return None;
        }
        let (queue, holder) = self.of;
        let slot = self.slots.begin_piece(queue, holder, length).or_else(|| {
            // At the limit, or out of memory: what is held comes home some time.
            let count = SLOTS_AT_A_TIME.min(self.slots.vacant());
            let _ = self.slots.reserve(self.device, count);
            self.slots.begin_piece(queue, holder, length)
        })?;
        *self.held += 1;
        Some(BufToken(slot))
    }

    fn write(&mut self, buf: BufToken, at: u32, bytes: &[u8]) {
        self.slots.write(buf.0, at, bytes);
    }

    fn give_back(&mut self, buf: BufToken) {
        if self.slots.let_go(buf.0) {
            *self.held = self.held.saturating_sub(1);
            self.unkept.push(buf.0);
        }
    }

    fn note_pages(&mut self, crcs: &[u32]) {
        self.page_crcs.extend_from_slice(crcs);
    }
}

/// Whether a chunk of data brings a part of a piece. What breaks a rule is the link's to refuse.
#[cold]
fn brings_part(header: &[u8; HEADER_BYTES], body: &[u8]) -> bool {
    let Ok(header) = ChunkHeader::parse(header) else { return true };
    let Ok(table) = FrameTable::parse(&header, body) else { return true };
    table.first.is_part() || table.others().any(|(frame, _)| frame.is_part())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Bell;
    use crate::config::{EndpointConfig, Receiving};
    use towpath_device_roce::{RoceConfig, RoceDevice};
    use towpath_proto::{ChannelId, ChunkRef};
    use towpath_sim::{LinkConfig, World};

    const HOLDER: LinkId = LinkId { index: 0, life: 0 };

    /// The receive buffers of an endpoint, and its device.
    fn rx() -> (impl Device<Memory = Region>, Rx) {
        let (link, _) = World::new(1).link(&LinkConfig::default());
        let config = EndpointConfig::new().links_max(1);
        let rx = Rx::new(&config, Receiving::Shared, &Arc::new(Bell::new(None)));
        (RoceDevice::new(link, RoceConfig::default()), rx)
    }

    #[test]
    fn what_is_known_of_the_pages_of_a_buffer_is_forgotten_with_what_lay_there() {
        let (mut device, Rx { mut slots, .. }) = rx();
        slots.reserve(&mut device, 2).expect("memory");
        for crcs in [vec![7, 8], vec![], vec![9, 10]] {
            let number = slots.begin_piece(NO_QUEUE, HOLDER, 8192).expect("a free slot");
            slots.at(number).expect("it is there").keep(1, HOLDER, &mut crcs.clone());
            let [start, index, offset] = [0; 3];
            let piece = ChunkRef { buf: BufToken(number), start, index, offset, length: 8192 };
            let chunk = slots.lend_out(&piece, ChannelId(0)).expect("it is kept");
            assert_eq!(chunk.page_crcs(), crcs);
            assert!(slots.take_back(chunk).is_some() && slots.let_go(number));
            // The one that comes home last is taken first.
            slots.put_free(number);
        }
    }

    #[test]
    fn however_many_pieces_a_chunk_begins_a_link_holds_no_more_than_its_share() {
        let (mut device, mut rx) = rx();
        let Rx { slots, unkept, page_crcs, .. } = &mut rx;
        let (of, mut held) = ((NO_QUEUE, HOLDER), 1);
        let (device, held) = (&mut device, &mut held);
        let mut pieces = Pieces { device, slots, of, unkept, held, share: 3, page_crcs };
        let begun = [(); 4].map(|()| pieces.take(5_000));
        assert_eq!(begun.map(|buf| buf.is_some()), [true, true, false, false]);
        pieces.give_back(begun[0].expect("it was taken"));
        assert!(pieces.take(5_000).is_some());
        assert_eq!(*pieces.held, 3);
    }
}
