//! Receive buffers: where they are posted, who holds them, and how they come home.
//!
//! | file | what it does |
//! |---|---|
//! | `slots` | receive slots: a header and a buffer each |
//! | `shared` | receive queues that the links of a class share |
//! | `spare` | unused slots, and when their memory returns to the system |
//! | `take_in` | hands what arrived to its link |

mod shared;
mod slots;
mod spare;
mod take_in;

use crate::bell::Bell;
use crate::config::{EndpointConfig, Receiving, Sizes};
use crate::conn::{Conn, Links, Phase, RecvQueue};
use crate::error::LinkError;
use crate::ids::LinkId;
use crate::limits::SLOTS_AT_A_TIME;
use crate::message::{Chunk, Message};
use crate::stats::EndpointStats;
use crate::wr_id::WrId;
use shared::SharedQueues;
use slots::{Home, Slots};
use std::hint::cold_path;
use std::sync::Arc;
use towpath_base::Time;
use towpath_memory::{Region, RegionId};
use towpath_proto::{ChannelId, ChunkRef, Class};
use towpath_verbs::{Device, RecvWr, SrqNum, VerbError};

/// The receive buffers of an endpoint.
///
/// Each link may hold its share of them: [`is_short`](Self::is_short) says when that counts.
pub(crate) struct Rx {
    slots: Slots,
    /// None where each path has a receive queue of its own.
    shared: Option<SharedQueues>,
    sizes: Sizes,
    receiving: Receiving,
    /// Messages that the application is done with; no more than there are receive buffers.
    released: Vec<Message>,
    /// Slots whose chunks nobody kept, while a run of receives is taken in.
    unkept: Vec<u32>,
    /// CRC32C of the pages of the chunk that is being taken in.
    page_crcs: Vec<u32>,
    /// So much is held of all links that each takes in no more than its share.
    is_short: bool,
}

impl Rx {
    /// Pieces that come back from other threads ring `bell`.
    pub(crate) fn new(config: &EndpointConfig, receiving: Receiving, bell: &Arc<Bell>) -> Self {
        let sizes = config.sizes;
        let depth = sizes.receives_of_class(receiving) as u32;
        Self {
            slots: Slots::new(
                sizes.slots_max(receiving),
                sizes.chunk_bytes_max,
                (Arc::clone(bell), config.timing.memory_quiet),
            ),
            shared: receiving.is_shared().then(|| SharedQueues::new(depth)),
            sizes,
            receiving,
            released: Vec::new(),
            unkept: Vec::new(),
            page_crcs: Vec::new(),
            is_short: false,
        }
    }

    /// The key of a region that receive buffers lie in.
    pub(crate) fn lkey_of(&self, region: RegionId) -> Option<u32> {
        self.slots.lkey_of(region)
    }

    /// Hands a kept piece out.
    #[inline]
    pub(crate) fn lend_out(&self, piece: &ChunkRef, channel: ChannelId) -> Option<Chunk> {
        self.slots.lend_out(piece, channel)
    }

    /// The queue that the links of a class share, made when the first of them is; none where each
    /// path has its own.
    pub(crate) fn shared_queue<D: Device>(
        &mut self,
        device: &mut D,
        class: Class,
    ) -> Result<Option<SrqNum>, VerbError> {
        self.shared.as_mut().map(|shared| shared.make(device, class)).transpose()
    }

