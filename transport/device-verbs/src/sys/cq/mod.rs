//! Completion queues, and the channel that wakes whoever waits for them.

#[cfg(test)]
mod tests;

use super::{Context, errno, extended, refusal, zeroed};
use crate::limits::POLL_BATCH;
use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_create_comp_channel, ibv_create_cq, ibv_create_cq_wc_flags, ibv_destroy_comp_channel,
    ibv_destroy_cq, ibv_end_poll, ibv_get_cq_event, ibv_next_poll, ibv_poll_cq, ibv_poll_cq_attr,
    ibv_req_notify_cq, ibv_start_poll, ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_read_byte_len,
    ibv_wc_read_completion_ts, ibv_wc_read_imm_data, ibv_wc_read_opcode, ibv_wc_read_qp_num,
    ibv_wc_read_src_qp, ibv_wc_read_vendor_err, ibv_wc_read_wc_flags, ibv_wc_status,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use towpath_verbs::{Verb, VerbError};

/// A completion channel.
pub(crate) struct Channel {
    raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: libibverbs is thread safe, and nothing of it is bound to a thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, VerbError> {
        // SAFETY: an open context.
        let raw = NonNull::new(unsafe { ibv_create_comp_channel(context.raw()) });
        let raw = raw.ok_or_else(|| refusal(Verb::OpenDevice, errno()))?;
        let channel = Self { raw, context: Arc::clone(context) };
        let fd = channel.fd();
        // SAFETY: a file that is ours for the life of the channel.
        let set = unsafe {
            libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK)
        };
        if set < 0 { Err(refusal(Verb::OpenDevice, errno())) } else { Ok(channel) }
    }

    fn fd(&self) -> i32 {
        // SAFETY: alive until our drop.
        unsafe { self.raw.as_ref() }.fd
    }

    /// Blocks until a queue that asked for it has a completion, the device has an event, `bell` or
    /// `file` is readable, or the time is over; says whether `file` is. Below zero it is none.
    pub(crate) fn wait(&self, bell: BorrowedFd<'_>, file: i32, timeout_ns: u64) -> bool {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let files = [self.fd(), self.context.event_fd(), bell.as_raw_fd(), file];
        let mut fds = files.map(poll);
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000).min(i32::MAX as u64) as libc::time_t,
            tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: four entries and a time of our own; no signal mask.
        let ready = unsafe {
            libc::ppoll(fds.as_mut_ptr(), fds.len() as _, &raw const timeout, std::ptr::null())
        };
        ready > 0 && fds[3].revents & libc::POLLIN != 0
    }

    /// Adds the files that end a [`wait`](Self::wait) to an epoll instance; false when it refuses.
    pub(crate) fn add_to_epoll(&self, bell: BorrowedFd<'_>, epoll: i32) -> bool {
        let files = [self.fd(), self.context.event_fd(), bell.as_raw_fd()];
        files.into_iter().all(|file| {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            let add = libc::EPOLL_CTL_ADD;
            // SAFETY: the call reads `event`, which lives through it; it refuses what is no epoll
            // instance.
            unsafe { libc::epoll_ctl(epoll, add, file, &raw mut event) == 0 }
        })
    }

    /// Takes one notification; says which queue it is of, by the context that it was made with.
    pub(crate) fn notified(&self) -> Option<usize> {
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: a live channel, which does not block, and two pointers to fill.
        let status = unsafe { ibv_get_cq_event(self.raw.as_ptr(), &raw mut cq, &raw mut context) };
        if status != 0 {
            return None;
        }
        // SAFETY: a queue that just told, so it is alive: destroying it waits for this.
        unsafe { ibv_ack_cq_events(cq, 1) };
        Some(context as usize)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by us, destroyed once, after the queues that hold an Arc of it.
        unsafe { ibv_destroy_comp_channel(self.raw.as_ptr()) };
    }
}

/// A completion in the driver's words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawWc {
    pub(crate) wr_id: u64,
    pub(crate) status: ibv_wc_status::Type,
    pub(crate) opcode: ibv_wc_opcode::Type,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// As it was sent, where there is any.
    pub(crate) imm_data: Option<u32>,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    /// What the device's clock showed, where the queue has timestamps.
    pub(crate) ticks: Option<u64>,
}

impl RawWc {
    fn of(wc: &ibv_wc) -> Self {
        let has_imm = wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        // SAFETY: both readings of the union are four bytes without invalid values.
        let imm_data = unsafe { wc.imm_data_invalidated_rkey_union.imm_data };
        Self {
            wr_id: wc.wr_id,
            status: wc.status,
            opcode: wc.opcode,
            vendor_err: wc.vendor_err,
            byte_len: wc.byte_len,
            imm_data: has_imm.then_some(u32::from_be(imm_data)),
            qp_num: wc.qp_num,
            src_qp: wc.src_qp,
            ticks: None,
        }
    }
}

/// Which interface a queue was made by. The newer one is taken only for its timestamps: rxe's
/// driver (rdma-core 44) goes astray in it, as its `end_poll` takes one completion too many after a
/// `next_poll` that found none.
#[derive(Clone, Copy)]
enum Raw {
    Plain(NonNull<ibv_cq>),
    Extended(NonNull<ibv_cq_ex>),
}

