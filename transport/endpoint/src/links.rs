//! The links of an endpoint: a table by index, and the lists of those that have something to do.

#[cfg(test)]
mod tests;

use crate::batch::Batch;
use crate::class::ClassReport;
use crate::control::Control;
use crate::event::Peer;
use crate::ids::LinkId;
use crate::lane::LaneQp;
use crate::sends::Sends;
use crate::tcp::Tcp;
use crate::tx::{TxQueue, TxSlots};
use crate::workers::Seat;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use towpath_base::Time;
use towpath_base::serial::Psn;
use towpath_proto::wire::Hello;
use towpath_proto::{Carrier, ChannelId, Class, Link, PathId};
use towpath_verbs::{Mtu, QpNum, RecvWr};

/// Where a link is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Our half is made; the peer's HELLO is awaited.
    Offered,
    /// Joined.
    Up,
    /// Its queue pairs are destroyed; their last completions are awaited.
    Draining,
}

/// A path: its queue pair and what is posted to it.
pub(crate) struct Path {
    pub(crate) carrier: Carrier,
    pub(crate) qp_num: QpNum,
    /// Which of the device's source ports it leaves from.
    pub(crate) source_port: u16,
    pub(crate) tx: TxQueue,
    /// Receives posted to its own queue; none with a shared one.
    pub(crate) posted: usize,
    pub(crate) repost: Vec<RecvWr>,
    /// Sends that wait to be posted, within a flush.
    pub(crate) batch: Option<Batch>,
    /// Its queue pair is in error, or gone: nothing is posted to it.
    pub(crate) has_failed: bool,
    /// The first packet sequence number of one that was made anew.
    pub(crate) psn: Psn,
}

/// What an endpoint keeps for one link.
pub(crate) struct Conn {
    pub(crate) id: LinkId,
    pub(crate) phase: Phase,
    pub(crate) class: ClassReport,
    pub(crate) link: Option<Link>,
    pub(crate) paths: Vec<Path>,
    /// The headers of what is posted to any of them.
    pub(crate) tx_slots: TxSlots,
    /// The set-up connection, where it carries a path.
    pub(crate) tcp: Option<Tcp>,
    pub(crate) control: Control,
    pub(crate) control_repost: Vec<RecvWr>,
    pub(crate) hello: Option<Hello>,
    /// The smaller of both ends', once it is up.
    pub(crate) mtu: Option<Mtu>,
    pub(crate) peer: Option<Peer>,
    /// Where we connected to.
    pub(crate) dialled: Option<SocketAddr>,
    pub(crate) sends: Sends,
    /// A message was refused for want of room, and the application was not told of room since.
    pub(crate) is_refused: bool,
    /// A channel for a lane that the peer opened and may not have, until it is closed.
    pub(crate) refused_lane: Option<ChannelId>,
    /// Receive buffers that the link or the application holds.
    pub(crate) held: usize,
    pub(crate) timer: Time,
    /// When it is looked at whether `timer` has come; `NEVER` while it is in no list.
    filed: Time,
    /// Polls since its queue pairs were destroyed.
    pub(crate) drain_polls: u8,
    /// Counts it among the links of its worker, while it is up.
    pub(crate) seat: Option<Seat>,
    is_ready: bool,
    is_eventful: bool,
    /// It waits for its turn among the links of other classes.
    pub(crate) is_in_line: bool,
    /// Bytes at the device that the order between classes knows of.
    pub(crate) counted_bytes: u64,
    /// Keys of memory that is this link's alone.
    pub(crate) lkeys: Vec<u32>,
    /// What its one-sided operations have, once there are some.
    pub(crate) lane: Option<Box<LaneQp>>,
}

impl Conn {
    pub(crate) fn new(id: LinkId, class: ClassReport, control: Control) -> Self {
        Self {
            id,
            phase: Phase::Offered,
            class,
            link: None,
            paths: Vec::new(),
            tx_slots: TxSlots::default(),
            tcp: None,
            control,
            control_repost: Vec::new(),
            hello: None,
            mtu: None,
            peer: None,
            dialled: None,
            sends: Sends::default(),
            is_refused: false,
            refused_lane: None,
            held: 0,
            timer: Time::NEVER,
            filed: Time::NEVER,
            drain_polls: 0,
            seat: None,
            is_ready: false,
            is_eventful: false,
            is_in_line: false,
            counted_bytes: 0,
            lkeys: Vec::new(),
            lane: None,
        }
    }

    /// A queue pair went to error. A path's ends that path; without a way for acks nothing on the
    /// link would get ahead. False when it is another link's.
    pub(crate) fn fail_qp(&mut self, now: Time, qp_num: QpNum) -> bool {
        let Some(link) = self.link.as_mut() else { return false };
        let mut is_ours = self.control.qp_num == qp_num;
        if is_ours {
            link.acks_failed();
        }
        if let Some(lane) = self.lane.as_mut().filter(|lane| lane.qp_num == qp_num) {
            lane.has_failed = true;
            link.lane_failed(now);
            is_ours = true;
        }
        for (path, id) in self.paths.iter_mut().zip(0u8..) {
            if path.qp_num == qp_num {
                path.has_failed = true;
                link.path_failed(now, PathId(id));
                is_ours = true;
            }
        }
        is_ours
    }

