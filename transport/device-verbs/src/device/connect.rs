//! States of queue pairs, and the way to a peer.

use super::VerbsDevice;
use crate::caps::{self, Port};
use crate::gid;
use crate::limits::{HOPS_MAX, SOURCE_PORTS};
use crate::qps::{self, Qp, Route};
use crate::queue::Fifo;
use crate::sys::{self, ibv_ah_attr, ibv_qp_attr_mask as mask, ibv_qp_state as raw_state};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use towpath_base::serial::Psn;
use towpath_verbs::{
    Connect, CqNum, DeviceCaps, Mtu, QpInit, QpNum, QpState, QpType, RcAttr, Verb, VerbError, Wc,
    WcOpcode, WcStatus,
};

/// The way to `dest`.
pub(super) fn ah_attr(port: &Port, dest: IpAddr, route: Route) -> ibv_ah_attr {
    let grh = sys::ibv_global_route {
        dgid: sys::ibv_gid { raw: gid::of_ip(dest) },
        flow_label: gid::flow_label(route.source_port),
        sgid_index: port.gid_index,
        hop_limit: HOPS_MAX,
        traffic_class: route.tclass,
    };
    ibv_ah_attr {
        grh,
        dlid: 0,
        sl: 0,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: port.number,
    }
}

/// From RESET to INIT.
pub(super) fn to_init(qp: &mut Qp, port: &Port) -> Result<(), VerbError> {
    let mut attr = sys::empty_qp_attr();
    attr.qp_state = raw_state::IBV_QPS_INIT;
    attr.port_num = port.number;
    attr.qkey = qp.init.qkey;
    attr.qp_access_flags = sys::access_flags(qp.init.qp_access_flags);
    let last = match qp.init.qp_type {
        QpType::Ud => mask::IBV_QP_QKEY,
        QpType::Rc | QpType::Uc => mask::IBV_QP_ACCESS_FLAGS,
    };
    let set = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | last;
    qp.raw.modify(attr, set)?;
    qp.state = QpState::Init;
    Ok(())
}

/// From INIT to RTR.
fn to_rtr(qp: &Qp, port: &Port, connect: &Connect) -> Result<(), VerbError> {
    let mut attr = sys::empty_qp_attr();
    attr.qp_state = raw_state::IBV_QPS_RTR;
    attr.ah_attr = ah_attr(port, connect.dest.ip(), Route::of(connect));
    attr.path_mtu = caps::raw_mtu(connect.path_mtu);
    attr.dest_qp_num = connect.dest_qp_num.0;
    attr.rq_psn = connect.rq_psn.value();
    attr.max_dest_rd_atomic = connect.rc.max_dest_rd_atomic;
    attr.min_rnr_timer = connect.rc.min_rnr_timer;
    let connected = mask::IBV_QP_STATE
        | mask::IBV_QP_AV
        | mask::IBV_QP_PATH_MTU
        | mask::IBV_QP_DEST_QPN
        | mask::IBV_QP_RQ_PSN;
    let set = match qp.init.qp_type {
        QpType::Ud => mask::IBV_QP_STATE,
        QpType::Uc => connected,
        QpType::Rc => connected | mask::IBV_QP_MAX_DEST_RD_ATOMIC | mask::IBV_QP_MIN_RNR_TIMER,
    };
    qp.raw.modify(attr, set)
}

/// From RTR to RTS.
fn to_rts(qp: &Qp, connect: &Connect) -> Result<(), VerbError> {
    let mut attr = sys::empty_qp_attr();
    attr.qp_state = raw_state::IBV_QPS_RTS;
    attr.sq_psn = connect.sq_psn.value();
    attr.timeout = connect.rc.timeout;
    attr.retry_cnt = connect.rc.retry_cnt;
    attr.rnr_retry = connect.rc.rnr_retry;
    attr.max_rd_atomic = connect.rc.max_rd_atomic;
    let mut set = mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN;
    if qp.init.qp_type == QpType::Rc {
        set = set
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
    }
    qp.raw.modify(attr, set)
}

/// Whether the device changes the source port of a queue pair that runs. No driver tells: one that
/// is its own peer is made, and asked to.
pub(super) fn changes_ports(
    (pd, cq, port): (&Arc<sys::Pd>, &Arc<sys::Cq>, &Port),
    caps: &DeviceCaps,
    change: sys::PortChange,
) -> Result<(), VerbError> {
    let qp_type = if caps.verbs.uc { QpType::Uc } else { QpType::Rc };
    let (send_cq, recv_cq) = (Arc::clone(cq), Arc::clone(cq));
    let parts = sys::QpParts { pd: Arc::clone(pd), send_cq, recv_cq, srq: None };
    let raw = sys::Qp::new(parts, qps::raw_type(qp_type), (1, 1), (1, 1), 0)?;
    let num = QpNum(raw.num());
    let mut qp = Qp {
        raw,
        num,
        init: QpInit::new(qp_type, CqNum(0)),
        state: QpState::Reset,
        route: Route::default(),
        sends: Fifo::new(1),
        send_holds: VecDeque::new(),
        recvs: Fifo::new(1),
    };
    to_init(&mut qp, port)?;
    let connect = Connect {
        dest: SocketAddr::new(port.ip, gid::UDP_PORT),
        dest_qp_num: num,
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        path_mtu: Mtu::Mtu256,
        source_port: 0,
        tclass: 0,
        rc: RcAttr::default(),
    };
    to_rtr(&qp, port, &connect)?;
    to_rts(&qp, &connect)?;
    change.set(&qp.raw, gid::udp_source_port(1))
}

