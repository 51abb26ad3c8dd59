//! Errors, flushes and refusals.

use crate::rig::{MEMORY_BYTES, Rig};
use towpath_memory::Region;
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Device, PdNum, QpInit, QpNum, QpState, QpType, RecvWr, SGE_DEFAULT,
    SendOp, SendWr, SgList, Sge, Verb, VerbError, WcStatus,
};

pub(crate) fn too_long<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    rig.a.fill(0, 100, 1);
    rig.b.recv(b_qp, 1, 0, 99);
    rig.b.recv(b_qp, 2, 200, 100);
    rig.a.send(a_qp, 1, SendOp::Send, 100);
    rig.a.send(a_qp, 2, SendOp::Send, 100);
    rig.run();
    let received = rig.b.completions();
    let received: Vec<_> = received.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let (status, survives) = (rig.manner.too_long, !rig.manner.too_long_is_fatal);
    let next = if survives { WcStatus::Success } else { WcStatus::WrFlushErr };
    assert_eq!(received, [(1, status), (2, next)]);
    assert_eq!(rig.b.bytes(99, 101), [0; 101], "nothing was written beyond the receive");
    let state = if survives { QpState::Rts } else { QpState::Err };
    assert_eq!(rig.b.device.qp_state(b_qp), Ok(state));
    if survives {
        assert_eq!(rig.b.bytes(0, 99), [0; 99], "nothing of it was written");
    }
}

pub(crate) fn memory_gone<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    let gone = Region::new(4096).unwrap();
    let keys = rig.b.device.reg_mr(PdNum::DEFAULT, &gone, Access::LOCAL).unwrap();
    let sg_list = SgList::one(Sge { addr: gone.addr(), length: 64, lkey: keys.lkey });
    rig.b.device.post_recv(b_qp, &[RecvWr { wr_id: 1, sg_list }]).unwrap();
    rig.b.recv(b_qp, 2, 0, 64);
    rig.b.device.dereg_mr(keys.lkey).unwrap();
    rig.a.send(a_qp, 1, SendOp::Send, 64);
    rig.run();
    let received = rig.b.completions();
    let received: Vec<_> = received.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(received, [(1, rig.manner.memory_gone), (2, WcStatus::WrFlushErr)]);
    assert_eq!(rig.b.device.qp_state(b_qp), Ok(QpState::Err));
    assert_eq!(rig.b.device.poll_async_event(), Some(AsyncEvent::QpFatal(b_qp)));
    assert_eq!(rig.b.device.poll_async_event(), None);
    let late = rig.b.device.post_recv(b_qp, &[RecvWr::default()]).unwrap_err();
    assert_eq!(late.error, VerbError::WrongState(Verb::PostRecv));
}

pub(crate) fn destroyed<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    for wr_id in 0..4 {
        rig.b.recv(b_qp, wr_id, 0, 64);
    }
    rig.a.send(a_qp, 1, SendOp::Send, 64);
    rig.run();
    rig.b.device.destroy_qp(b_qp).unwrap();
    let gone = Err(VerbError::NoSuchObject(Verb::DestroyQp));
    assert_eq!(rig.b.device.destroy_qp(b_qp), gone);
    rig.b.memory.write(0, &[0; 64]).unwrap();
    rig.a.fill(0, 64, 1);
    rig.a.send(a_qp, 2, SendOp::Send, 64);
    rig.run();
    let received: Vec<_> = rig.b.completions().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let flushed = |wr_id| (wr_id, WcStatus::WrFlushErr);
    assert_eq!(received, [(0, WcStatus::Success), flushed(1), flushed(2), flushed(3)]);
    assert_eq!(rig.b.bytes(0, 64), [0; 64]);
    let next = rig.b.create(&QpInit::new(QpType::Uc, rig.b.cq).access(Access::REMOTE_ALL));
    assert_ne!(next, b_qp, "what is late for the old one does not find the new one");
}

pub(crate) fn reset<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    rig.b.recv(b_qp, 1, 0, 64);
    rig.b.device.modify_qp(b_qp, QpState::Reset).unwrap();
    rig.a.send(a_qp, 1, SendOp::Send, 64);
    rig.run();
    let closed = rig.b.device.post_recv(b_qp, &[RecvWr::default()]).unwrap_err();
    assert_eq!(closed.error, VerbError::WrongState(Verb::PostRecv));
    rig.b.device.modify_qp(b_qp, QpState::Init).unwrap();
    rig.a.device.modify_qp(a_qp, QpState::Reset).unwrap();
    rig.a.device.modify_qp(a_qp, QpState::Init).unwrap();
    rig.connect(a_qp, b_qp);
    let again = rig.b.device.modify_qp(b_qp, QpState::Init);
    assert_eq!(again, Err(VerbError::WrongState(Verb::ModifyQp)), "it is running");
    rig.b.recv(b_qp, 2, 0, 64);
    rig.a.send(a_qp, 2, SendOp::Send, 64);
    rig.run();
    assert!(rig.b.completions().iter().map(|wc| wc.wr_id).eq([2]), "the first was forgotten");
}

