//! The one queue pair of a server for the datagrams of all clients.

use super::super::slots::{Slots, SlotsError};
use super::Id;
use crate::limits::RAW_DATAGRAM_SLOTS;
use towpath_base::serial::Psn;
use towpath_memory::Region;
use towpath_verbs::{
    Connect, CqNum, Device, QpInit, QpNum, QpType, QueueLimits, RcAttr, RecvWr, Wc, WcStatus,
};

/// The queue pair and its memory.
pub(super) struct Datagrams {
    pub(super) qp: QpNum,
    pub(super) slots: Slots,
    pub(super) qkey: u32,
    /// It failed, and has to be made anew.
    pub(super) is_broken: bool,
}

/// What a completion was of.
pub(super) enum Done {
    Nothing,
    Sent,
    Received,
    /// A datagram came that is longer than any slot: the slot is free again.
    Refused,
}

impl Datagrams {
    /// Receives that are posted, and replies that may be on their way.
    pub(super) fn slots(limits: &QueueLimits) -> u32 {
        RAW_DATAGRAM_SLOTS.min(limits.wr_max).min(limits.cqe_max / 2)
    }

    pub(super) fn new<D: Device<Memory = Region>>(
        device: &mut D,
        cq: CqNum,
        qkey: u32,
    ) -> Result<Self, SlotsError> {
        let (count, mtu) = (Self::slots(&device.queue_limits()), device.caps().mtu_max);
        // The upper half of queue keys is for those who administer a network.
        let qkey = qkey >> 1;
        let slots = Slots::new(device, (count, QpType::Ud), mtu.bytes(), mtu.bytes())?;
        let init = QpInit::new(QpType::Ud, cq).depth(count, count).qkey(qkey);
        let qp = match device.create_qp(&init) {
            Ok(qp) => qp,
            Err(error) => {
                slots.free(device);
                return Err(error.into());
            }
        };
        let recvs: Vec<RecvWr> =
            (0..count).map(|slot| slots.recv(Id::recv(0, slot), slot)).collect();
        let connect = Connect {
            dest: device.local_addr(),
            dest_qp_num: qp,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: mtu,
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        let posted = device.post_recv(qp, &recvs).map_err(|bad| bad.error);
        if let Err(error) = posted.and_then(|()| device.connect_qp(qp, &connect)) {
            let _ = device.destroy_qp(qp);
            slots.free(device);
            return Err(error.into());
        }
        Ok(Self { qp, slots, qkey, is_broken: false })
    }

    /// Takes a completion in.
    pub(super) fn complete(&mut self, wc: &Wc) -> Done {
        if wc.qp_num != self.qp {
            return Done::Nothing;
        }
        match (wc.status, Id::of(wc.wr_id).is_recv) {
            (WcStatus::Success, true) => Done::Received,
            (WcStatus::Success, false) => Done::Sent,
            // Anybody may send one. Where the queue pair failed of it, the next completion says so.
            (WcStatus::LocLenErr, true) => Done::Refused,
            _ => {
                self.is_broken = true;
                Done::Nothing
            }
        }
    }

    /// Lets a slot receive again.
    pub(super) fn recycle<D: Device<Memory = Region>>(&mut self, device: &mut D, slot: u32) {
        let recv = self.slots.recv(Id::recv(0, slot), slot);
        self.is_broken |= device.post_recv(self.qp, &[recv]).is_err();
    }
}
