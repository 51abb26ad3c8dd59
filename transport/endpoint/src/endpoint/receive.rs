//! Receive slots: what came in them is taken in, and they are posted again.

use super::Endpoint;
use crate::ids::LinkId;
use crate::limits::SLOTS_AT_A_TIME;
use crate::links::{Conn, Path, Phase};
use crate::recv::{Home, RecvTable, Slot};
use crate::wr_id::WrId;
use std::hint::cold_path;
use std::slice;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::wire::Kind;
use towpath_proto::{Arrival, BufToken, ChannelId, Class, PathId, PieceBuffers, Verdict};
use towpath_verbs::{Device, Wc, WcStatus};

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Takes in the receives in front that came over one queue pair; returns how many, at least
    /// one.
    pub(super) fn on_recvs(&mut self, now: Time, wcs: &[Wc]) -> usize {
        let way = self.way_of(&wcs[0]);
        let share = self.share();
        let Self { recv, shared, links, stats, unkept, device, page_crcs, .. } = self;
        let conn = way.and_then(|(index, path)| Some((links.at(index)?, path)));
        let Some((conn, path)) = conn.filter(|(conn, _)| conn.phase == Phase::Up) else {
            return self.pass_over(&wcs[0]);
        };
        let Conn { id, link: Some(link), class, held, paths, .. } = conn else {
            return self.pass_over(&wcs[0]);
        };
        let home = Home { link: *id, path };
        // What a path's own queue gave away is replaced before the next is looked at.
        let most = if shared.is_some() { wcs.len() } else { 1 };
        let (mut taken, mut kept) = (0, None);
        for wc in wcs[..most].iter().take_while(|wc| wc.qp_num == wcs[0].qp_num) {
            let Some(WrId::DataRecv { slot: number }) = WrId::unpack(wc.wr_id) else { break };
            taken += 1;
            let Some(slot) = recv.reclaim(number) else {
                cold_path();
                stats.strays += 1;
                continue;
            };
            // It is not posted any more, on the queue that it was posted to.
            if let Some(shared) = shared {
                shared.uncount(slot.class);
            } else {
                cold_path();
                uncount(paths, path);
            }
            let is_whole = wc.status == WcStatus::Success;
            let received = if is_whole { slot.received(wc.byte_len) } else { None };
            let Some((header, loan)) = received else {
                cold_path();
                stats.runts += u64::from(is_whole);
                stats.note_recv(wc);
                unkept.push(number);
                continue;
            };
            class.note(wc.tclass);
            // Parts of pieces that have their buffers are taken all the same: they bring them home.
            let may_keep = *held < share;
            let received_at = wc.timestamp.unwrap_or(now);
            let (body, buf) = (loan.bytes(), BufToken(number));
            let arrival = Arrival { header: &header, body, buf, may_keep, received_at };
            let of = (slot.class, home);
            let (device, recv_table) = (&mut *device, &mut *recv);
            page_crcs.clear();
            let mut pieces =
                Pieces { device, recv: recv_table, of, unkept, held, share, page_crcs };
            let verdict = link.handle_chunk(now, PathId(path), &arrival, &mut pieces);
            drop(loan);
            match verdict {
                Verdict::Kept(pieces) => {
                    *held += 1;
                    if let Some(slot) = recv.at(number) {
                        slot.keep(pieces, home, page_crcs);
                    }
                    kept = Some(number);
                }
                Verdict::Recycle => {
                    let is_data = header[1] == Kind::Data as u8;
                    stats.over_share += u64::from(is_data && !may_keep);
                    unkept.push(number);
                }
            }
        }
        self.links.touch(home.link.index);
        self.give_slots_back(kept);
        taken
    }

    /// Posts the slots again whose chunks nobody kept, and replaces one that is kept.
    #[inline(always)]
    fn give_slots_back(&mut self, kept: Option<u32>) {
        while let Some(number) = self.unkept.pop() {
            self.repost(number);
        }
        if self.shared.is_none()
            && let Some(number) = kept
        {
            self.replace(number);
        }
    }

    /// The link and the path that a receive came over.
    #[inline]
    fn way_of(&mut self, wc: &Wc) -> Option<(u16, u8)> {
        if self.shared.is_some() {
            return self.links.of_qp(wc.qp_num);
        }
        cold_path();
        let Some(WrId::DataRecv { slot }) = WrId::unpack(wc.wr_id) else { return None };
        let home = self.recv.at(slot)?.home?;
        self.links.find(home.link).map(|_| (home.link.index, home.path))
    }

    /// A receive is for nobody.
    #[cold]
    fn pass_over(&mut self, wc: &Wc) -> usize {
        let Self { recv, shared, links, stats, .. } = self;
        let slot = match WrId::unpack(wc.wr_id) {
            Some(WrId::DataRecv { slot }) => slot,
            _ => u32::MAX,
        };
        let Some(Slot { class, home, .. }) = recv.reclaim(slot) else {
            stats.strays += 1;
            return 1;
        };
        stats.note_recv(wc);
        if let Some(shared) = shared {
            shared.uncount(*class);
        } else if let Some(home) = home
            && let Some(conn) = links.find_mut(home.link)
        {
            uncount(&mut conn.paths, home.path);
        }
        self.repost(slot);
        1
    }

    /// Fills a path's own queue up that has given the buffer of this slot away. A shared queue is
    /// filled up before it is posted to.
    #[inline(never)]
    fn replace(&mut self, given: u32) {
        let Some(&mut Slot { class, home, .. }) = self.recv.at(given) else { return };
        if let Some(slot) = self.spare_slot(class, home) {
            self.repost(slot);
        }
    }

    /// Has others take the places of buffers that did not come back in the application's turn.
    pub(super) fn replace_held(&mut self) {
        let Some(shared) = &self.shared else { return };
        let posted: usize = shared.iter().map(|queue| queue.posted + queue.repost.len()).sum();
        self.is_short = self.recv.used().saturating_sub(posted) >= self.config.sizes.held_shares().0;
        for class in Class::ALL {
            while self.shared.as_ref().is_some_and(|shared| shared.has_room(class)) {
                let Some(slot) = self.spare_slot(class, None) else { return };
                self.repost(slot);
            }
        }
    }

    /// How many buffers a link may hold and still take in chunks of data.
    #[inline]
    pub(super) fn share(&self) -> usize {
        if self.is_short { self.config.sizes.held_shares().1 } else { usize::MAX }
    }

    /// A receive slot that is not posted, of new memory when there is none.
    pub(super) fn spare_slot(&mut self, class: Class, home: Option<Home>) -> Option<u32> {
        if let Some(slot) = self.recv.take_free(class, home) {
            return Some(slot);
        }
        // At the limit, or out of memory: what is held comes home some time.
        let _ = self.recv.reserve(&mut self.device, SLOTS_AT_A_TIME.min(self.recv.vacant()));
        self.recv.take_free(class, home)
    }

    /// Puts a slot that is at home back to where it can be filled, or with the free ones.
    #[inline(never)]
    pub(super) fn repost(&mut self, slot: u32) {
        self.repost_here(slot);
    }

    /// As [`repost`](Self::repost), compiled into its caller: for where all slots come home.
    #[inline(always)]
    pub(super) fn repost_here(&mut self, slot: u32) {
        let Some(entry) = self.recv.at(slot) else { return };
        let Some(shared) = &mut self.shared else {
            return self.repost_to_path(slot);
        };
        let queue = shared.of_mut(entry.class).filter(|queue| queue.has_room());
        if let Some(queue) = queue
            && let Some(wr) = entry.lend()
        {
            // Pushed it would be copied twice.
            queue.repost.extend_from_slice(slice::from_ref(wr));
        } else {
            self.recv.put_free(slot);
        }
    }

    #[inline(never)]
    fn repost_to_path(&mut self, slot: u32) {
        let Some(entry) = self.recv.at(slot) else { return };
        let home = entry.home;
        let conn = home.and_then(|home| self.links.find_mut(home.link));
        let paths = conn.as_ref().map_or(1, |conn| conn.qp_paths());
        let per_path = self.config.sizes.receives_per_path(paths);
        let path = conn
            .filter(|conn| conn.phase != Phase::Draining)
            .and_then(|conn| conn.paths.get_mut(usize::from(home?.path)))
            .filter(|path| !path.has_failed);
        match (path, home) {
            (Some(path), Some(home)) if path.posted + path.repost.len() < per_path => {
                if let Some(wr) = entry.lend() {
                    path.repost.push(*wr);
                }
                self.links.touch(home.link.index);
            }
            _ => self.recv.put_free(slot),
        }
    }

    /// A piece that a link or the application held is done with: its slot goes home with the last
    /// of them. `channel` is that whose credit the link has to be told of.
    pub(super) fn piece_home(&mut self, slot: u32, channel: Option<ChannelId>) {
        let home = self.recv.at(slot).and_then(|slot| slot.home);
        let is_last = self.recv.let_go(slot);
        if is_last {
            self.repost(slot);
        }
        if let Some(home) = home {
            self.let_go((home.link, channel), usize::from(is_last), 1);
        }
    }

    /// So many pieces of a channel are not held any more, nor are `held` buffers; see
    /// [`piece_home`](Self::piece_home).
    pub(super) fn let_go(
        &mut self,
        (link, channel): (LinkId, Option<ChannelId>),
        held: usize,
        pieces: u32,
    ) {
        let Some(conn) = self.links.find_mut(link) else { return };
        conn.held = conn.held.saturating_sub(held);
        if let (Some(found), Some(channel)) = (conn.link.as_mut(), channel) {
            found.release(channel, pieces);
        }
        self.links.touch(link.index);
    }

    pub(super) fn take_returns(&mut self) -> usize {
        let mut count = 0;
        while let Some((slot, channel)) = self.recv.pop_returned() {
            self.piece_home(slot, Some(channel));
            count += 1;
        }
        count
    }
}