    /// Gets the receives that a new link adds, and queues them for posting.
    pub(crate) fn fill_link<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        links: &mut Links,
        (id, class): (LinkId, Class),
    ) -> Result<(), LinkError> {
        if self.shared.is_some() {
            return self.fill_shared(device, links, class);
        }
        let (count, paths) =
            links.find(id).map_or((0, 1), |conn| (conn.paths.len(), conn.qp_paths()));
        // What the other links may still need stays theirs.
        let spare = |conn: &Conn| self.sizes.spare_receives(conn.qp_paths());
        let others = links.iter().filter(|conn| conn.id != id && conn.phase != Phase::Draining);
        let theirs: usize = others.map(|conn| spare(conn).saturating_sub(conn.held)).sum();
        self.slots.reserve(device, self.sizes.receives_of_link(paths) + theirs)?;
        for path in 0..count as u8 {
            self.fill_path(links, class, Home { link: id, path });
        }
        Ok(())
    }

    fn fill_shared<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        links: &mut Links,
        class: Class,
    ) -> Result<(), LinkError> {
        self.retarget(links, class);
        let queue = self.shared.as_mut().and_then(|shared| shared.of_mut(class));
        // What is held now is replaced when it comes home: no reason to refuse a newcomer.
        let missing = queue.map_or(0, |queue| queue.missing()).min(self.slots.available());
        self.slots.reserve(device, missing)?;
        for _ in 0..missing {
            let Some(slot) = self.slots.take_free(class, None) else { break };
            self.repost(links, slot);
        }
        Ok(())
    }

    /// Queues receives for the queue of a path.
    fn fill_path(&mut self, links: &mut Links, class: Class, home: Home) {
        let Some(conn) = links.find_mut(home.link) else { return };
        let receives = self.sizes.receives_per_path(conn.qp_paths());
        if let Some(path) = conn.paths.get_mut(usize::from(home.path)) {
            path.recvs.set_target(receives);
        }
        for _ in 0..receives {
            let Some(slot) = self.slots.take_free(class, Some(home)) else { break };
            self.repost(links, slot);
        }
    }

    /// Gets receives for a path's own queue that was made anew; a shared queue has them.
    pub(crate) fn refill<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        links: &mut Links,
        (link, path): (LinkId, u8),
    ) {
        let Some(conn) = links.find(link).filter(|_| self.shared.is_none()) else { return };
        let class = conn.class.class;
        // At the limit those that there are have to do; what is held comes home some time.
        let _ = self.slots.reserve(device, self.sizes.receives_per_path(conn.qp_paths()));
        self.fill_path(links, class, Home { link, path });
    }

    /// A link of a class has come or gone: as much is to be posted as those need that are there.
    pub(crate) fn retarget(&mut self, links: &Links, class: Class) {
        let links = links.of_class(class).filter(|conn| conn.phase != Phase::Draining);
        let target = self.sizes.receives_of_links(self.receiving, links.map(Conn::qp_paths));
        if let Some(queue) = self.shared.as_mut().and_then(|shared| shared.of_mut(class)) {
            queue.set_target(target);
        }
    }

    /// Gives a received message's buffers back, in the next [`take_released`](Self::take_released).
    #[inline]
    pub(crate) fn release(&mut self, message: Message) {
        self.released.push(message);
    }

    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Takes home what was [released](Self::release); false when there was nothing.
    pub(crate) fn take_released(&mut self, links: &mut Links) -> bool {
        if self.released.is_empty() {
            return false;
        }
        let mut released = std::mem::take(&mut self.released);
        // Messages of one channel are told of together.
        let mut origin = None;
        let (mut held, mut count) = (0, 0);
        for message in released.drain(..) {
            let another = (message.link, message.channel);
            if let Some(before) = origin.replace(another).filter(|before| *before != another) {
                let_go_of(links, before, held, count);
                (held, count) = (0, 0);
            }
            let chunks = self.take_chunks(links, message);
            (held, count) = (held + chunks.0, count + chunks.1);
        }
        if let Some(last) = origin {
            let_go_of(links, last, held, count);
        }
        self.released = released;
        true
    }

    /// Takes the pieces of a message home: of how many slots they were the last, and how many there
    /// were.
    #[inline]
    fn take_chunks(&mut self, links: &mut Links, mut message: Message) -> (usize, u32) {
        let (mut held, mut count) = (0, 0);
        for chunk in message.chunks.drain(..).rev() {
            if let Some((slot, _)) = self.slots.take_back(chunk) {
                if self.slots.let_go(slot) {
                    self.repost_here(links, slot);
                    held += 1;
                }
                count += 1;
            }
        }
        (held, count)
    }

    /// Gives a received piece's buffer back.
    pub(crate) fn release_chunk(&mut self, links: &mut Links, chunk: Chunk) {
        if let Some((slot, channel)) = self.slots.take_back(chunk) {
            self.piece_home(links, slot, Some(channel));
        }
    }

    /// Takes home what was dropped somewhere; returns how many pieces.
    pub(crate) fn take_returns(&mut self, links: &mut Links) -> usize {
        let mut count = 0;
        while let Some((slot, channel)) = self.slots.pop_returned() {
            self.piece_home(links, slot, Some(channel));
            count += 1;
        }
        count
    }

    /// Whether pieces that were dropped somewhere wait to be taken back.
    pub(crate) fn has_returned(&self) -> bool {
        self.slots.has_returned()
    }

    /// A piece that a link or the application held is done with: its slot goes home with the last
    /// of them. `channel` is that whose credit the link has to be told of.
    pub(crate) fn piece_home(&mut self, links: &mut Links, slot: u32, channel: Option<ChannelId>) {
        let home = self.slots.at(slot).and_then(|slot| slot.home);
        let is_last = self.slots.let_go(slot);
        if is_last {
            self.repost(links, slot);
        }
        if let Some(home) = home {
            let_go(links, (home.link, channel), usize::from(is_last), 1);
        }
    }

    /// Puts a slot that is at home back to where it can be filled, or with the free ones.
    #[inline(never)]
    fn repost(&mut self, links: &mut Links, slot: u32) {
        self.repost_here(links, slot);
    }

    /// As [`repost`](Self::repost), compiled into its caller: for where all slots come home.
    #[inline(always)]
    fn repost_here(&mut self, links: &mut Links, slot: u32) {
        let Some(entry) = self.slots.at(slot) else { return };
        let Some(shared) = &mut self.shared else {
            return self.repost_to_path(links, slot);
        };
        let queue = shared.of_mut(entry.class).filter(|queue| queue.missing() > 0);
        if let Some(queue) = queue
            && let Some(wr) = entry.lend()
        {
            queue.push(wr);
        } else {
            self.slots.put_free(slot);
        }
    }

    #[inline(never)]
    fn repost_to_path(&mut self, links: &mut Links, slot: u32) {
        let Some(entry) = self.slots.at(slot) else { return };
        let home = entry.home;
        let conn = home.and_then(|home| links.find_mut(home.link));
        let path = conn
            .filter(|conn| conn.phase != Phase::Draining)
            .and_then(|conn| conn.paths.get_mut(usize::from(home?.path)))
            .filter(|path| !path.has_failed && path.recvs.missing() > 0);
        let (Some(path), Some(home)) = (path, home) else { return self.slots.put_free(slot) };
        if let Some(wr) = entry.lend() {
            path.recvs.push(wr);
        }
        links.touch(home.link.index);
    }

    /// Whether receives may be posted behind what is sent, and those of a shared queue as late as
    /// in the next poll: where nothing arrives before.
    pub(crate) fn can_wait(&self) -> bool {
        self.receiving == Receiving::Replenished
    }

    /// Posts the receives that came home. Every one of them is posted again before the device may
    /// take in packets: see [`Sizes::receive_reserve`].
    pub(crate) fn post<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        links: &mut Links,
        stats: &mut EndpointStats,
    ) {
        let mut place = 0;
        while let Some(index) = links.ready_at(place) {
            place += 1;
            self.post_of(device, links, index, stats);
        }
        if self.shared.as_ref().is_some_and(|shared| shared.has_work) {
            self.post_shared(device, links, stats);
        }
        if cfg!(debug_assertions) && stats.posts_refused == 0 {
            self.check(links);
        }
    }

    /// The same of the queues that links share.
    fn post_shared<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        links: &mut Links,
        stats: &mut EndpointStats,
    ) {
        let mut has_work = !self.replace_held(device, links);
        let Some(shared) = &mut self.shared else { return };
        for (srq, queue) in shared.iter_mut() {
            let post = |wrs: &_| device.post_srq_recv(*srq, wrs).err().map(|bad| bad.index);
            let refused = queue.post(post);
            has_work |= !refused.is_empty();
            unpost(&mut self.slots, refused, stats);
        }
        shared.has_work = has_work;
    }

    /// The same of one link: acks, and chunks where its paths have queues of their own.
    #[inline]
    pub(crate) fn post_of<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        links: &mut Links,
        index: u16,
        stats: &mut EndpointStats,
    ) {
        let Some(conn) = links.at(index) else { return };
        if !conn.control.repost.is_empty() {
            stats.posts_refused += conn.control.post(device);
        }
        if self.shared.is_none() {
            for path in &mut conn.paths {
                let qp_num = path.qp_num;
                let post = |wrs: &_| device.post_recv(qp_num, wrs).err().map(|bad| bad.index);
                unpost(&mut self.slots, path.recvs.post(post), stats);
            }
        }
    }

    /// Takes receives back that were not posted.
    pub(crate) fn unpost(&mut self, unposted: Vec<RecvWr>) {
        unpost(&mut self.slots, unposted, &mut EndpointStats::default());
    }

    /// Has others take the places of buffers that did not come back in the application's turn;
    /// false when there are not as many.
    fn replace_held<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        links: &mut Links,
    ) -> bool {
        let Some(shared) = &self.shared else { return true };
        let posted: usize = shared.iter().map(|(_, queue)| queue.filled()).sum();
        self.is_short = self.slots.used().saturating_sub(posted) >= self.sizes.held_shares().0;
        for class in Class::ALL {
            while self.is_missing(class) {
                let Some(slot) = self.spare_slot(device, class, None) else { return false };
                self.repost(links, slot);
            }
        }
        true
    }

    fn is_missing(&self, class: Class) -> bool {
        let queue = self.shared.as_ref().and_then(|shared| shared.of(class));
        queue.is_some_and(|queue| queue.missing() > 0)
    }

    /// How many buffers a link may hold and still take in chunks of data.
    #[inline]
    fn share(&self) -> usize {
        if self.is_short { self.sizes.held_shares().1 } else { usize::MAX }
    }

    /// A receive slot that is not posted, of new memory when there is none.
    fn spare_slot<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        class: Class,
        home: Option<Home>,
    ) -> Option<u32> {
        if let Some(slot) = self.slots.take_free(class, home) {
            return Some(slot);
        }
        // At the limit, or out of memory: what is held comes home some time.
        let _ = self.slots.reserve(device, SLOTS_AT_A_TIME.min(self.slots.vacant()));
        self.slots.take_free(class, home)
    }

    /// The inequality of [`Sizes::receive_reserve`]: whatever is not held is posted.
    fn check(&self, links: &Links) {
        let check = |queue: &RecvQueue, held: usize| {
            let (posted, target) = (queue.posted(), queue.target());
            debug_assert!(posted + held >= target, "{posted} posted, {held} held of {target}");
        };
        for (class, queue) in self.shared.iter().flat_map(SharedQueues::iter) {
            check(queue, links.of_class(class).map(|conn| conn.held).sum());
        }
        for conn in links.iter().filter(|conn| conn.phase == Phase::Up) {
            let held = if conn.qp_paths() == 1 { conn.held } else { 0 };
            let live = conn.paths.iter().filter(|path| !path.has_failed);
            live.for_each(|path| check(&path.recvs, held));
        }
    }

    /// When [`shrink`](Self::shrink) has something to do.
    pub(crate) fn shrink_due(&self, now: Time) -> Time {
        self.slots.shrink_due(now)
    }

    /// Gives memory back that has not been needed for a while. Not for a device that pins it.
    pub(crate) fn shrink(&mut self, now: Time) {
        self.slots.shrink(now);
    }

    /// Receives that are posted, and that should be.
    pub(crate) fn posted_and_wanted(&self, links: &Links) -> (usize, usize) {
        let shared = self.shared.iter().flat_map(SharedQueues::iter).map(|(_, queue)| queue);
        let live = links.iter().filter(|conn| conn.phase != Phase::Draining);
        let of_paths = live.flat_map(|conn| &conn.paths).map(|path| &path.recvs);
        shared.chain(of_paths).fold((0, 0), |(posted, wanted), queue| {
            (posted + queue.posted(), wanted + queue.target())
        })
    }

    /// Its slots, for whoever looks at what they are used for.
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }
}

