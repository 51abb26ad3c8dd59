//! Completion queues, and the channel that wakes whoever waits for them.

use super::{Context, errno, refusal};
use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_get_cq_event, ibv_poll_cq, ibv_req_notify_cq,
    ibv_wc,
};
use std::mem::MaybeUninit;
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

    /// Blocks until a queue that asked for it has a completion, the device has an event, or the
    /// time is over.
    pub(crate) fn wait(&self, timeout_ns: u64) {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [poll(self.fd()), poll(self.context.event_fd())];
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000).min(i32::MAX as u64) as libc::time_t,
            tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: two entries and a time of our own; no signal mask.
        unsafe { libc::ppoll(fds.as_mut_ptr(), 2, &raw const timeout, std::ptr::null()) };
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

/// A completion queue.
pub(crate) struct Cq {
    raw: NonNull<ibv_cq>,
    _channel: Arc<Channel>,
}

// SAFETY: as for `Channel`.
unsafe impl Send for Cq {}
// SAFETY: as for `Channel`.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue for `depth` completions, known to channel and events as `number`.
    pub(crate) fn new(
        channel: &Arc<Channel>,
        depth: u32,
        number: usize,
    ) -> Result<Self, VerbError> {
        let verb = Verb::CreateCq;
        let depth = i32::try_from(depth).map_err(|_| VerbError::BadArgument(verb))?;
        let (context, events) = (channel.context.raw(), channel.raw.as_ptr());
        let number = std::ptr::without_provenance_mut(number);
        // SAFETY: an open context and a live channel; the context is a number, never followed.
        let raw = NonNull::new(unsafe { ibv_create_cq(context, depth, number, events, 0) });
        let raw = raw.ok_or_else(|| refusal(verb, errno()))?;
        Ok(Self { raw, _channel: Arc::clone(channel) })
    }

    pub(crate) fn raw(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// Asks to be told on the channel of the next completion.
    pub(crate) fn request_notify(&self) {
        // SAFETY: a live queue. A refusal only means that nobody is woken before the timeout.
        unsafe { ibv_req_notify_cq(self.raw.as_ptr(), 0) };
    }

    /// Takes completions into the front of `out`; returns them.
    pub(crate) fn poll<'a>(&self, out: &'a mut [MaybeUninit<ibv_wc>]) -> &'a [ibv_wc] {
        let room = i32::try_from(out.len()).unwrap_or(i32::MAX);
        // SAFETY: a live queue, and room for that many.
        let count = unsafe { ibv_poll_cq(self.raw.as_ptr(), room, out.as_mut_ptr().cast()) };
        let count = usize::try_from(count).unwrap_or(0).min(out.len());
        // SAFETY: the driver has filled the first `count` entries.
        unsafe { std::slice::from_raw_parts(out.as_ptr().cast(), count) }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: made by us, destroyed once, after the queue pairs that hold an Arc of it, and
        // with every notification acknowledged.
        unsafe { ibv_destroy_cq(self.raw.as_ptr()) };
    }
}
