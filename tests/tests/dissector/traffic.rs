//! What is sent, and the packets that it is to become, by Wireshark's names.

use crate::record::Recorded;
use crate::rig::Rig;
use towpath_verbs::{
    Access, Device, Mtu, QpInit, QpNum, QpType, RemoteAddr, SendOp, SendWr, UdAddress,
};

/// Acknowledgement without a limit of credits, as the syndrome of an AETH.
const ACK: u32 = 0x1f;
pub(crate) const NAK_SEQUENCE: u32 = 0x60;
const NAK_INVALID_REQUEST: u32 = 0x61;
const NAK_REMOTE_ACCESS: u32 = 0x62;

const QKEY: u32 = 0x1111_2222;
const GRH_BYTES: usize = 40;
/// Another than any length, so that a mistaken field shows.
const IMM_DATA: u32 = 0xcafe_0001;

/// A packet; what it does not have is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) name: String,
    pub(crate) dest_qp: u32,
    pub(crate) pad: Option<u32>,
    pub(crate) imm_data: Option<u32>,
    /// The length in the RETH.
    pub(crate) dma_len: Option<u32>,
    /// That of the AETH.
    pub(crate) syndrome: Option<u32>,
    /// That of the DETH.
    pub(crate) src_qp: Option<u32>,
}

fn one(name: &str, dest: QpNum, len: usize) -> Expected {
    let pad = Some((4 - len as u32 % 4) % 4);
    Expected { name: name.to_owned(), dest_qp: dest.0, pad, ..Expected::default() }
}

fn acknowledgement(dest: QpNum, syndrome: u32) -> Expected {
    Expected { syndrome: Some(syndrome), ..one("RC Acknowledge", dest, 0) }
}

/// The packets of `len` bytes: FIRST, MIDDLE, LAST, or ONLY.
fn pieces(name: &str, dest: QpNum, len: usize, mtu: Mtu) -> Vec<Expected> {
    let mtu = mtu.bytes() as usize;
    let count = len.div_ceil(mtu).max(1);
    let piece = |index| {
        let place = match index {
            0 if count == 1 => "Only",
            0 => "First",
            _ if index + 1 == count => "Last",
            _ => "Middle",
        };
        let bytes = if index + 1 == count { len - index * mtu } else { mtu };
        one(&format!("{name} {place}"), dest, bytes)
    };
    (0..count).map(piece).collect()
}

/// The packets of a SEND or WRITE.
fn message(service: &str, op: &SendOp, dest: QpNum, len: usize, mtu: Mtu) -> Vec<Expected> {
    let (verb, imm_data, has_reth) = match *op {
        SendOp::Send => ("Send", None, false),
        SendOp::SendWithImm { imm_data } => ("Send", Some(imm_data), false),
        SendOp::Write { .. } => ("RDMA Write", None, true),
        SendOp::WriteWithImm { imm_data, .. } => ("RDMA Write", Some(imm_data), true),
        _ => unreachable!("it is asked for no other"),
    };
    let mut packets = pieces(&format!("{service} {verb}"), dest, len, mtu);
    packets[0].dma_len = has_reth.then_some(len as u32);
    if let (Some(last), Some(_)) = (packets.last_mut(), imm_data) {
        last.name.push_str(" Immediate");
        last.imm_data = imm_data;
    }
    packets
}

/// The packets of a READ: the request, then the response, whose middle has no AETH.
fn read(dest: QpNum, back: QpNum, len: usize, mtu: Mtu) -> Vec<Expected> {
    let dma_len = Some(len as u32);
    let mut packets = vec![Expected { dma_len, ..one("RC RDMA Read Request", dest, 0) }];
    packets.extend(pieces("RC RDMA Read Response", back, len, mtu));
    for packet in packets.iter_mut().skip(1).filter(|packet| !packet.name.ends_with("Middle")) {
        packet.syndrome = Some(ACK);
    }
    packets
}

/// Not so many packets that an acknowledgement is asked for in their midst.
fn lengths(mtu: Mtu) -> [usize; 10] {
    let mtu = mtu.bytes() as usize;
    [0, 1, 2, 3, 4, mtu - 1, mtu, mtu + 1, 3 * mtu, 9 * mtu + 1]
}

fn post(rig: &mut Rig<Recorded>, qp: QpNum, op: SendOp, len: usize) {
    rig.a.fill(0, len, len as u64);
    rig.a.send(qp, 1, op, len);
    rig.run();
    assert_eq!(rig.a.completions().len(), 1);
    rig.b.completions();
}