impl VerbsDevice {
    pub(super) fn set_port(&mut self, num: QpNum, source_port: u16) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        let change = self.port_change.ok_or(VerbError::Unsupported(verb))?;
        let slot = self.qps.slot_of(num);
        let qp = slot.and_then(|slot| self.qps.at_mut(slot));
        let qp = qp.ok_or(VerbError::NoSuchObject(verb))?;
        if qp.state != QpState::Rts {
            return Err(VerbError::WrongState(verb));
        }
        if source_port >= SOURCE_PORTS || qp.init.qp_type == QpType::Ud {
            return Err(VerbError::BadArgument(verb));
        }
        change.set(&qp.raw, gid::udp_source_port(source_port))?;
        qp.route.source_port = source_port;
        Ok(())
    }

    pub(super) fn connect(&mut self, num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        let slot = self.qps.slot_of(num);
        let qp = slot.and_then(|slot| self.qps.at_mut(slot));
        let qp = qp.ok_or(VerbError::NoSuchObject(verb))?;
        if qp.state != QpState::Init {
            return Err(VerbError::WrongState(verb));
        }
        let fits = qp.init.qp_type == QpType::Ud
            || (connect.dest.is_ipv4() == self.port.ip.is_ipv4()
                && connect.dest_qp_num <= QpNum::MAX
                && connect.path_mtu <= self.caps.mtu_max
                && connect.rc.in_range());
        if !fits {
            return Err(VerbError::BadArgument(verb));
        }
        if qp.init.qp_type != QpType::Ud && connect.dest.port() != gid::UDP_PORT {
            return Err(VerbError::PeerPort(verb));
        }
        to_rtr(qp, &self.port, connect)?;
        qp.state = QpState::Rtr;
        to_rts(qp, connect)?;
        qp.state = QpState::Rts;
        qp.route = Route::of(connect);
        Ok(())
    }

    pub(super) fn modify(&mut self, num: QpNum, state: QpState) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        let slot = self.qps.slot_of(num).ok_or(VerbError::NoSuchObject(verb))?;
        // What has completed by now completes as it did.
        self.take_in_all();
        let port = self.port;
        let qp = self.qps.at_mut(slot).ok_or(VerbError::NoSuchObject(verb))?;
        match (state, qp.state) {
            (QpState::Reset, _) => {
                force(qp, raw_state::IBV_QPS_RESET)?;
                qp.state = QpState::Reset;
                // The tickets of before are not in the queues any more, so what the driver still
                // tells of them is passed over.
                qp.clear(&mut self.regions);
                Ok(())
            }
            (QpState::Init, QpState::Init) => Ok(()),
            (QpState::Init, QpState::Reset) => to_init(qp, &port),
            (QpState::Init, _) => Err(VerbError::WrongState(verb)),
            (QpState::Err, _) => {
                force(qp, raw_state::IBV_QPS_ERR)?;
                qp.state = QpState::Err;
                Ok(())
            }
            _ => Err(VerbError::BadArgument(verb)),
        }
    }

    /// Flushes a queue pair and lets it go. Some drivers forget the completions of a queue pair
    /// with it, others leave them behind; so what is there is taken first, and what never came is
    /// made here.
    pub(super) fn destroy(&mut self, num: QpNum) -> Result<(), VerbError> {
        let verb = Verb::DestroyQp;
        let slot = self.qps.slot_of(num).ok_or(VerbError::NoSuchObject(verb))?;
        // The driver may refuse in RESET, where nothing is posted.
        let _ = self.modify(num, QpState::Err);
        self.take_in_all();
        let mut qp = self.qps.remove(slot).ok_or(VerbError::NoSuchObject(verb))?;
        let (send_cq, recv_cq) = (qp.init.send_cq, qp.init.recv_cq);
        let status = WcStatus::WrFlushErr;
        let flushed = |wr_id, opcode| Wc { wr_id, status, opcode, qp_num: num, ..Wc::default() };
        let mut sends = Vec::new();
        let mut recvs = Vec::new();
        let (mut holds, mut lists) = (std::mem::take(&mut qp.send_holds), Vec::new());
        for send in qp.sends.drain() {
            sends.push(flushed(send.wr_id, send.opcode));
        }
        for recv in qp.recvs.drain() {
            recvs.push(flushed(recv.wr_id, WcOpcode::Recv));
            lists.push(recv.list);
        }
        // Only now has the device let go of the memory that the flushes give back.
        drop(qp);
        self.regions.release(holds.drain(..));
        lists.into_iter().for_each(|list| self.regions.release_all(list));
        for (cq, wcs) in [(send_cq, sends), (recv_cq, recvs)] {
            if let Some(cq) = self.cqs.find_mut(cq) {
                cq.pending.extend(wcs);
            }
        }
        Ok(())
    }
}

/// To a state that can be reached from any other.
fn force(qp: &Qp, state: raw_state::Type) -> Result<(), VerbError> {
    let mut attr = sys::empty_qp_attr();
    attr.qp_state = state;
    qp.raw.modify(attr, mask::IBV_QP_STATE)
}
