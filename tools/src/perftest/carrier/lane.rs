//! The lane of a link as a carrier: READs and atomics of memory that the other end has granted.

use super::towpath::{IDLE_WAIT, PacketsLost, counters_of, link_down};
use super::{Carrier, Counters, RowPlan, Turn};
use crate::perftest::args::values::Atomic;
use crate::perftest::content::Content;
use crate::perftest::error::RunError;
use crate::perftest::limits::PASSIVE_WAIT_WATCHED;
use crate::perftest::patience::Patience;
use crate::perftest::tool::Op;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use towpath_memory::Region;
use towpath_status::{PathStatus, ProcessStatus, StatusSocket};
use towpath_transport::{
    Buf, Endpoint, Event, Grant, LaneError, LinkId, OpError, OpOptions, OpOutcome, Place, Ride,
    SharedMemory,
};
use towpath_verbs::Device;

/// Targets of READs begin at multiples of this: a line of cache each.
const ALIGN: usize = 64;

/// What an end of a lane does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    pub(crate) op: Op,
    pub(crate) atomic: Atomic,
    /// The targets of READs are apart.
    pub(crate) apart: bool,
    /// Where the peer's memory is, if this end works on it.
    pub(crate) theirs: Option<Grant>,
}

impl Role {
    /// Bytes that the peer reads or works on, where it has `depth` operations of `size` under way.
    pub(crate) fn target_bytes(apart: bool, depth: u32, size: u32) -> usize {
        places(apart, depth) as usize * stride(size)
    }
}

fn places(apart: bool, depth: u32) -> u32 {
    if apart { depth } else { 1 }
}

fn stride(size: u32) -> usize {
    (size as usize).next_multiple_of(ALIGN)
}

/// One-sided operations on the lane of one link.
pub(crate) struct Lane<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    link: LinkId,
    role: Role,
    /// What this end has granted, if it has.
    ours: Option<SharedMemory>,
    /// Where an end that only serves sleeps: on the files of its endpoint and of the set-up.
    bed: Option<[OwnedFd; 2]>,
    free: VecDeque<Buf>,
    content: Content,
    size: u32,
    places: u32,
    /// Operations posted and executed so far. Those of atomics go on from row to row, as the word.
    posted: u64,
    executed: u64,
    lost: PacketsLost<D>,
    patience: Patience,
    status: Option<(StatusSocket, &'static str)>,
}

impl<D: Device<Memory = Region>> Lane<D> {
    pub(crate) fn new(
        endpoint: Endpoint<D>,
        link: LinkId,
        (role, ours): (Role, Option<SharedMemory>),
        lost: PacketsLost<D>,
        idle_polls_max: u32,
    ) -> Self {
        Self {
            endpoint,
            link,
            role,
            ours,
            bed: None,
            free: VecDeque::new(),
            content: Content::new(1, false),
            size: 0,
            places: 1,
            posted: 0,
            executed: 0,
            lost,
            patience: Patience::new(idle_polls_max),
            status: None,
        }
    }

    /// Answers who asks at `socket` from now on, as `program`.
    pub(crate) fn answer_at(&mut self, socket: StatusSocket, program: &'static str) {
        self.status = Some((socket, program));
    }

    /// Sleeps from now on until its endpoint has something to do, or `set_up` has something to
    /// read.
    pub(crate) fn sleep_on(&mut self, set_up: OwnedFd) -> Result<(), RunError> {
        self.bed = Some([self.endpoint.poll_fd()?, set_up]);
        Ok(())
    }