    /// Paths that its receive buffers are for: those with a queue pair. One without any is as one
    /// with a single path.
    pub(crate) fn qp_paths(&self) -> usize {
        self.paths.len().max(1)
    }

    /// Bytes that the device has and that have not left. Only UC tells when they do.
    pub(crate) fn uc_bytes_at_device(&self) -> u64 {
        let on_uc = self.paths.iter().filter(|path| path.carrier == Carrier::Uc);
        on_uc.map(|path| path.tx.posted_bytes()).sum()
    }

    /// The path that rides on the set-up connection, by our HELLO: the one behind the last that has
    /// a queue pair.
    pub(crate) fn tcp_path(&self) -> Option<PathId> {
        let hello = self.hello.as_ref()?;
        let place = hello.paths.iter().position(|path| path.carrier == Carrier::Tcp)?;
        Some(PathId(place as u8))
    }

    /// Whether the device holds nothing of it any more.
    pub(crate) fn is_drained(&self) -> bool {
        let quiet = |path: &Path| path.posted == 0 && path.tx.outstanding() == 0;
        let lane_is_quiet = self.lane.as_ref().is_none_or(|lane| lane.posted == 0);
        self.control.is_drained() && lane_is_quiet && self.paths.iter().all(quiet)
    }
}

#[derive(Default)]
struct Slot {
    life: u32,
    conn: Option<Box<Conn>>,
}

/// All links.
pub(crate) struct Links {
    slots: Vec<Slot>,
    links_max: usize,
    /// Links that may have something to send.
    ready: Vec<u16>,
    /// Links that may have something to tell.
    eventful: Vec<u16>,
    /// Which link and path a queue pair belongs to, by its number.
    qps: Vec<(QpNum, u16, u8)>,
    last_qp: (QpNum, u16, u8),
    /// A link that is known to be in both lists.
    touched: Option<u16>,
    /// When which link is looked at for its timer: each is here at most once, and no later than its
    /// timer. One whose timer has moved on meanwhile is filed anew when it is the first here.
    timers: BTreeSet<(Time, u16)>,
}