/// Tells a link of chunks that are home, if any are: those of another endpoint's messages find
/// their own way.
fn let_go_of(links: &mut Links, (link, channel): (LinkId, ChannelId), held: usize, count: u32) {
    if count > 0 {
        let_go(links, (link, Some(channel)), held, count);
    }
}

/// So many pieces of a channel are not held any more, nor are `held` buffers; see
/// [`Rx::piece_home`].
fn let_go(
    links: &mut Links,
    (link, channel): (LinkId, Option<ChannelId>),
    held: usize,
    pieces: u32,
) {
    let Some(conn) = links.find_mut(link) else { return };
    conn.held = conn.held.saturating_sub(held);
    if let (Some(found), Some(channel)) = (conn.link.as_mut(), channel) {
        found.release(channel, pieces);
    }
    links.touch(link.index);
}

/// Takes receives back that the device refused, or that were not posted; a link that lacks them is
/// slower and may lose chunks, which are sent again.
#[inline]
fn unpost(slots: &mut Slots, unposted: Vec<RecvWr>, stats: &mut EndpointStats) {
    for wr in unposted {
        cold_path();
        stats.posts_refused += 1;
        if let Some(WrId::DataRecv { slot }) = WrId::unpack(wr.wr_id)
            && slots.reclaim(slot).is_some()
        {
            slots.put_free(slot);
        }
    }
}