/// Where a link puts pieces together that come in parts: spare receive slots.
pub(super) struct Pieces<'a, D> {
    pub(super) device: &'a mut D,
    pub(super) recv: &'a mut RecvTable,
    /// The class and the link that they are for.
    pub(super) of: (Class, Home),
    /// What is to be posted again.
    pub(super) unkept: &'a mut Vec<u32>,
    /// Buffers that the link holds.
    pub(super) held: &'a mut usize,
    /// How many it may hold.
    pub(super) share: usize,
    /// CRC32C of the pages of the chunk.
    pub(super) page_crcs: &'a mut Vec<u32>,
}

impl<D: Device<Memory = Region>> PieceBuffers for Pieces<'_, D> {
    #[cold]
    fn take(&mut self, length: u32) -> Option<BufToken> {
        if *self.held >= self.share {
            return None;
        }
        let (class, home) = self.of;
        let slot = self.recv.begin_piece(class, home, length).or_else(|| {
            // At the limit, or out of memory: what is held comes home some time.
            let count = SLOTS_AT_A_TIME.min(self.recv.vacant());
            let _ = self.recv.reserve(self.device, count);
            self.recv.begin_piece(class, home, length)
        })?;
        *self.held += 1;
        Some(BufToken(slot))
    }

    fn write(&mut self, buf: BufToken, at: u32, bytes: &[u8]) {
        self.recv.write(buf.0, at, bytes);
    }

    fn give_back(&mut self, buf: BufToken) {
        if self.recv.let_go(buf.0) {
            *self.held = self.held.saturating_sub(1);
            self.unkept.push(buf.0);
        }
    }

    fn note_pages(&mut self, crcs: &[u32]) {
        self.page_crcs.extend_from_slice(crcs);
    }
}

