//! The memory of raw messages: what peers reach, then slots to send from or fetch to, then slots
//! to receive in.

use crate::perftest::error::RunError;
use crate::perftest::limits::{GRH_BYTES, UNDER_WAY_BYTES_MAX};
use crate::perftest::session::row_depth;
use crate::perftest::settings::Settings;
use crate::perftest::tool::Op;
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{Access, Device, MrKeys, PdNum, Sge};

/// Slots begin at multiples of this: a line of cache each.
const ALIGN: usize = 64;

/// Where things lie, in bytes from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Of each queue pair, what its peer writes or reads.
    pub(super) target_stride: usize,
    /// Where the slots to send from begin; how long each is depends on the row.
    pub(super) local: usize,
    /// Where the slots to receive in begin, how long each is and how many there are.
    pub(super) recv: usize,
    pub(super) recv_stride: usize,
    pub(super) recv_slots: usize,
    /// All of it.
    pub(super) bytes: usize,
}

impl Layout {
    pub(super) fn new(settings: &Settings) -> Self {
        let (plan, qps) = (&settings.plan, settings.plan.qps as usize);
        let longest = plan.sizes().into_iter().max().unwrap_or(1) as usize;
        let target_stride = longest.next_multiple_of(ALIGN);
        let local = target_stride * qps;
        let slots = |size: u32| row_depth(plan, size) as usize * stride(size);
        let recv = local + plan.sizes().into_iter().map(slots).max().unwrap_or(0);
        let recv_stride = (longest + GRH_BYTES as usize).next_multiple_of(ALIGN);
        let recv_slots = if plan.tool.op() == Op::Send {
            let wanted = settings.rx_depth as usize * qps;
            (UNDER_WAY_BYTES_MAX / recv_stride).clamp(qps, wanted)
        } else {
            0
        };
        let bytes = recv + recv_slots * recv_stride;
        Self { target_stride, local, recv, recv_stride, recv_slots, bytes }
    }
}

/// Bytes from one slot of messages of `size` to the next.
pub(super) fn stride(size: u32) -> usize {
    (size as usize).next_multiple_of(ALIGN)
}

/// Registered memory.
pub(super) struct Memory {
    pub(super) window: SharedMemory,
    pub(super) keys: MrKeys,
    pub(super) layout: Layout,
}

impl Memory {
    pub(super) fn new<D>(device: &mut D, settings: &Settings) -> Result<Self, RunError>
    where
        D: Device<Memory = Region>,
    {
        let layout = Layout::new(settings);
        let window = SharedMemory::new(layout.bytes)?;
        let access = match settings.plan.tool.op() {
            Op::Send => Access::LOCAL,
            Op::Write => Access::REMOTE_WRITE,
            Op::Read | Op::Atomic => Access::REMOTE_ALL,
        };
        let keys = device.reg_shared_mr(PdNum::DEFAULT, &window, window.whole(), access)?;
        Ok(Self { window, keys, layout })
    }

    pub(super) fn addr(&self, at: usize) -> u64 {
        self.window.addr() + at as u64
    }

    pub(super) fn sge(&self, at: usize, length: u32) -> Sge {
        Sge { addr: self.addr(at), length, lkey: self.keys.lkey }
    }

    /// Bytes must lie within, as the layout makes sure.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), RunError> {
        Ok(self.window.write(at, bytes)?)
    }

    pub(super) fn read(&self, at: usize, out: &mut [u8]) -> Result<(), RunError> {
        Ok(self.window.read(at, out)?)
    }
}
