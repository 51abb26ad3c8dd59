//! Links of several workers on one port, and the queues by which they hand packets to each other.
//!
//! A packet is for the link whose share its destination queue pair is in. As a rule the kernel
//! brings it there; where it does not, the link that it came to copies it into a queue of the
//! other one. The queues are bounded, without locks, and each has its own packets, so a link that
//! stands still costs the others nothing. Between what is handed over and what the kernel brings
//! there is no order: the wire is unreliable.

use super::limits::{HANDED_BYTES_MAX, HANDED_PACKETS_MAX};
use super::steering::dest_qp;
use core::net::SocketAddr;
use core::task::Waker;
use crossbeam_queue::ArrayQueue;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use towpath_base::Time;
use towpath_base::passes::{Pass, note};
use towpath_verbs::{QpShare, RxPacket};

/// A packet on its way from one link to another.
struct Parcel {
    source: SocketAddr,
    tclass: Option<u8>,
    timestamp: Time,
    byte_len: usize,
    bytes: Box<[u8]>,
}

/// What is handed to one link.
struct Inbox {
    full: ArrayQueue<Parcel>,
    free: ArrayQueue<Parcel>,
    owner: Waker,
}

impl Inbox {
    fn new(owner: Waker) -> Self {
        let free = ArrayQueue::new(HANDED_PACKETS_MAX);
        for _ in 0..HANDED_PACKETS_MAX {
            let (source, timestamp) = (SocketAddr::from(([0; 4], 0)), Time::ZERO);
            let bytes = vec![0; HANDED_BYTES_MAX].into();
            // There is room for as many.
            drop(free.push(Parcel { source, tclass: None, timestamp, byte_len: 0, bytes }));
        }
        Self { full: ArrayQueue::new(HANDED_PACKETS_MAX), free, owner }
    }

    /// Whether there was room for it.
    fn put(&self, packet: &RxPacket<'_>) -> bool {
        if packet.bytes.len() > HANDED_BYTES_MAX {
            return false;
        }
        let Some(mut parcel) = self.free.pop() else { return false };
        parcel.source = packet.source;
        parcel.tclass = packet.tclass;
        parcel.timestamp = packet.timestamp;
        parcel.byte_len = packet.bytes.len();
        parcel.bytes[..parcel.byte_len].copy_from_slice(packet.bytes);
        note(Pass::Device, parcel.byte_len);
        self.full.push(parcel).is_ok()
    }
}

/// What the links of a group share.
struct Group {
    /// By the index of their shares.
    inboxes: Vec<Inbox>,
    /// The receiving sockets, so that all stay while one link is there: the kernel counts them in
    /// their order, which would change with one that is gone.
    _receivers: Vec<UdpSocket>,
}

/// One link's place in its group.
pub(super) struct Member {
    group: Arc<Group>,
    share: QpShare,
    /// Whose inboxes something was put into since they were rung, a bit each.
    to_ring: u64,
    pub(super) handed_over: u64,
    pub(super) handed_over_lost: u64,
    pub(super) taken_over: u64,
}

impl Member {
    /// The members of a group: one for each receiver, in order, with what wakes its owner.
    pub(super) fn all(
        shares: &[QpShare],
        receivers: &[UdpSocket],
        wakers: impl Iterator<Item = Waker>,
    ) -> io::Result<Vec<Self>> {
        let _receivers = receivers.iter().map(UdpSocket::try_clone).collect::<io::Result<_>>()?;
        let group = Arc::new(Group { inboxes: wakers.map(Inbox::new).collect(), _receivers });
        let member = |&share| Self {
            group: Arc::clone(&group),
            share,
            to_ring: 0,
            handed_over: 0,
            handed_over_lost: 0,
            taken_over: 0,
        };
        Ok(shares.iter().map(member).collect())
    }

    pub(super) fn share(&self) -> QpShare {
        self.share
    }

    fn inbox(&self) -> &Inbox {
        &self.group.inboxes[usize::from(self.share.index())]
    }

    /// Whether packets wait that others handed over.
    pub(super) fn has_parcels(&self) -> bool {
        !self.inbox().full.is_empty()
    }

    /// Takes in at most `budget` packets: what others handed over, and what `receive` brings, as
    /// far as it is ours.
    #[inline(never)]
    pub(super) fn receive(
        &mut self,
        dest: SocketAddr,
        budget: usize,
        sink: &mut dyn FnMut(RxPacket<'_>),
        receive: impl FnOnce(usize, &mut dyn FnMut(RxPacket<'_>)) -> usize,
    ) -> usize {
        // Half each, so that neither keeps the other waiting.
        let taken = self.take_over(dest, budget.div_ceil(2), sink);
        let received = receive(budget - taken, &mut |packet| {
            if self.keeps(&packet) {
                sink(packet);
            }
        });
        self.ring();
        taken + received
    }

    /// Hands at most `budget` of the packets that others handed over to `sink`.
    fn take_over(
        &mut self,
        dest: SocketAddr,
        budget: usize,
        sink: &mut dyn FnMut(RxPacket<'_>),
    ) -> usize {
        let mut taken = 0;
        while taken < budget && self.has_parcels() {
            let inbox = self.inbox();
            let Some(parcel) = inbox.full.pop() else { break };
            let Parcel { source, tclass, timestamp, byte_len, ref bytes } = parcel;
            sink(RxPacket { source, dest, tclass, bytes: &bytes[..byte_len], timestamp });
            // There is room for as many as there are.
            drop(inbox.free.push(parcel));
            taken += 1;
        }
        self.taken_over += taken as u64;
        taken
    }

    /// Keeps a packet that came in if it is ours, and hands it over otherwise; true when it is
    /// ours.
    #[inline]
    fn keeps(&mut self, packet: &RxPacket<'_>) -> bool {
        let owner = dest_qp(&[packet.bytes]).map_or(0, |qp_num| self.share.owner_of(qp_num));
        if owner == self.share.index() {
            return true;
        }
        let placed = self.group.inboxes[usize::from(owner)].put(packet);
        self.handed_over += u64::from(placed);
        self.handed_over_lost += u64::from(!placed);
        self.to_ring |= 1 << owner;
        false
    }

    /// Wakes those that something was handed to.
    fn ring(&mut self) {
        while self.to_ring != 0 {
            let owner = self.to_ring.trailing_zeros();
            self.to_ring &= self.to_ring - 1;
            self.group.inboxes[owner as usize].owner.wake_by_ref();
        }
    }
}
