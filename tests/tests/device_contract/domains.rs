//! Protection domains, and what a peer may not reach.

use crate::rig::Rig;
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, Device, PdNum, QpInit, QpType, RemoteAddr, SendOp, SendWr, SgList, Sge, Verb,
    VerbError, WcStatus,
};

/// Memory of one domain, and queue pairs of another and of the same: what is local to the queue
/// pair is looked at when it is posted, what a peer names when it comes in.
pub(crate) fn apart<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let memory = SharedMemory::new(4096).expect("memory for a test");
    let [ours, theirs] = [(); 2].map(|()| rig.b.device.alloc_pd().expect("room"));
    let access = Access::REMOTE_ALL;
    let keys = rig.b.device.reg_shared_mr(ours, &memory, 1024..2048, access).expect("room");
    let local = Sge { addr: memory.addr() + 1024, length: 8, lkey: keys.lkey };
    let remote = RemoteAddr { addr: memory.addr() + 1024, rkey: keys.rkey };
    let qp_type = if rig.a.device.caps().verbs.rc { QpType::Rc } else { QpType::Uc };
    for (pd, reaches) in [(PdNum::DEFAULT, false), (theirs, false), (ours, true)] {
        memory.write(1024, &[0; 8]).expect("it fits");
        let near = QpInit::new(qp_type, rig.a.cq);
        let far = QpInit::new(qp_type, rig.b.cq).access(access).pd(pd);
        let (a_qp, b_qp) = rig.pair_of(&near, &far);
        let own = SendWr::new(9, SendOp::Send, SgList::one(local));
        let posted = rig.b.device.post_send(b_qp, &[own]).map_err(|bad| bad.error);
        let refused = Err(VerbError::BadMemory(Verb::PostSend));
        assert_eq!(posted, if reaches { Ok(()) } else { refused }, "{pd:?}");

        let sent = rig.a.fill(0, 8, 5);
        rig.a.recv(a_qp, 8, 64, 8);
        rig.a.send(a_qp, 1, SendOp::Write { remote }, 8);
        rig.run();
        let mut there = [0; 8];
        memory.read(1024, &mut there).expect("it fits");
        assert_eq!(there[..] == sent[..], reaches, "{pd:?}");
        let ended = rig.a.completions().into_iter().find(|wc| wc.wr_id == 1).map(|wc| wc.status);
        if qp_type == QpType::Rc {
            let status = if reaches { WcStatus::Success } else { WcStatus::RemAccessErr };
            assert_eq!(ended, Some(status), "{pd:?}");
        }
        rig.b.completions();
        rig.b.device.destroy_qp(b_qp).expect("it is there");
    }
    let in_use = Err(VerbError::BadArgument(Verb::DeallocPd));
    assert_eq!(rig.b.device.dealloc_pd(ours), in_use, "memory is registered");
    rig.b.device.dereg_mr(keys.lkey).expect("it is there");
    assert_eq!(rig.b.device.dealloc_pd(ours), Ok(()));
    let nowhere = QpInit::new(QpType::Uc, rig.b.cq).pd(ours);
    let gone = rig.b.device.create_qp(&nowhere);
    assert_eq!(gone, Err(VerbError::NoSuchObject(Verb::CreateQp)));
}

/// Memory of buffers, whose bytes this host sees as slices, cannot be opened to peers.
pub(crate) fn closed<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let region = Region::new(4096).expect("memory for a test");
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ALL] {
        let refused = rig.b.device.reg_mr(PdNum::DEFAULT, &region, access);
        assert_eq!(refused, Err(VerbError::BadArgument(Verb::RegMr)));
    }
}
