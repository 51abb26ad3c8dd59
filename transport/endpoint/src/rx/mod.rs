//! Receive buffers: where they are posted, who holds them, and how they come home.
//!
//! | file | what it does |
//! |---|---|
//! | `slots` | receive slots: a header and a buffer each |
//! | `queues` | receive queues, of paths or of classes: what is posted to each |
//! | `spare` | unused slots, and when their memory returns to the system |
//! | `take_in` | hands what arrived to its link |

mod queues;
mod slots;
mod spare;
mod take_in;

use crate::bell::Bell;
use crate::config::{EndpointConfig, Receiving, Sizes};
use crate::conn::{Conn, Links, Phase, Receives};
use crate::error::LinkError;
use crate::ids::LinkId;
use crate::limits::SLOTS_AT_A_TIME;
use crate::message::{Chunk, Message};
use crate::stats::EndpointStats;
use crate::wr_id::{NO_QUEUE, WrId};
use queues::RecvQueues;
use slots::Slots;
use smallvec::SmallVec;
use std::hint::cold_path;
use std::sync::Arc;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::{ChannelId, Class};
use towpath_verbs::{Device, RecvWr, VerbError};

/// The receive buffers of an endpoint.
///
/// Each link may hold its share of them, which counts while [`is_short`](Self::is_short) is set.
pub(crate) struct Rx {
    slots: Slots,
    queues: RecvQueues,
    sizes: Sizes,
    receiving: Receiving,
    /// Messages that the application is done with; no more than there are receive buffers.
    released: Vec<Message>,
    /// Slots whose chunks nobody kept, while a run of receives is taken in.
    unkept: Vec<u32>,
    /// CRC32C of the pages of the chunk that is being taken in.
    page_crcs: Vec<u32>,
    /// All links together hold so many buffers that each is kept to its share.
    is_short: bool,
}

impl Rx {
    /// Pieces that come back from other threads ring `bell`.
    pub(crate) fn new(config: &EndpointConfig, receiving: Receiving, bell: &Arc<Bell>) -> Self {
        let sizes = config.sizes;
        Self {
            slots: Slots::new(
                sizes.slots_max(receiving),
                sizes.chunk_bytes_max,
                (Arc::clone(bell), config.timing.memory_quiet),
            ),
            queues: RecvQueues::default(),
            sizes,
            receiving,
            released: Vec::new(),
            unkept: Vec::new(),
            page_crcs: Vec::new(),
            is_short: false,
        }
    }

    /// What the receives of a path are posted to; `paths` of its link have a queue pair.
    pub(crate) fn receives_of<D: Device>(
        &mut self,
        device: &mut D,
        class: Class,
        paths: usize,
    ) -> Result<Receives, VerbError> {
        let depth = self.sizes.receives_of_class(self.receiving) as u32;
        let is_shared = self.receiving.is_shared() && paths > 0;
        let srq = is_shared.then(|| self.queues.make_shared(device, class, depth)).transpose()?;
        Ok((srq, self.sizes.receives_per_path(paths.max(1))))
    }

