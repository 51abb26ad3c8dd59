//! RC, where a device has it: one-sided operations, and what a refusal by the peer does.

use crate::rig::Rig;
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, Device, PdNum, QpInit, QpNum, QpState, QpType, RemoteAddr, SendOp, SendWr, Verb,
    VerbError, WcOpcode, WcStatus,
};

/// A connected pair; none on devices without RC, which say so.
fn pair<D: Device<Memory = Region>>(rig: &mut Rig<D>) -> Option<(QpNum, QpNum)> {
    let (a, b) = (
        QpInit::new(QpType::Rc, rig.a.cq).access(Access::REMOTE_ALL),
        QpInit::new(QpType::Rc, rig.b.cq).access(Access::REMOTE_ALL),
    );
    if !rig.a.device.caps().verbs.rc {
        let refused = rig.a.device.create_qp(&a);
        assert_eq!(refused, Err(VerbError::Unsupported(Verb::CreateQp)));
        return None;
    }
    Some(rig.pair_of(&a, &b))
}

/// Memory of b that is open for everything.
fn open_window<D: Device<Memory = Region>>(rig: &mut Rig<D>) -> (SharedMemory, RemoteAddr) {
    let window = SharedMemory::new(16_384).unwrap();
    let keys = rig
        .b
        .device
        .reg_shared_mr(PdNum::DEFAULT, &window, window.whole(), Access::REMOTE_ALL)
        .unwrap();
    let remote = RemoteAddr { addr: window.addr(), rkey: keys.rkey };
    (window, remote)
}

pub(crate) fn there_and_back<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let Some((a_qp, b_qp)) = pair(rig) else { return };
    let (window, remote) = open_window(rig);
    let sent = rig.a.fill(0, 9000, 1);
    let write = SendWr::new(1, SendOp::Write { remote }, rig.a.in_pieces(0, 9000));
    let read = SendWr::new(2, SendOp::Read { remote }, rig.a.in_pieces(100_000, 9000));
    rig.b.recv(b_qp, 7, 200_000, 9000);
    let told = SendWr::new(3, SendOp::SendWithImm { imm_data: 5 }, rig.a.list(0, 9000)).fenced();
    rig.a.device.post_send(a_qp, &[write, read, told]).unwrap();
    rig.run();
    let ended: Vec<_> =
        rig.a.completions().iter().map(|wc| (wc.wr_id, wc.status, wc.opcode)).collect();
    let good = |wr_id, opcode| (wr_id, WcStatus::Success, opcode);
    let each = [WcOpcode::RdmaWrite, WcOpcode::RdmaRead, WcOpcode::Send];
    assert_eq!(ended, [good(1, each[0]), good(2, each[1]), good(3, each[2])]);
    let mut there = vec![0; 9000];
    window.read(0, &mut there).unwrap();
    assert!(there == sent, "what was written");
    assert!(rig.a.bytes(100_000, 9000) == sent, "what was read");
    let received = rig.b.completions();
    assert_eq!((received[0].wr_id, received[0].imm_data), (7, Some(5)));
    assert!(rig.b.bytes(200_000, 9000) == sent, "what was sent");
}

pub(crate) fn atomics<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let Some((a_qp, _)) = pair(rig) else { return };
    let (window, remote) = open_window(rig);
    window.write(0, &40u64.to_ne_bytes()).unwrap();
    let ops = [
        SendOp::FetchAdd { remote, add: 2 },
        SendOp::CmpSwap { remote, compare: 42, swap: 7 },
        SendOp::CmpSwap { remote, compare: 42, swap: 9 },
    ];
    for (op, at) in ops.into_iter().zip([0, 8, 16]) {
        let wr = SendWr::new(at as u64, op, rig.a.list(at, 8));
        rig.a.device.post_send(a_qp, &[wr]).unwrap();
    }
    rig.run();
    assert!(rig.a.completions().iter().all(|wc| wc.status == WcStatus::Success));
    let fetched = [0, 8, 16].map(|at| rig.a.bytes(at, 8));
    assert_eq!(fetched, [40u64, 42, 7].map(|was| was.to_ne_bytes().to_vec()));
    let mut there = [0; 8];
    window.read(0, &mut there).unwrap();
    assert_eq!(u64::from_ne_bytes(there), 7, "the second comparison failed");
}

pub(crate) fn refused<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let Some((a_qp, _)) = pair(rig) else { return };
    let (window, remote) = open_window(rig);
    let beyond = RemoteAddr { addr: remote.addr + window.byte_len() as u64 - 7, ..remote };
    rig.a.send(a_qp, 1, SendOp::Read { remote: beyond }, 8);
    rig.a.send(a_qp, 2, SendOp::Send, 8);
    rig.run();
    let ended: Vec<_> = rig.a.completions().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(ended, [(1, WcStatus::RemAccessErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(rig.a.device.qp_state(a_qp), Ok(QpState::Err));
}
