//! UC when nothing goes wrong, and what is lost when nobody expects it.

use crate::rig::{MEMORY_BYTES, Rig};
use towpath_base::Prng;
use towpath_memory::Region;
use towpath_memory::SharedMemory;
use towpath_verbs::{
    Access, Device, PdNum, QpInit, QpType, RecvWr, RemoteAddr, SEND_SGE_MAX, SGE_DEFAULT, SendOp,
    SendWr, SgList, Wc, WcOpcode, WcStatus,
};

pub(crate) fn messages_land_whole<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    let lens = [0, 1, 63, 64, 1023, 1024, 1025, 9000, 57_408, 200_000];
    for (&len, wr_id) in lens.iter().zip(0..) {
        let sent = rig.a.fill(0, len, wr_id);
        let sg_list = rig.b.in_pieces(100, len);
        rig.b.device.post_recv(b_qp, &[RecvWr { wr_id, sg_list }]).unwrap();
        let imm_data = Some(wr_id as u32).filter(|_| wr_id % 2 == 0);
        let op = imm_data.map_or(SendOp::Send, |imm_data| SendOp::SendWithImm { imm_data });
        let wr = SendWr::new(wr_id, op, rig.a.in_pieces(0, len));
        rig.a.device.post_send(a_qp, &[wr]).unwrap();
        rig.run();
        let left = Wc { wr_id, opcode: WcOpcode::Send, qp_num: a_qp, ..Wc::default() };
        assert_eq!(rig.a.completions(), [left]);
        let opcode = WcOpcode::Recv;
        let landed =
            Wc { wr_id, opcode, byte_len: len as u32, imm_data, qp_num: b_qp, ..Wc::default() };
        assert_eq!(rig.b.completions(), [landed], "{len} bytes");
        assert!(rig.b.bytes(100, len) == sent, "{len} bytes");
    }
    for wr_id in 0..50 {
        rig.b.recv(b_qp, wr_id, 0, 10);
    }
    let wrs: Vec<SendWr> =
        (0..50).map(|wr_id| SendWr::new(wr_id, SendOp::Send, rig.a.list(0, 10))).collect();
    rig.a.device.post_send(a_qp, &wrs).unwrap();
    rig.run();
    for end in [&mut rig.a, &mut rig.b] {
        let ids: Vec<u64> = end.completions().iter().map(|wc| wc.wr_id).collect();
        assert_eq!(ids, (0..50).collect::<Vec<u64>>());
    }
}

pub(crate) fn gathered<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let caps = rig.a.device.caps();
    let (sge_max, has_rc) = (caps.send_sge_max, caps.verbs.rc && rig.b.device.caps().verbs.rc);
    assert!((SGE_DEFAULT..=SEND_SGE_MAX).contains(&(sge_max as usize)), "{sge_max}");
    let seed = 1;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let whole = rig.a.fill(0, MEMORY_BYTES, seed);
    for qp_type in [QpType::Uc, QpType::Rc] {
        if qp_type == QpType::Rc && !has_rc {
            continue;
        }
        let of_a = QpInit::new(qp_type, rig.a.cq).access(Access::REMOTE_ALL).max_send_sge(sge_max);
        let (a_qp, b_qp) =
            rig.pair_of(&of_a, &QpInit::new(qp_type, rig.b.cq).access(Access::REMOTE_ALL));
        for wr_id in 0..60 {
            // At first all of the longest list in one packet.
            let is_first = wr_id == 0;
            let count = if is_first { sge_max.into() } else { 1 + prng.below(sge_max.into()) };
            let kind = if is_first { 0 } else { prng.below(3) };
            let (mut list, mut bytes) = (SgList::<SEND_SGE_MAX>::default(), Vec::new());
            for _ in 0..count {
                let len = match kind {
                    0 => 8,
                    1 => prng.below(16),
                    _ => prng.below(2) * prng.between(513, 5_000) + prng.below(9),
                } as usize;
                let at = prng.below((MEMORY_BYTES - len) as u64) as usize;
                assert!(list.push(rig.a.sge(at, len)));
                bytes.extend_from_slice(&whole[at..at + len]);
            }
            rig.b.recv(b_qp, wr_id, 0, bytes.len());
            rig.a.device.post_send(a_qp, &[SendWr::new(wr_id, SendOp::Send, list)]).unwrap();
            rig.run();
            assert_eq!(rig.a.completions()[0].status, WcStatus::Success, "{qp_type:?} {wr_id}");
            let landed: Vec<_> = rig.b.completions().iter().map(|wc| wc.byte_len).collect();
            assert_eq!(landed, [bytes.len() as u32], "{qp_type:?} {wr_id}");
            assert!(rig.b.bytes(0, bytes.len()) == bytes, "{qp_type:?} {wr_id}");
        }
    }
}