    /// Gets the receives that a new link adds, and queues them for posting.
    pub(crate) fn fill_link<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        links: &mut Links,
        (id, class): (LinkId, Class),
    ) -> Result<(), LinkError> {
        let Some(conn) = links.find_mut(id) else { return Ok(()) };
        let receives = self.sizes.receives_per_path(conn.qp_paths());
        for path in &mut conn.paths {
            path.queue = self.queues.open(class, path.qp_num, NO_QUEUE);
            self.queues.set_target(path.queue, receives);
        }
        let mut queues: SmallVec<[u32; 4]> = conn.paths.iter().map(|path| path.queue).collect();
        queues.dedup();
        self.retarget(links, class);
        let missing = queues.iter().map(|&queue| self.queues.missing(queue)).sum();
        let count = if self.receiving.is_shared() {
            // Held buffers are posted when they come home: no reason to refuse a new link.
            self.slots.available().min(missing)
        } else {
            // Receives that the other links may still need stay theirs.
            let spare = |conn: &Conn| self.sizes.spare_receives(conn.qp_paths());
            let others = links.iter().filter(|conn| conn.id != id && conn.phase != Phase::Draining);
            let theirs: usize = others.map(|conn| spare(conn).saturating_sub(conn.held)).sum();
            missing + links.find(id).map_or(0, spare) + theirs
        };
        self.slots.reserve(device, count)?;
        queues.into_iter().for_each(|queue| self.fill(queue));
        Ok(())
    }

    /// Queues free slots for posting, as many as a queue lacks.
    fn fill(&mut self, queue: u32) {
        for _ in 0..self.queues.missing(queue) {
            let Some(slot) = self.slots.take_free(queue, None) else { return };
            self.repost(slot);
        }
    }

    /// Gets receives for a path whose queue pair was made anew. A shared queue has them already.
    pub(crate) fn refill(&mut self, links: &mut Links, (link, path): (LinkId, u8)) {
        let Some(conn) = links.find_mut(link) else { return };
        let (class, receives) = (conn.class.class, self.sizes.receives_per_path(conn.qp_paths()));
        let path = &mut conn.paths[usize::from(path)];
        path.queue = self.queues.open(class, path.qp_num, path.queue);
        if !self.receiving.is_shared() {
            self.queues.set_target(path.queue, receives);
        }
    }

    /// The queue pair of a path is destroyed.
    pub(crate) fn close(&mut self, queue: u32) {
        let unposted = self.queues.close(queue);
        self.unpost(unposted, &mut EndpointStats::default());
    }

    /// Whether the device has given back all receives of a closed queue.
    pub(crate) fn is_drained(&self, queue: u32) -> bool {
        self.queues.is_drained(queue)
    }

    /// Forgets the queue of a path that is gone.
    pub(crate) fn forget(&mut self, queue: u32) {
        self.queues.forget(queue);
    }

    /// Sets how much is posted for the links of a class, after one of them has come or gone.
    pub(crate) fn retarget(&mut self, links: &Links, class: Class) {
        let Some(queue) = self.queues.of_class(class) else { return };
        let links = links.of_class(class).filter(|conn| conn.phase != Phase::Draining);
        let target = self.sizes.receives_of_links(self.receiving, links.map(Conn::qp_paths));
        self.queues.set_target(queue, target);
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
        // Consecutive messages of one channel are reported together.
        let mut origin = None;
        let (mut held, mut count) = (0, 0);
        for message in released.drain(..) {
            let another = (message.link, message.channel);
            if let Some(before) = origin.replace(another).filter(|before| *before != another) {
                let_go_of(links, before, held, count);
                (held, count) = (0, 0);
            }
            let chunks = self.take_chunks(message);
            (held, count) = (held + chunks.0, count + chunks.1);
        }
        if let Some(last) = origin {
            let_go_of(links, last, held, count);
        }
        self.released = released;
        true
    }

    /// Takes the pieces of a message home: how many slots they emptied, and how many pieces there
    /// were.
    #[inline]
    fn take_chunks(&mut self, mut message: Message) -> (usize, u32) {
        let (mut held, mut count) = (0, 0);
        for chunk in message.chunks.drain(..).rev() {
            if let Some((slot, _)) = self.slots.take_back(chunk) {
                if self.slots.let_go(slot) {
                    self.repost_here(slot);
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

    /// Takes home pieces that were dropped elsewhere; returns how many.
    pub(crate) fn take_returns(&mut self, links: &mut Links) -> usize {
        let mut count = 0;
        while let Some((slot, channel)) = self.slots.pop_returned() {
            self.piece_home(links, slot, Some(channel));
            count += 1;
        }
        count
    }

    /// Takes home a piece that a link or the application held; its slot follows with its last
    /// piece. The link is told of the credit of `channel`.
    pub(crate) fn piece_home(&mut self, links: &mut Links, slot: u32, channel: Option<ChannelId>) {
        let holder = self.slots.at(slot).and_then(|slot| slot.holder);
        let is_last = self.slots.let_go(slot);
        if is_last {
            self.repost(slot);
        }
        if let Some(link) = holder {
            let_go(links, (link, channel), usize::from(is_last), 1);
        }
    }

    /// Puts a slot that is at home back in its queue, or with the free ones.
    #[inline(never)]
    fn repost(&mut self, slot: u32) {
        self.repost_here(slot);
    }

    /// As [`repost`](Self::repost), compiled into its caller: for where all slots come home.
    #[inline(always)]
    fn repost_here(&mut self, slot: u32) {
        let Some(entry) = self.slots.at(slot) else { return };
        let queue = entry.queue;
        if !self.queues.offer(queue, || entry.lend()) {
            self.slots.put_free(slot);
        }
    }

    /// Whether receives may be posted after sends, and those of a shared queue as late as in the
    /// next poll, because nothing arrives before.
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
            post_acks(device, links, index, stats);
        }
        if self.queues.has_changed {
            self.post_queues(device, stats);
        }
        if cfg!(debug_assertions) && stats.posts_refused == 0 {
            self.check(links);
        }
    }

    /// Posts the receives for chunks.
    fn post_queues<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        stats: &mut EndpointStats,
    ) {
        if self.receiving.is_shared() {
            let (posted, waiting, _) = self.queues.census();
            let held = self.slots.used().saturating_sub(posted + waiting);
            self.is_short = held >= self.sizes.held_shares().0;
        }
        // Spare slots replace buffers that did not come back in the application's turn.
        let mut place = 0;
        while let Some(queue) = self.queues.touched(place) {
            place += 1;
            for _ in 0..self.queues.missing(queue) {
                let Some(slot) = self.spare_slot(device, queue) else { break };
                self.repost(slot);
            }
        }
        let refused = self.queues.post(device);
        self.unpost(refused, stats);
    }

    /// Takes receives back that the device refused, or that were not posted; a link that lacks them
    /// is slower and may lose chunks, which are sent again.
    fn unpost(&mut self, unposted: Vec<RecvWr>, stats: &mut EndpointStats) {
        for wr in unposted {
            cold_path();
            stats.posts_refused += 1;
            if let Some(WrId::DataRecv { slot }) = WrId::unpack(wr.wr_id)
                && self.slots.reclaim(slot).is_some()
            {
                self.slots.put_free(slot);
            }
        }
    }

    /// How many buffers a link may hold and still take in chunks of data.
    #[inline]
    fn share(&self) -> usize {
        if self.is_short { self.sizes.held_shares().1 } else { usize::MAX }
    }

    /// A free receive slot, of new memory when there is none.
    fn spare_slot<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        queue: u32,
    ) -> Option<u32> {
        if let Some(slot) = self.slots.take_free(queue, None) {
            return Some(slot);
        }
        // At the limit, or out of memory, held slots come home some time.
        let _ = self.slots.reserve(device, SLOTS_AT_A_TIME.min(self.slots.vacant()));
        self.slots.take_free(queue, None)
    }

    /// The inequality of [`Sizes::receive_reserve`]: whatever is not held is posted.
    fn check(&self, links: &Links) {
        for class in Class::ALL {
            let held = links.of_class(class).map(|conn| conn.held).sum();
            let is_whole =
                self.queues.of_class(class).is_none_or(|q| self.queues.is_whole(q, held));
            debug_assert!(is_whole, "{class:?}, {held} held: {:?}", self.queues.census());
        }
        let is_up = |conn: &&Conn| conn.phase == Phase::Up && !self.receiving.is_shared();
        for conn in links.iter().filter(is_up) {
            let held = if conn.qp_paths() == 1 { conn.held } else { 0 };
            let mut live = conn.paths.iter().filter(|path| !path.has_failed);
            debug_assert!(live.all(|path| self.queues.is_whole(path.queue, held)), "{held} held");
        }
    }

    /// Posted receives, and how many should be posted.
    pub(crate) fn posted_and_wanted(&self) -> (usize, usize) {
        let (posted, _, target) = self.queues.census();
        (posted, target)
    }

    /// Its slots, for reports of their use.
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Gives memory back that has not been needed for a while. Not for a device that pins it.
    pub(crate) fn shrink(&mut self, now: Time) {
        self.slots.shrink(now);
    }
}

/// Tells a link of chunks that are home, if any are. Chunks of another endpoint go home there.
fn let_go_of(links: &mut Links, (link, channel): (LinkId, ChannelId), held: usize, count: u32) {
    if count > 0 {
        let_go(links, (link, Some(channel)), held, count);
    }
}

/// Tells a link that `pieces` of a channel and `held` buffers are home; see [`Rx::piece_home`].
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

/// Posts the receives for acks of a link that came home.
#[inline]
pub(crate) fn post_acks<D: Device>(
    device: &mut D,
    links: &mut Links,
    index: u16,
    stats: &mut EndpointStats,
) {
    if let Some(conn) = links.at(index).filter(|conn| !conn.control.repost.is_empty()) {
        stats.posts_refused += conn.control.post(device);
    }
}
