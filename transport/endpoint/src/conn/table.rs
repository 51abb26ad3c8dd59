//! The links of an endpoint: a table by index, and the lists of those that have something to do.

#[cfg(test)]
mod tests;

use super::{Conn, Phase, Renewing};
use crate::ids::LinkId;
use crate::lane::LaneQp;
use std::collections::BTreeSet;
use towpath_base::Time;
use towpath_proto::{Class, Link};
use towpath_verbs::QpNum;

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
    /// No timer comes before this.
    next_timer: Time,
    /// Links whose queue pairs are destroyed, and whose last completions are awaited.
    pub(crate) draining: Vec<u16>,
    pub(crate) renewing: Vec<Renewing>,
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
            next_timer: Time::NEVER,
            draining: Vec::new(),
            renewing: Vec::new(),
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
        let LinkId { index, .. } = conn.id;
        for (path, id) in conn.paths.iter().zip(0..) {
            self.add_qp(path.qp_num, index, id);
        }
        self.slots[usize::from(index)].conn = Some(Box::new(conn));
    }

    /// Ends the life of a link.
    pub(crate) fn remove(&mut self, index: u16) -> Option<Box<Conn>> {
        let slot = self.slots.get_mut(usize::from(index))?;
        let conn = slot.conn.take()?;
        self.timers.remove(&(conn.marks.filed, index));
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
        let Some(conn) = self.at(index) else { return };
        let (timer, is_sooner) = (conn.timer, conn.timer < conn.marks.filed);
        self.next_timer = self.next_timer.min(timer);
        if is_sooner {
            self.file_sooner(index);
        }
    }

    #[inline(never)]
    fn file_sooner(&mut self, index: u16) {
        let Self { slots, timers, .. } = self;
        let slot = slots.get_mut(usize::from(index));
        let Some(conn) = slot.and_then(|slot| slot.conn.as_deref_mut()) else { return };
        timers.remove(&(conn.marks.filed, index));
        conn.marks.filed = conn.timer;
        timers.insert((conn.marks.filed, index));
    }

    /// The next link whose timer has come, which is none any more.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u16> {
        self.file_anew();
        let &(_, index) = self.timers.first().filter(|&&(at, _)| at <= now)?;
        self.timers.pop_first();
        let conn = self.at(index)?;
        (conn.timer, conn.marks.filed) = (Time::NEVER, Time::NEVER);
        Some(index)
    }

    /// Files the links anew that are first in the list and whose timers have moved on, so that
    /// [`next_timer`](Self::next_timer) is when one comes: a sleep ends for nothing else.
    pub(crate) fn file_anew(&mut self) {
        self.file_first();
        self.next_timer = self.timers.first().map_or(Time::NEVER, |&(at, _)| at);
    }

    fn file_first(&mut self) {
        while let Some(&(at, index)) = self.timers.first() {
            let conn = self.at(index).filter(|conn| conn.marks.filed == at);
            if conn.as_ref().is_some_and(|conn| conn.timer <= at) {
                return;
            }
            let timer = conn.map(|conn| {
                conn.marks.filed = conn.timer;
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
        self.next_timer
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
        if !conn.marks.is_ready {
            conn.marks.is_ready = true;
            self.ready.push(index);
        }
        if !conn.marks.is_eventful {
            conn.marks.is_eventful = true;
            self.eventful.push(index);
        }
        self.touched = Some(index);
    }

    pub(crate) fn pop_ready(&mut self) -> Option<u16> {
        self.touched = None;
        let index = self.ready.pop()?;
        if let Some(conn) = self.at(index) {
            conn.marks.is_ready = false;
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
            conn.marks.is_eventful = false;
        }
    }

    /// A flush may have made events.
    pub(crate) fn mark_eventful(&mut self, index: u16) {
        if let Some(conn) = self.at(index).filter(|conn| !conn.marks.is_eventful) {
            conn.marks.is_eventful = true;
            self.eventful.push(index);
        }
    }

    pub(crate) fn up_count(&self) -> usize {
        self.iter().filter(|conn| conn.phase == Phase::Up).count()
    }
}