    fn post_one(&mut self, theirs: &Grant) -> Result<(), LaneError> {
        let options = OpOptions::new().token(self.posted);
        let place = |offset| Place { link: self.link, grant: theirs.id, offset };
        match (self.role.op, self.role.atomic) {
            (Op::Atomic, Atomic::FetchAdd) => self.endpoint.fetch_add(place(0), 1, options)?,
            (Op::Atomic, Atomic::CmpSwap) => {
                let words = (self.posted, self.posted + 1);
                self.endpoint.cmp_swap(place(0), words, options)?
            }
            _ => {
                let Some(mut buf) = self.free.pop_front() else {
                    return Err(OpError::Full { max: 0 }.into());
                };
                if self.content.checked() {
                    // What a READ that fetches nothing would leave.
                    buf.fill(0);
                }
                let at = (self.posted % u64::from(self.places)) as u32 * stride(self.size) as u32;
                match self.endpoint.read(place(at), self.size, buf, options) {
                    Ok(op) => op,
                    Err(rejected) => {
                        self.free.push_front(rejected.buf);
                        return Err(rejected.error);
                    }
                }
            }
        };
        self.posted += 1;
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::OpDone { token, outcome: OpOutcome::Executed, word, buf, .. } => {
                self.executed += 1;
                if self.content.checked() {
                    self.check(token, word, buf.as_deref())?;
                }
                self.free.extend(buf);
                Ok(())
            }
            Event::OpDone { outcome, .. } => Err(RunError::Operation(outcome)),
            Event::LinkDown { reason, .. } => Err(link_down(&self.endpoint, reason)),
            _ => Ok(()),
        }
    }

    /// Looks at what an operation has fetched.
    #[inline(never)]
    fn check(&self, token: u64, word: Option<u64>, buf: Option<&[u8]>) -> Result<(), RunError> {
        if let Some(got) = word.filter(|&got| got != token) {
            return Err(RunError::Atomic { wanted: token, got });
        }
        let wanted = self.content.bytes();
        let differs = buf.and_then(|got| wanted.iter().zip(got).position(|(a, b)| a != b));
        match (differs, buf) {
            (Some(offset), Some(got)) => {
                let (wanted, got) = (wanted[offset], got[offset]);
                Err(RunError::Content { offset, wanted, got })
            }
            _ => Ok(()),
        }
    }

    /// Sleeps until there is something to do here.
    fn rest(&mut self) -> Result<(), RunError> {
        let Some([ours, set_up]) = &self.bed else { return Ok(()) };
        let most = self.endpoint.prepare_wait(PASSIVE_WAIT_WATCHED);
        let most = most.try_into().unwrap_or_default();
        let mut files = [ours, set_up].map(|file| PollFd::new(file, PollFlags::IN));
        match poll(&mut files, Some(&most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => {
                Err(RunError::Socket { what: "waiting for the peer", source: error.into() })
            }
        }
    }
}

impl<D: Device<Memory = Region>> Carrier for Lane<D> {
    fn prepare(&mut self, row: &RowPlan) -> Result<(), RunError> {
        self.size = row.size;
        self.places = places(self.role.apart, row.depth);
        self.content = Content::new(row.size, row.validate);
        self.free.clear();
        if self.role.op == Op::Atomic {
            return Ok(()); // Counts go on, at both ends.
        }
        if let Some(ours) = &self.ours {
            for place in 0..self.places as usize {
                ours.write(place * stride(row.size), self.content.bytes())?;
            }
        }
        if self.role.theirs.is_some() {
            for _ in 0..row.depth {
                // Written, not only sized: pages never written would all be one page of zeroes.
                let buf = self.endpoint.copy(self.content.bytes());
                self.free.push_back(buf.map_err(|_| RunError::NoBuffer { bytes: row.size })?);
            }
        }
        Ok(())
    }

    fn post(&mut self, count: u64, _after: u64) -> Result<u64, RunError> {
        let Some(theirs) = self.role.theirs else { return Ok(0) };
        for posted in 0..count {
            match self.post_one(&theirs) {
                Ok(()) => {}
                Err(LaneError::Op(OpError::Full { .. })) => return Ok(posted),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), RunError> {
        self.endpoint.flush();
        if self.bed.is_some() && self.patience.is_idle() {
            self.rest()?;
        } else if self.patience.is_over() {
            self.endpoint.wait(IDLE_WAIT);
        }
        Ok(())
    }

    fn end_posting(&mut self) -> Result<(), RunError> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Turn, RunError> {
        let before = self.executed;
        self.patience.note(self.endpoint.poll() > 0);
        while let Some(event) = self.endpoint.next_event() {
            self.on_event(event)?;
        }
        if let Some((socket, program)) = &mut self.status {
            socket.answer_when_asked(|| ProcessStatus::of(&self.endpoint, program));
        }
        Ok(Turn { completed: self.executed - before, ..Turn::default() })
    }

    fn blocks(&self) -> bool {
        false
    }

    fn waits(&self) -> bool {
        self.bed.is_some() || self.patience.is_over()
    }

    fn digests(&self) -> (u64, u64) {
        (0, 0)
    }

    fn counters(&self) -> Option<Counters> {
        counters_of(&self.endpoint, self.link, &self.lost)
    }

    fn paths(&self) -> Vec<PathStatus> {
        PathStatus::all_of(&self.endpoint, self.link)
    }

    fn rides(&self) -> Vec<Ride> {
        self.endpoint.rides().after(0).copied().collect()
    }
}