pub(crate) fn no_receive<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    rig.a.send(a_qp, 1, SendOp::Send, 3000);
    rig.run();
    rig.b.recv(b_qp, 9, 0, 10);
    rig.a.send(a_qp, 2, SendOp::Send, 10);
    rig.run();
    let sent = rig.a.completions();
    assert!(
        sent.iter()
            .map(|wc| (wc.wr_id, wc.status))
            .eq([(1, WcStatus::Success), (2, WcStatus::Success)])
    );
    let received = rig.b.completions();
    assert!(received.iter().map(|wc| (wc.wr_id, wc.byte_len)).eq([(9, 10)]));
}

pub(crate) fn write<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.uc();
    let sent = rig.a.fill(0, 5000, 1);
    let remote = rig.b.remote(40_000);
    rig.a.send(a_qp, 1, SendOp::Write { remote }, 5000);
    rig.run();
    assert_eq!(rig.a.completions()[0].opcode, WcOpcode::RdmaWrite);
    assert!(rig.b.bytes(40_000, 5000) == sent);
    assert_eq!(rig.b.completions(), []);

    let told = SendOp::WriteWithImm { remote: rig.b.remote(80_000), imm_data: 77 };
    rig.a.send(a_qp, 2, told, 4);
    rig.run();
    assert_eq!(rig.b.completions(), [], "no receive, no word");
    assert_eq!(rig.b.bytes(80_000, 4), [0; 4], "and it does not land");
    rig.b.recv(b_qp, 8, 0, 0);
    rig.a.send(a_qp, 3, told, 5000);
    rig.run();
    let received = rig.b.completions();
    let [wc] = received[..] else { panic!("one completion, not {received:?}") };
    assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (8, WcOpcode::RecvRdmaWithImm, 5000));
    assert_eq!(wc.imm_data, Some(77));
    assert!(rig.b.bytes(80_000, 5000) == sent);
}

pub(crate) fn closed_memory<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, _) = rig.uc();
    rig.a.fill(0, 100, 1);
    let local = SharedMemory::new(4096).unwrap();
    let keys =
        rig.b.device.reg_shared_mr(PdNum::DEFAULT, &local, local.whole(), Access::LOCAL).unwrap();
    let end = rig.b.remote(MEMORY_BYTES - 99);
    let before = RemoteAddr { addr: rig.b.remote(0).addr - 1, ..rig.b.remote(0) };
    let unknown = RemoteAddr { rkey: rig.b.keys.rkey ^ 1, ..rig.b.remote(0) };
    let not_for_peers = RemoteAddr { addr: local.addr(), rkey: keys.rkey };
    for remote in [end, before, unknown, not_for_peers] {
        rig.a.send(a_qp, 1, SendOp::Write { remote }, 100);
        rig.run();
        assert_eq!(rig.a.completions()[0].status, WcStatus::Success, "UC tells nobody");
    }
    assert!(rig.b.bytes(0, MEMORY_BYTES).iter().all(|&byte| byte == 0));
    let mut there = [9; 4096];
    local.read(0, &mut there).unwrap();
    assert_eq!(there, [0; 4096]);
    rig.b.device.dereg_mr(rig.b.keys.lkey).unwrap();
    let remote = rig.b.remote(0);
    rig.a.send(a_qp, 1, SendOp::Write { remote }, 100);
    rig.run();
    assert_eq!(rig.b.bytes(0, 100), [0; 100], "the key is gone");
}

pub(crate) fn unsignaled<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, _) = rig.uc();
    let wr = |wr_id| SendWr::new(wr_id, SendOp::Send, rig.a.list(0, 10));
    let wrs = [wr(1).unsignaled(), wr(2), wr(3).unsignaled()];
    rig.a.device.post_send(a_qp, &wrs).unwrap();
    rig.run();
    assert!(rig.a.completions().iter().map(|wc| wc.wr_id).eq([2]));
}

pub(crate) fn shared_receives<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    assert!(rig.b.device.caps().verbs.srq, "both of ours have them");
    let srq = rig.b.device.create_srq(4).unwrap();
    let of_a = QpInit::new(QpType::Uc, rig.a.cq).access(Access::REMOTE_ALL);
    let of_b = QpInit::new(QpType::Uc, rig.b.cq).access(Access::REMOTE_ALL).srq(srq);
    let (first, first_b) = rig.pair_of(&of_a, &of_b);
    let (second, second_b) = rig.pair_of(&of_a, &of_b);
    let list = rig.b.list(0, 10);
    let wrs: Vec<RecvWr> = (0..4).map(|wr_id| RecvWr { wr_id, sg_list: list }).collect();
    rig.b.device.post_srq_recv(srq, &wrs).unwrap();
    let fifth = rig.b.device.post_srq_recv(srq, &wrs[..1]).unwrap_err();
    assert_eq!(fifth.index, 0, "it is full");
    for qp in [second, first, first, second, first] {
        rig.a.send(qp, 0, SendOp::Send, 10);
        rig.run();
    }
    let received = rig.b.completions();
    assert!(received.iter().map(|wc| wc.qp_num).eq([second_b, first_b, first_b, second_b]));
    // Each was taken once; in which order is up to the device.
    let mut taken: Vec<u64> = received.iter().map(|wc| wc.wr_id).collect();
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 2, 3]);
}