/// A receive of a path's own queue is not posted any more.
#[inline(never)]
fn uncount(paths: &mut [Path], path: u8) {
    if let Some(path) = paths.get_mut(usize::from(path)) {
        path.posted = path.posted.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EndpointConfig;
    use crate::endpoint::join;
    use towpath_device_roce::{RoceConfig, RoceDevice};
    use towpath_proto::ChunkRef;
    use towpath_sim::{LinkConfig, World};

    /// An endpoint, and its link to another one.
    fn joined() -> (Endpoint<impl Device<Memory = Region>>, LinkId) {
        let (near, far) = World::new(1).link(&LinkConfig::default());
        let end = |link, seed| {
            let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
            let config = EndpointConfig::new().links_max(1).seed(seed);
            Endpoint::new(device, config).expect("an endpoint")
        };
        let (mut near, mut far) = (end(near, 1), end(far, 2));
        let (link, _) = join(&mut near, &mut far).expect("they fit");
        (near, link)
    }

    #[test]
    fn what_is_known_of_the_pages_of_a_buffer_is_forgotten_with_what_lay_there() {
        let (mut near, link) = joined();
        let (class, home) = (Class::default(), Home { link, path: 0 });
        let Endpoint { device, recv, .. } = &mut near;
        recv.reserve(device, 2).expect("memory");
        for crcs in [vec![7, 8], vec![], vec![9, 10]] {
            let number = recv.begin_piece(class, home, 8192).expect("a free slot");
            recv.at(number).expect("it is there").keep(1, home, &mut crcs.clone());
            let [start, index, offset] = [0; 3];
            let piece = ChunkRef { buf: BufToken(number), start, index, offset, length: 8192 };
            let chunk = recv.lend_out(&piece, ChannelId(0)).expect("it is kept");
            assert_eq!(chunk.page_crcs(), crcs);
            assert!(recv.take_back(chunk).is_some() && recv.let_go(number));
            // The one that comes home last is taken first.
            recv.put_free(number);
        }
    }

    #[test]
    fn however_many_pieces_a_chunk_begins_a_link_holds_no_more_than_its_share() {
        let (mut near, link) = joined();
        let Endpoint { device, recv, unkept, page_crcs, .. } = &mut near;
        let (of, mut held) = ((Class::default(), Home { link, path: 0 }), 1);
        let held = &mut held;
        let mut pieces = Pieces { device, recv, of, unkept, held, share: 3, page_crcs };
        let begun = [(); 4].map(|()| pieces.take(5_000));
        assert_eq!(begun.map(|buf| buf.is_some()), [true, true, false, false]);
        pieces.give_back(begun[0].expect("it was taken"));
        assert!(pieces.take(5_000).is_some());
        assert_eq!(*pieces.held, 3);
    }
}
