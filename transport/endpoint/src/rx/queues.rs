//! Receive queues: what is posted to each, and what waits for that.
//!
//! Each path has one of its own, or the links of a class share one, so that what arrives for one
//! class takes no buffer from another.

use std::hint::cold_path;
use std::slice;
use towpath_proto::Class;
use towpath_verbs::{Device, QpNum, RecvWr, SrqNum, VerbError, WcStatus};

/// Where receives are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    /// Nowhere any more: what was posted comes back.
    Closed,
    Own(QpNum),
    Shared(SrqNum),
}

/// A receive queue.
#[derive(Debug)]
pub(super) struct RecvQueue {
    port: Port,
    posted: usize,
    /// So many should be posted.
    target: usize,
    waiting: Vec<RecvWr>,
    /// It is looked at when receives are posted the next time.
    is_touched: bool,
}

impl RecvQueue {
    /// Receives that are neither posted nor wait for that.
    #[inline]
    fn missing(&self) -> usize {
        self.target.saturating_sub(self.posted + self.waiting.len())
    }
}

/// All receive queues of an endpoint, by number.
#[derive(Default)]
pub(super) struct RecvQueues {
    queues: Vec<RecvQueue>,
    vacant: Vec<u32>,
    touched: Vec<u32>,
    /// Something was taken in, or came home, since receives were posted the last time.
    pub(super) has_changed: bool,
    /// Those that are shared, each made with the first link of its class.
    of_class: [Option<(u32, SrqNum)>; Class::COUNT],
}

impl RecvQueues {
    fn add(&mut self, port: Port) -> u32 {
        let queue =
            RecvQueue { port, posted: 0, target: 0, waiting: Vec::new(), is_touched: false };
        if let Some(number) = self.vacant.pop() {
            self.queues[number as usize] = queue;
            return number;
        }
        self.queues.push(queue);
        self.queues.len() as u32 - 1
    }

    /// The queue that the links of a class share, of `depth` receives.
    pub(super) fn make_shared<D: Device>(
        &mut self,
        device: &mut D,
        class: Class,
        depth: u32,
    ) -> Result<SrqNum, VerbError> {
        if let Some((_, srq)) = self.of_class[class.index()] {
            return Ok(srq);
        }
        let srq = device.create_srq(depth)?;
        self.of_class[class.index()] = Some((self.add(Port::Shared(srq)), srq));
        Ok(srq)
    }

    /// The queue that the links of a class share, if they do.
    pub(super) fn of_class(&self, class: Class) -> Option<u32> {
        self.of_class[class.index()].map(|(number, _)| number)
    }

    /// The queue of a path: the shared one, or one of its own, for which `before` is used again.
    pub(super) fn open(&mut self, class: Class, qp_num: QpNum, before: u32) -> u32 {
        if let Some(number) = self.of_class(class) {
            return number;
        }
        match self.queues.get_mut(before as usize) {
            Some(queue) => {
                queue.port = Port::Own(qp_num);
                before
            }
            None => self.add(Port::Own(qp_num)),
        }
    }

    /// The queue pair of a path is destroyed. Takes out what waits in a queue of its own.
    pub(super) fn close(&mut self, number: u32) -> Vec<RecvWr> {
        match self.queues.get_mut(number as usize) {
            Some(queue @ RecvQueue { port: Port::Own(_), .. }) => {
                (queue.port, queue.target) = (Port::Closed, 0);
                std::mem::take(&mut queue.waiting)
            }
            _ => Vec::new(),
        }
    }

    /// Whether nothing is posted to a queue that was closed.
    pub(super) fn is_drained(&self, number: u32) -> bool {
        let queue = self.queues.get(number as usize);
        queue.is_none_or(|queue| queue.port != Port::Closed || queue.posted == 0)
    }

    /// The path of a queue that is drained is no more.
    pub(super) fn forget(&mut self, number: u32) {
        if self.queues.get(number as usize).is_some_and(|queue| queue.port == Port::Closed) {
            self.vacant.push(number);
        }
    }

