//! UD.

use crate::rig::Rig;
use towpath_memory::Region;
use towpath_verbs::{BadWr, Device, QpNum, SendOp, SendWr, UdAddress, Verb, VerbError, WcStatus};

const QKEY: u32 = 0x1111_2222;
const GRH_BYTES: usize = 40;

fn send<D: Device<Memory = Region>>(
    rig: &mut Rig<D>,
    from: QpNum,
    ud: UdAddress,
    len: usize,
) -> Result<(), BadWr> {
    let op = SendOp::SendWithImm { imm_data: 3 };
    let wr = SendWr::new(1, op, rig.a.in_pieces(0, len)).to(ud);
    let posted = rig.a.device.post_send(from, &[wr]);
    rig.run();
    posted
}

pub(crate) fn behind_header<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.datagrams(QKEY);
    let dest = rig.b.device.local_addr();
    let ud = UdAddress { dest, remote_qpn: b_qp, remote_qkey: QKEY };
    for len in [0, 1, 100, rig.a.device.caps().mtu_max.bytes() as usize] {
        let sent = rig.a.fill(0, len, len as u64);
        let sg_list = rig.b.in_pieces(0, GRH_BYTES + len);
        let wr = towpath_verbs::RecvWr { wr_id: 5, sg_list };
        rig.b.device.post_recv(b_qp, &[wr]).unwrap();
        send(rig, a_qp, ud, len).unwrap();
        let wc = rig.b.completions()[0];
        assert_eq!((wc.status, wc.byte_len as usize), (WcStatus::Success, GRH_BYTES + len));
        assert_eq!((wc.src_qp, wc.imm_data, wc.qp_num), (a_qp, Some(3), b_qp));
        assert_eq!(wc.src_addr.map(|addr| addr.ip()), Some(rig.a.device.local_addr().ip()));
        assert!(rig.b.bytes(GRH_BYTES, len) == sent, "{len} bytes");
    }
}

pub(crate) fn refused<D: Device<Memory = Region>>(rig: &mut Rig<D>) {
    let (a_qp, b_qp) = rig.datagrams(QKEY);
    let dest = rig.b.device.local_addr();
    let ud = UdAddress { dest, remote_qpn: b_qp, remote_qkey: QKEY };
    rig.b.recv(b_qp, 1, 0, GRH_BYTES);
    send(rig, a_qp, UdAddress { remote_qkey: QKEY + 1, ..ud }, 0).unwrap();
    assert_eq!(rig.b.completions(), [], "another key");
    send(rig, a_qp, ud, 1).unwrap();
    let wc = rig.b.completions()[0];
    assert_eq!(
        (wc.wr_id, wc.status),
        (1, rig.manner.datagram_too_long),
        "no room behind the header"
    );

    let too_long = rig.a.device.caps().mtu_max.bytes() as usize + 1;
    let bad = |error| Err(BadWr { index: 0, error });
    let argument = bad(VerbError::BadArgument(Verb::PostSend));
    assert_eq!(send(rig, a_qp, ud, too_long), argument);
    let nowhere = SendWr::new(1, SendOp::Send, rig.a.list(0, 1));
    assert_eq!(rig.a.device.post_send(a_qp, &[nowhere]), argument);
    let write = SendOp::Write { remote: rig.b.remote(0) };
    let write = SendWr::new(1, write, rig.a.list(0, 1)).to(ud);
    let unsupported = bad(VerbError::Unsupported(Verb::PostSend));
    assert_eq!(rig.a.device.post_send(a_qp, &[write]), unsupported);
}