impl Links {
    pub(crate) fn new(links_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            links_max,
            ready: Vec::with_capacity(links_max),
            eventful: Vec::with_capacity(links_max),
            qps: Vec::new(),
            last_qp: (QpNum(u32::MAX), 0, 0),
            touched: None,
            timers: BTreeSet::new(),
        }
    }

    /// The id of the next link, if there is room for one.
    pub(crate) fn vacant(&mut self) -> Option<LinkId> {
        let found = self.slots.iter().position(|slot| slot.conn.is_none());
        let index = match found {
            Some(index) => index,
            None if self.slots.len() < self.links_max => {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            }
            None => return None,
        };
        Some(LinkId { index: index as u16, life: self.slots[index].life })
    }

    pub(crate) fn insert(&mut self, conn: Conn) {
        let index = conn.id.index();
        self.slots[index].conn = Some(Box::new(conn));
    }

    /// Ends the life of a link.
    pub(crate) fn remove(&mut self, index: u16) -> Option<Box<Conn>> {
        let slot = self.slots.get_mut(usize::from(index))?;
        let conn = slot.conn.take()?;
        self.timers.remove(&(conn.filed, index));
        slot.life = slot.life.wrapping_add(1);
        self.ready.retain(|&other| other != index);
        self.eventful.retain(|&other| other != index);
        self.forget_qps_of(index);
        self.touched = None;
        Some(conn)
    }

    /// The queue pairs of a link are destroyed. The device may give their numbers to others at
    /// once, which is before the link is gone.
    pub(crate) fn forget_qps_of(&mut self, index: u16) {
        self.qps.retain(|&(_, link, _)| link != index);
        self.last_qp = (QpNum(u32::MAX), 0, 0);
    }

    pub(crate) fn at(&mut self, index: u16) -> Option<&mut Conn> {
        self.slots.get_mut(usize::from(index))?.conn.as_deref_mut()
    }

    /// A link's timer was set.
    #[inline]
    pub(crate) fn file_timer(&mut self, index: u16) {
        if self.at(index).is_some_and(|conn| conn.timer < conn.filed) {
            self.file_sooner(index);
        }
    }

    #[inline(never)]
    fn file_sooner(&mut self, index: u16) {
        let Self { slots, timers, .. } = self;
        let slot = slots.get_mut(usize::from(index));
        let Some(conn) = slot.and_then(|slot| slot.conn.as_deref_mut()) else { return };
        timers.remove(&(conn.filed, index));
        conn.filed = conn.timer;
        timers.insert((conn.filed, index));
    }

    /// The next link whose timer has come, which is none any more.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u16> {
        self.file_anew();
        let &(_, index) = self.timers.first().filter(|&&(at, _)| at <= now)?;
        self.timers.pop_first();
        let conn = self.at(index)?;
        (conn.timer, conn.filed) = (Time::NEVER, Time::NEVER);
        Some(index)
    }

    /// Files the links anew that are first in the list and whose timers have moved on, so that
    /// [`next_timer`](Self::next_timer) is when one comes: a sleep ends for nothing else.
    pub(crate) fn file_anew(&mut self) {
        while let Some(&(at, index)) = self.timers.first() {
            let conn = self.at(index).filter(|conn| conn.filed == at);
            if conn.as_ref().is_some_and(|conn| conn.timer <= at) {
                return;
            }
            let timer = conn.map(|conn| {
                conn.filed = conn.timer;
                conn.timer
            });
            self.timers.pop_first();
            if let Some(timer) = timer.filter(|&timer| timer < Time::NEVER) {
                self.timers.insert((timer, index));
            }
        }
    }

    /// When a timer may come next; `NEVER` when none does.
    pub(crate) fn next_timer(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |&(at, _)| at)
    }

    pub(crate) fn find(&self, id: LinkId) -> Option<&Conn> {
        let conn = self.slots.get(id.index())?.conn.as_deref()?;
        (conn.id == id).then_some(conn)
    }

    pub(crate) fn find_mut(&mut self, id: LinkId) -> Option<&mut Conn> {
        self.at(id.index).filter(|conn| conn.id == id)
    }

    /// A link that is up.
    pub(crate) fn up(&mut self, id: LinkId) -> Option<&mut Link> {
        self.find_mut(id).filter(|conn| conn.phase == Phase::Up)?.link.as_mut()
    }

    /// What the one-sided operations of a link have, if it is there and they have anything.
    pub(crate) fn lane_mut(&mut self, id: LinkId) -> Option<&mut LaneQp> {
        self.find_mut(id)?.lane.as_deref_mut()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Conn> {
        self.slots.iter_mut().filter_map(|slot| slot.conn.as_deref_mut())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().filter_map(|slot| slot.conn.as_deref())
    }

    pub(crate) fn of_class(&self, class: Class) -> impl Iterator<Item = &Conn> {
        self.iter().filter(move |conn| conn.class.class == class)
    }

    pub(crate) fn add_qp(&mut self, qp_num: QpNum, link: u16, path: u8) {
        let place = self.qps.partition_point(|&(other, ..)| other < qp_num);
        self.qps.insert(place, (qp_num, link, path));
    }

    /// A queue pair is no more.
    pub(crate) fn remove_qp(&mut self, qp_num: QpNum) {
        self.qps.retain(|&(other, ..)| other != qp_num);
        self.last_qp = (QpNum(u32::MAX), 0, 0);
    }

    /// The link and path of a queue pair: usually that of the completion before.
    pub(crate) fn of_qp(&mut self, qp_num: QpNum) -> Option<(u16, u8)> {
        let (num, link, path) = self.last_qp;
        if num == qp_num { Some((link, path)) } else { self.of_another_qp(qp_num) }
    }

    #[inline(never)]
    fn of_another_qp(&mut self, qp_num: QpNum) -> Option<(u16, u8)> {
        let place = self.qps.binary_search_by_key(&qp_num, |&(num, ..)| num).ok()?;
        self.last_qp = self.qps[place];
        Some((self.last_qp.1, self.last_qp.2))
    }

    /// Something happened to a link: it is looked at for events now and for sends at the flush.
    #[inline]
    pub(crate) fn touch(&mut self, index: u16) {
        // Mostly the link of the completion before.
        if self.touched != Some(index) {
            self.touch_anew(index);
        }
    }

    #[inline(never)]
    fn touch_anew(&mut self, index: u16) {
        let Some(conn) = self.slots.get_mut(usize::from(index)).and_then(|s| s.conn.as_deref_mut())
        else {
            return;
        };
        if !conn.is_ready {
            conn.is_ready = true;
            self.ready.push(index);
        }
        if !conn.is_eventful {
            conn.is_eventful = true;
            self.eventful.push(index);
        }
        self.touched = Some(index);
    }

    pub(crate) fn pop_ready(&mut self) -> Option<u16> {
        self.touched = None;
        let index = self.ready.pop()?;
        if let Some(conn) = self.at(index) {
            conn.is_ready = false;
        }
        Some(index)
    }

    pub(crate) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn ready_at(&self, place: usize) -> Option<u16> {
        self.ready.get(place).copied()
    }

    pub(crate) fn eventful(&self) -> Option<u16> {
        self.eventful.last().copied()
    }

    /// The link that was looked at has no more events.
    pub(crate) fn pop_eventful(&mut self) {
        self.touched = None;
        if let Some(conn) = self.eventful.pop().and_then(|index| self.at(index)) {
            conn.is_eventful = false;
        }
    }

    /// A flush may have made events.
    pub(crate) fn mark_eventful(&mut self, index: u16) {
        if let Some(conn) = self.at(index).filter(|conn| !conn.is_eventful) {
            conn.is_eventful = true;
            self.eventful.push(index);
        }
    }

    pub(crate) fn up_count(&self) -> usize {
        self.iter().filter(|conn| conn.phase == Phase::Up).count()
    }
}