    /// So many receives should be posted.
    pub(super) fn set_target(&mut self, number: u32, receives: usize) {
        if let Some(queue) = self.queues.get_mut(number as usize) {
            queue.target = receives;
            self.has_changed = true;
            touch(queue, &mut self.touched, number);
        }
    }

    /// Receives that are neither posted nor wait for that.
    pub(super) fn missing(&self, number: u32) -> usize {
        self.queues.get(number as usize).map_or(0, RecvQueue::missing)
    }

    /// Queues a receive for posting where one is missing; false elsewhere.
    #[inline]
    pub(super) fn offer<'a>(
        &mut self,
        number: u32,
        wr: impl FnOnce() -> Option<&'a RecvWr>,
    ) -> bool {
        self.has_changed = true;
        let queue = self.queues.get_mut(number as usize).filter(|queue| queue.missing() > 0);
        let Some(queue) = queue else { return false };
        let Some(wr) = wr() else { return false };
        // `push` would copy it twice.
        queue.waiting.extend_from_slice(slice::from_ref(wr));
        touch(queue, &mut self.touched, number);
        true
    }

    /// A receive has completed. One that is flushed says that the queue pair of a path is in error:
    /// nothing more is posted there until it was made anew.
    #[inline]
    pub(super) fn on_completed(&mut self, number: u32, status: WcStatus) {
        let Some(queue) = self.queues.get_mut(number as usize) else { return };
        queue.posted = queue.posted.saturating_sub(1);
        self.has_changed = true;
        if status == WcStatus::WrFlushErr && matches!(queue.port, Port::Own(_)) {
            queue.target = 0;
        }
        touch(queue, &mut self.touched, number);
    }

    /// A queue to be looked at, by its place among those.
    pub(super) fn touched(&self, place: usize) -> Option<u32> {
        self.touched.get(place).copied()
    }

    /// Posts what waits in all queues that are to be looked at. Returns what the device refused.
    pub(super) fn post<D: Device>(&mut self, device: &mut D) -> Vec<RecvWr> {
        let Self { queues, touched, .. } = self;
        let mut refused = Vec::new();
        touched.retain(|&number| {
            let Some(queue) = queues.get_mut(number as usize) else { return false };
            let posted = match queue.port {
                _ if queue.waiting.is_empty() => Ok(()),
                Port::Own(qp_num) => device.post_recv(qp_num, &queue.waiting),
                Port::Shared(srq) => device.post_srq_recv(srq, &queue.waiting),
                Port::Closed => Ok(()),
            };
            let taken = posted.err().map_or(queue.waiting.len(), |bad| bad.index);
            queue.posted += taken;
            let is_refused = taken < queue.waiting.len();
            if is_refused {
                cold_path();
                refused.extend(queue.waiting.drain(taken..));
            }
            queue.waiting.clear();
            // Buffers that are held now may be there the next time. A queue pair that refuses is
            // asked again when something comes home, or is made anew.
            let is_own = matches!(queue.port, Port::Own(_));
            queue.is_touched = queue.missing() > 0 && !(is_refused && is_own);
            queue.is_touched
        });
        self.has_changed = !self.touched.is_empty() || !refused.is_empty();
        refused
    }

    /// Receives that are posted, that wait for that, and that should be posted.
    pub(super) fn census(&self) -> (usize, usize, usize) {
        let open = self.queues.iter().filter(|queue| queue.port != Port::Closed);
        open.fold((0, 0, 0), |(posted, waiting, target), queue| {
            (posted + queue.posted, waiting + queue.waiting.len(), target + queue.target)
        })
    }

    /// Whether a queue has all receives that it should have but for those that are held.
    pub(super) fn is_whole(&self, number: u32, held: usize) -> bool {
        let queue = self.queues.get(number as usize);
        queue.is_none_or(|queue| queue.posted + held >= queue.target)
    }
}

#[inline]
fn touch(queue: &mut RecvQueue, touched: &mut Vec<u32>, number: u32) {
    if !std::mem::replace(&mut queue.is_touched, true) {
        touched.push(number);
    }
}