pub(crate) fn refusals<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    let verbs = rig.a.device.caps().verbs;
    let list = rig.a.list(0, 10);
    let good = SendWr::new(1, SendOp::Send, list);
    let outside = SgList::one(rig.a.sge(MEMORY_BYTES - 9, 10));
    let second = |error| Err(BadWr { index: 1, error });
    let bad_memory = [good, SendWr { sg_list: outside, ..good }, good];
    let posted = rig.a.device.post_send(a_qp, &bad_memory);
    assert_eq!(posted, second(VerbError::BadMemory(Verb::PostSend)));
    rig.run();
    assert_eq!(rig.a.completions().len(), 1, "what stood before it was posted");
    let read = SendWr { op: SendOp::Read { remote: rig.b.remote(0) }, ..good };
    let unsupported = VerbError::Unsupported(Verb::PostSend);
    assert_eq!(rig.a.device.post_send(a_qp, &[good, read]), second(unsupported));
    let mut long = SgList::<{ SGE_DEFAULT + 1 }>::default();
    while long.push(rig.a.sge(0, 1)) {}
    let long = SendWr::new(1, SendOp::Send, long);
    let refused = rig.a.device.post_send(a_qp, &[long]).unwrap_err();
    assert_eq!(refused.error, VerbError::BadArgument(Verb::PostSend), "more than it was made for");
    let too_long = rig.a.device.caps().send_sge_max + 1;
    let refused = rig.a.device.create_qp(
        &QpInit::new(QpType::Uc, rig.a.cq).access(Access::REMOTE_ALL).max_send_sge(too_long),
    );
    assert_eq!(refused, Err(VerbError::BadArgument(Verb::CreateQp)));

    let fresh =
        rig.a.create(&QpInit::new(QpType::Uc, rig.a.cq).access(Access::REMOTE_ALL).depth(1, 2));
    let early = rig.a.device.post_send(fresh, &[good]).unwrap_err();
    assert_eq!(early.error, VerbError::WrongState(Verb::PostSend));
    let recv = RecvWr { wr_id: 1, sg_list: list };
    let full = BadWr { index: 2, error: VerbError::QueueFull(Verb::PostRecv) };
    assert_eq!(rig.a.device.post_recv(fresh, &[recv; 3]), Err(full));
    let beyond = RecvWr { wr_id: 1, sg_list: outside };
    let bad = BadWr { index: 0, error: VerbError::BadMemory(Verb::PostRecv) };
    assert_eq!(rig.a.device.post_recv(a_qp, &[beyond]), Err(bad));
    let nobody = rig.a.device.post_recv(QpNum(0x55_5555), &[recv]).unwrap_err();
    assert_eq!(nobody.error, VerbError::NoSuchObject(Verb::PostRecv));
    assert_eq!(rig.b.device.modify_qp(b_qp, QpState::Err), Ok(()));
    assert_eq!(rig.b.device.qp_state(b_qp), Ok(QpState::Err));
    if !verbs.rc {
        let rc =
            rig.a.device.create_qp(&QpInit::new(QpType::Rc, rig.a.cq).access(Access::REMOTE_ALL));
        assert_eq!(rc, Err(VerbError::Unsupported(Verb::CreateQp)));
    }
}

pub(crate) fn overrun<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let small = rig.b.device.create_cq(2).unwrap();
    let (of_a, of_b) = (
        QpInit::new(QpType::Uc, rig.a.cq).access(Access::REMOTE_ALL),
        QpInit::new(QpType::Uc, small).access(Access::REMOTE_ALL),
    );
    let (a_qp, b_qp) = rig.pair_of(&of_a, &of_b);
    for wr_id in 0..5 {
        rig.b.recv(b_qp, wr_id, 0, 64);
        rig.a.send(a_qp, wr_id, SendOp::Send, 64);
    }
    rig.run();
    let events: Vec<_> = std::iter::from_fn(|| rig.b.device.poll_async_event()).collect();
    assert_eq!(events, [AsyncEvent::CqError(small), AsyncEvent::QpFatal(b_qp)]);
    assert_eq!(rig.b.device.qp_state(b_qp), Ok(QpState::Err));
    let mut out = [towpath_verbs::Wc::default(); 8];
    let kept = rig.b.device.poll_cq(small, &mut out);
    let exact = !rig.manner.rounds_up;
    assert!(if exact { kept == 2 } else { kept >= 2 }, "{kept} of 5");
    assert!(out[..2].iter().all(|wc| wc.status == WcStatus::Success));
    let ids = out[..kept].iter().map(|wc| wc.wr_id);
    assert!(ids.eq(0..kept as u64), "what it holds can still be polled");
}