/// Every verb of a connected queue pair, in messages of all lengths.
pub(crate) fn connected(rig: &mut Rig<Recorded>, qp_type: QpType) -> Vec<Expected> {
    let (a, b) = (
        QpInit::new(qp_type, rig.a.cq).access(Access::REMOTE_ALL),
        QpInit::new(qp_type, rig.b.cq).access(Access::REMOTE_ALL),
    );
    let (a_qp, b_qp) = rig.pair_of(&a, &b);
    let reliable = qp_type == QpType::Rc;
    let service = if reliable { "RC" } else { "UC" };
    let (mtu, remote, imm_data) = (rig.mtu, rig.b.remote(0), IMM_DATA);
    let mut packets = Vec::new();
    for len in lengths(mtu) {
        let ops = [
            SendOp::Send,
            SendOp::SendWithImm { imm_data },
            SendOp::Write { remote },
            SendOp::WriteWithImm { remote, imm_data },
        ];
        for op in ops {
            if !matches!(op, SendOp::Write { .. }) {
                rig.b.recv(b_qp, 1, 0, len);
            }
            post(rig, a_qp, op, len);
            packets.extend(message(service, &op, b_qp, len, mtu));
            packets.extend(reliable.then(|| acknowledgement(a_qp, ACK)));
        }
        if reliable {
            post(rig, a_qp, SendOp::Read { remote }, len);
            packets.extend(read(b_qp, a_qp, len, mtu));
        }
    }
    if reliable {
        packets.extend(atomics(rig, (a_qp, b_qp), remote));
    }
    packets
}

fn atomics(
    rig: &mut Rig<Recorded>,
    (a_qp, b_qp): (QpNum, QpNum),
    remote: RemoteAddr,
) -> Vec<Expected> {
    let mut packets = Vec::new();
    for (op, name) in [
        (SendOp::FetchAdd { remote, add: 1 }, "RC Fetch Add"),
        (SendOp::CmpSwap { remote, compare: 1, swap: 2 }, "RC Compare Swap"),
    ] {
        post(rig, a_qp, op, 8);
        packets.push(one(name, b_qp, 0));
        packets.push(Expected { syndrome: Some(ACK), ..one("RC Atomic Acknowledge", a_qp, 0) });
    }
    packets
}

/// RC requests that are answered with a NAK, each on a queue pair of its own.
pub(crate) fn refusals(rig: &mut Rig<Recorded>) -> Vec<Expected> {
    let (len, mtu) = (100, rig.mtu);
    let remote = RemoteAddr { rkey: rig.b.keys.rkey ^ 1, ..rig.b.remote(0) };
    let write = SendOp::Write { remote };
    let mut packets = Vec::new();
    for (op, room, syndrome) in
        [(SendOp::Send, len - 1, NAK_INVALID_REQUEST), (write, len, NAK_REMOTE_ACCESS)]
    {
        let (a, b) = (
            QpInit::new(QpType::Rc, rig.a.cq).access(Access::REMOTE_ALL),
            QpInit::new(QpType::Rc, rig.b.cq).access(Access::REMOTE_ALL),
        );
        let (a_qp, b_qp) = rig.pair_of(&a, &b);
        rig.b.recv(b_qp, 1, 0, room);
        post(rig, a_qp, op, len);
        packets.extend(message("RC", &op, b_qp, len, mtu));
        packets.push(acknowledgement(a_qp, syndrome));
    }
    packets
}

/// UD, with and without immediate data.
pub(crate) fn datagrams(rig: &mut Rig<Recorded>) -> Vec<Expected> {
    let (a_qp, b_qp) = rig.datagrams(QKEY);
    let ud = UdAddress { dest: rig.b.device.local_addr(), remote_qpn: b_qp, remote_qkey: QKEY };
    let mut packets = Vec::new();
    for len in [1, 2, 3, 4, 1000] {
        let ops = [
            (SendOp::Send, "UD Send Only", None),
            (SendOp::SendWithImm { imm_data: IMM_DATA }, "UD Send Only Immediate", Some(IMM_DATA)),
        ];
        for (op, name, imm_data) in ops {
            rig.b.recv(b_qp, 1, 0, GRH_BYTES + len);
            let wr = SendWr::new(1, op, rig.a.list(0, len)).to(ud);
            rig.a.device.post_send(a_qp, &[wr]).expect("room for a send");
            rig.run();
            rig.a.completions();
            assert_eq!(rig.b.completions().len(), 1);
            packets.push(Expected { imm_data, src_qp: Some(a_qp.0), ..one(name, b_qp, len) });
        }
    }
    packets
}