/// A completion queue.
pub(crate) struct Cq {
    raw: Raw,
    _channel: Arc<Channel>,
}

// SAFETY: as for `Channel`.
unsafe impl Send for Cq {}
// SAFETY: as for `Channel`; it is polled from where the device is, which is one place at a time.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue for `depth` completions, known to channel and events as `number`; with timestamps
    /// if wanted, which a driver may refuse.
    pub(crate) fn new(
        channel: &Arc<Channel>,
        depth: u32,
        number: usize,
        timestamps: bool,
    ) -> Result<Self, VerbError> {
        let verb = Verb::CreateCq;
        let cqe = i32::try_from(depth).map_err(|_| VerbError::BadArgument(verb))?;
        let (context, events) = (&channel.context, channel.raw.as_ptr());
        let number = std::ptr::without_provenance_mut(number);
        let raw = if timestamps {
            // SAFETY: numbers and pointers that may be null.
            let mut init: ibv_cq_init_attr_ex = unsafe { zeroed() };
            (init.cqe, init.cq_context, init.channel) = (depth, number, events);
            init.wc_flags = wc_flags();
            let raw = extended::create_cq(context, init);
            Raw::Extended(raw.ok_or(VerbError::Unsupported(verb))?)
        } else {
            // SAFETY: an open context, a live channel; `number` is never followed.
            let raw = unsafe { ibv_create_cq(context.raw(), cqe, number, events, 0) };
            Raw::Plain(NonNull::new(raw).ok_or_else(|| refusal(verb, errno()))?)
        };
        Ok(Self { raw, _channel: Arc::clone(channel) })
    }

    pub(crate) fn raw(&self) -> *mut ibv_cq {
        match self.raw {
            Raw::Plain(raw) => raw.as_ptr(),
            // The one begins with the other (`ibv_cq_ex_to_cq`).
            Raw::Extended(raw) => raw.as_ptr().cast(),
        }
    }

    /// Asks to be told on the channel of the next completion.
    pub(crate) fn request_notify(&self) {
        // SAFETY: a live queue. A refusal only means that nobody is woken before the timeout.
        unsafe { ibv_req_notify_cq(self.raw(), 0) };
    }

    /// Takes at most a batch of completions.
    pub(crate) fn poll(&self, mut take: impl FnMut(RawWc)) {
        match self.raw {
            Raw::Plain(raw) => {
                let mut wcs = [const { MaybeUninit::<ibv_wc>::uninit() }; POLL_BATCH];
                // SAFETY: a live queue, and room for that many.
                let count = unsafe {
                    ibv_poll_cq(raw.as_ptr(), POLL_BATCH as i32, wcs.as_mut_ptr().cast())
                };
                let count = usize::try_from(count).unwrap_or(0).min(POLL_BATCH);
                for wc in &wcs[..count] {
                    // SAFETY: the driver has filled the first `count` entries.
                    take(RawWc::of(unsafe { wc.assume_init_ref() }));
                }
            }
            Raw::Extended(raw) => poll_extended(raw, &mut take),
        }
    }
}

/// What each completion is to carry.
fn wc_flags() -> u64 {
    let flags = ibv_create_cq_wc_flags::IBV_WC_EX_WITH_BYTE_LEN
        | ibv_create_cq_wc_flags::IBV_WC_EX_WITH_IMM
        | ibv_create_cq_wc_flags::IBV_WC_EX_WITH_QP_NUM
        | ibv_create_cq_wc_flags::IBV_WC_EX_WITH_SRC_QP
        | ibv_create_cq_wc_flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    u64::from(flags.0)
}

/// Between `start_poll` and `end_poll` the queue shows one completion at a time.
fn poll_extended(raw: NonNull<ibv_cq_ex>, take: &mut impl FnMut(RawWc)) {
    let cq = raw.as_ptr();
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: a live queue, and attributes that are read now.
    if unsafe { ibv_start_poll(cq, &raw mut attr) } != 0 {
        return;
    }
    for count in 1.. {
        // SAFETY: polling was begun and has found one; what is asked for was ordered when the
        // queue was made, and of an error completion only what every one has.
        let wc = unsafe {
            let mut wc = RawWc {
                wr_id: (*cq).wr_id,
                status: (*cq).status,
                qp_num: ibv_wc_read_qp_num(cq),
                ..RawWc::default()
            };
            if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
                wc.vendor_err = ibv_wc_read_vendor_err(cq);
            } else {
                wc.opcode = ibv_wc_read_opcode(cq);
                wc.byte_len = ibv_wc_read_byte_len(cq);
                wc.src_qp = ibv_wc_read_src_qp(cq);
                let has_imm = ibv_wc_read_wc_flags(cq) & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
                wc.imm_data = has_imm.then(|| u32::from_be(ibv_wc_read_imm_data(cq)));
                wc.ticks = Some(ibv_wc_read_completion_ts(cq));
            }
            wc
        };
        take(wc);
        // SAFETY: polling goes on.
        if count == POLL_BATCH || unsafe { ibv_next_poll(cq) } != 0 {
            break;
        }
    }
    // SAFETY: polling was begun, and ends once.
    unsafe { ibv_end_poll(cq) };
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: made by us, destroyed once, after the queue pairs that hold an Arc of it, and
        // with every notification acknowledged.
        unsafe { ibv_destroy_cq(self.raw()) };
    }
}
