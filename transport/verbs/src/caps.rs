//! What a device can do, as data.

use core::fmt;
use towpath_base::Nanos;

/// Payload bytes of a full packet: the five sizes that RoCE knows (`ibv_mtu`).
#[doc(alias = "ibv_mtu")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256,
    /// 512 bytes.
    Mtu512,
    /// 1,024 bytes: what fits an Ethernet MTU of 1,500.
    Mtu1024,
    /// 2,048 bytes.
    Mtu2048,
    /// 4,096 bytes.
    Mtu4096,
}

impl Mtu {
    /// From smallest to largest.
    pub const ALL: [Self; 5] =
        [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Mtu256 => 256,
            Self::Mtu512 => 512,
            Self::Mtu1024 => 1024,
            Self::Mtu2048 => 2048,
            Self::Mtu4096 => 4096,
        }
    }

    /// The MTU of exactly `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The largest MTU of at most `bytes`.
    #[must_use]
    pub fn at_most(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= bytes)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// Which verbs and queue pair types a device offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbSet {
    /// Reliable connected queue pairs.
    pub rc: bool,
    /// Unreliable connected queue pairs.
    pub uc: bool,
    /// Unreliable datagram queue pairs.
    pub ud: bool,
    /// READ on RC.
    pub read: bool,
    /// FETCH_ADD and CMP_SWAP on RC.
    pub atomics: bool,
    /// Shared receive queues.
    pub srq: bool,
    /// A UC queue pair on a shared receive queue survives a lost packet of a SEND. Where it does
    /// not (rxe), a receive queue per queue pair is needed.
    pub uc_srq_survives_loss: bool,
}

/// What a device can do. Ask here, never by the device's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCaps {
    /// Verbs and queue pair types.
    pub verbs: VerbSet,
    /// The largest MTU of its port now.
    pub mtu_max: Mtu,
    /// The longest message, in bytes.
    pub message_bytes_max: u32,
    /// The most gather entries of a send, [`SEND_SGE_MAX`](crate::SEND_SGE_MAX) at most: what
    /// [`QpInit::max_send_sge`](crate::QpInit::max_send_sge) may be.
    pub send_sge_max: u32,
    /// The most queue pairs.
    pub qp_max: u32,
    /// Completions carry the time of the wire rather than none.
    pub timestamps: bool,
    /// How many source ports (path entropy) queue pairs can choose from, those of all its
    /// [NICs](crate::Device::nic_addr) together.
    pub source_ports: u16,
    /// A queue pair can change its source port while it runs.
    pub source_port_live: bool,
    /// What the receive side can hold for all peers together before the application polls, in
    /// bytes on the wire with the kernel's bookkeeping counted in; `None` where the device does not
    /// bound it (hardware drops by other rules).
    pub rx_buffer_bytes: Option<u64>,
    /// What each separately sent message is charged on top of its bytes against
    /// `rx_buffer_bytes`.
    pub rx_charge_bytes: u32,
    /// How far delays taken from its timestamps may be off although nothing is queued in the
    /// network: zero where hardware (or a simulation) keeps the time, else what schedulers and
    /// system calls of both hosts add at most. Whoever judges a network by its delay measures the
    /// noise within this bound.
    pub delay_noise: Nanos,
    /// What arrives is what was sent, and whole: no wire is on the way, and nothing cuts messages
    /// into packets that could be put together wrongly. A checksum of the bytes would find nothing.
    pub delivers_intact: bool,
    /// A send is carried out by the call that posts it: nothing waits in the device, so what was
    /// posted is never ahead of what is posted next.
    pub sends_at_once: bool,
    /// Nothing arrives but in [`progress`](crate::Device::progress) with a budget: a receive that
    /// is posted before that is in time, however long something has been on its way.
    pub arrives_in_progress: bool,
    /// The pages of registered memory stay where they are for as long as it is registered, for the
    /// device knows them by their physical addresses. Where it does not, pages that nothing posted
    /// names may go back to the system.
    pub pins_memory: bool,
    /// A send on a UC queue pair may be cut at a smaller size than the queue pair's MTU
    /// ([`SendFlags::cut_at`](crate::SendFlags::cut_at)), and messages are taken that come cut at
    /// any of the five sizes up to that MTU. Where it is not so, a message that must leave in
    /// smaller packets has to fit one.
    pub cuts_each_send: bool,
    /// Packets of a UC queue pair may go without the ICRC:
    /// [`Device::omit_icrc`](crate::Device::omit_icrc).
    pub omits_icrc: bool,
}
