//! What only shows beneath the contract, on a real driver: `cargo xtask vm-test` runs these.

use super::*;
use crate::sys::made_up::{changing, refusing, take_changes};
use crate::sys::{Refused, ibv_send_flags as flags};
use crate::wr;
use towpath_base::serial::Psn;
use towpath_verbs::{Access, Mtu, PdNum, QpType, RcAttr, SendOp, SgList, Sge};

/// A queue pair that is its own peer, and memory to send from.
struct Rig {
    device: VerbsDevice,
    qp: QpNum,
    memory: Region,
    keys: MrKeys,
}

impl Rig {
    fn new() -> Self {
        let pair = std::env::var("TOWPATH_VERBS_PAIR").expect("it names two devices");
        let (name, _) = pair.split_once(',').expect("two names with a comma between them");
        let mut device = VerbsDevice::open(&Target::new().device(name)).expect("it opens");
        let memory = Region::new(1 << 16).expect("memory");
        let keys = device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL).expect("room");
        let cq = device.create_cq(64).expect("room");
        let init = QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL).depth(8, 8);
        let qp = Device::create_qp(&mut device, &init).expect("room");
        let connect = Connect {
            dest: device.local_addr(),
            dest_qp_num: qp,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: Mtu::Mtu1024,
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        device.connect_qp(qp, &connect).expect("it was in INIT");
        Self { device, qp, memory, keys }
    }

    fn list(&self, length: u32) -> SgList {
        SgList::one(Sge { addr: self.memory.addr(), length, lkey: self.keys.lkey })
    }

    /// Hands sends of these lengths to the driver behind our back, inline if it says so.
    fn post_raw(&mut self, sends: &[(u32, bool)]) -> Result<(), Refused> {
        let mut chain = sys::Chain::new();
        for &(length, inline) in sends {
            let list = self.list(length);
            let mut raw = wr::raw(&SendWr::new(1, SendOp::Send, list), 7, None, 0);
            raw.send_flags |= if inline { flags::IBV_SEND_INLINE.0 } else { 0 };
            chain.push(raw, &list);
        }
        let slot = self.device.qps.slot_of(self.qp).expect("it is there");
        self.device.qps.at(slot).expect("it is there").raw.post_send(&mut chain)
    }

    fn parts(&self) -> sys::QpParts {
        let init = QpInit::new(QpType::Uc, CqNum(0)).access(Access::REMOTE_ALL);
        self.device.parts(&init).expect("the queue is there")
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn the_driver_refuses_in_the_middle_of_a_list_and_says_where() {
    let mut rig = Rig::new();
    let bad = VerbError::BadArgument(Verb::PostSend);
    let refused = rig.post_raw(&[(64, true), (64, false), (60_000, true), (64, false)]);
    assert_eq!(refused, Err(Refused { taken: 2, error: bad }), "as long as no inline send is");
    let refused = rig.post_raw(&[(60_000, true)]);
    assert_eq!(refused, Err(Refused { taken: 0, error: bad }));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn what_no_driver_inlines_is_not_inlined() {
    let rig = Rig::new();
    let qp_type = qps::raw_type(QpType::Uc);
    let make = |inline_bytes| sys::Qp::new(rig.parts(), qp_type, (4, 4), (1, 1), inline_bytes);
    assert_eq!(make(INLINE_BYTES_MAX).expect("room").inline_bytes_max(), INLINE_BYTES_MAX);
    assert_eq!(make(1 << 24).expect("it goes without").inline_bytes_max(), 0);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn a_source_port_is_changed_by_the_drivers_call_on_queue_pairs_that_run() {
    let mut rig = Rig::new();
    assert!(!rig.device.caps.source_port_live, "rxe has no such call");
    let unsupported = Err(VerbError::Unsupported(Verb::ModifyQp));
    assert_eq!(rig.device.set_source_port(rig.qp, 7), unsupported);
    let channel = Arc::new(sys::Channel::new(rig.device.pd.context()).expect("room"));
    let cq = Arc::new(sys::Cq::new(&channel, 1, 0, false).expect("room"));
    let tried = |device: &VerbsDevice, call| {
        let parts = (&device.pd, &cq, &device.port);
        connect::changes_ports(parts, &device.caps, call)
    };
    assert_eq!(tried(&rig.device, refusing()), unsupported);
    assert_eq!(tried(&rig.device, changing()), Ok(()));
    let seen = take_changes();
    assert!(matches!(*seen, [(num, 0xc001)] if num != rig.qp.0), "on one of its own: {seen:?}");
    rig.device.port_change = Some(changing());
    assert_eq!(rig.device.set_source_port(rig.qp, 7), Ok(()));
    let bad = Err(VerbError::BadArgument(Verb::ModifyQp));
    assert_eq!(rig.device.set_source_port(rig.qp, 1 << 14), bad);
    assert_eq!(take_changes(), [(rig.qp.0, 0xc007)]);
    rig.device.modify(rig.qp, QpState::Err).expect("it goes to any state");
    let wrong = Err(VerbError::WrongState(Verb::ModifyQp));
    assert_eq!(rig.device.set_source_port(rig.qp, 8), wrong, "it runs no more");
}

#[test]
#[ignore = "needs an RDMA device without timestamps: cargo xtask vm-test"]
fn a_queue_with_timestamps_is_refused_where_there_are_none() {
    let rig = Rig::new();
    let channel = Arc::new(sys::Channel::new(rig.device.pd.context()).expect("room"));
    let refused = sys::Cq::new(&channel, 4, 0, true).err();
    assert_eq!(refused, Some(VerbError::Unsupported(Verb::CreateCq)));
    assert!(sys::clock(rig.device.pd.context()).is_none());
}
