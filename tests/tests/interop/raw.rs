//! Plain verbs, each byte checked.

use crate::rig::{EitherNic, Rig};
use towpath_verbs::{
    Access, Device, QpInit, QpNum, QpType, SendOp, SendWr, UdAddress, Wc, WcOpcode, WcStatus,
};

/// Around the packet sizes, and one of many packets.
pub(crate) const LENGTHS: [usize; 9] = [1, 2, 63, 1023, 1024, 1025, 4096, 4097, 57_408];
/// Up to the longest message that rxe takes in one work request.
pub(crate) const LONG_LENGTHS: [usize; 2] = [1 << 20, 8 << 20];
/// Where a lost packet costs RC a window of them.
pub(crate) const LONG_UNDER_LOSS: [usize; 2] = [400_001, 1 << 20];

/// Room for the longest message, and for what follows it.
pub(crate) const WINDOW_BYTES: usize = (8 << 20) + 4096;

/// Looks without any progress after which a test gives up: a minute or more.
const IDLE_LOOKS_MAX: u32 = 12_000;

/// Messages that may get lost, and the most bytes of one.
const SENDS: u64 = 120;
const SLOT_BYTES: usize = 1 << 16;

/// How many at a time: each time it takes long to know that no more comes. More than these are more
/// than the buffer of a socket or the queue of a cable holds.
const DATAGRAMS_AT_A_TIME: u64 = 20;
const MESSAGES_AT_A_TIME: u64 = 8;

/// What datagrams show to be let in, and the bytes before each.
const QKEY: u32 = 0x1111_2222;
const GRH_BYTES: usize = 40;

type Pair = (QpNum, QpNum);

fn pair(rig: &mut Rig<EitherNic>, qp_type: QpType) -> Pair {
    let (a, b) = (
        QpInit::new(qp_type, rig.a.cq).access(Access::REMOTE_ALL),
        QpInit::new(qp_type, rig.b.cq).access(Access::REMOTE_ALL),
    );
    rig.pair_of(&a, &b)
}

/// Runs both ends until each has so many completions, and returns those.
fn completions(rig: &mut Rig<EitherNic>, wanted: [usize; 2]) -> [Vec<Wc>; 2] {
    let mut found = [const { Vec::new() }; 2];
    let mut idle = 0;
    while found[0].len() < wanted[0] || found[1].len() < wanted[1] {
        let mut busy = rig.a.device.progress(64) + rig.b.device.progress(64) > 0;
        for (end, found) in [&mut rig.a, &mut rig.b].into_iter().zip(&mut found) {
            let new = end.completions();
            busy |= !new.is_empty();
            found.extend(new);
        }
        idle = if busy { 0 } else { idle + 1 };
        assert!(idle < IDLE_LOOKS_MAX, "waiting for {wanted:?}, there are {found:?}");
        if !busy {
            // The kernel's end works in other threads.
            std::thread::sleep(std::time::Duration::from_micros(200));
            (idle > IDLE_LOOKS_MAX / 2).then(|| (rig.advance)());
        }
    }
    found
}

fn assert_good(completions: &[Wc]) {
    assert!(completions.iter().all(|wc| wc.status == WcStatus::Success), "{completions:?}");
}

/// Each verb of a connected queue pair, one message of each length.
pub(crate) fn every_verb(rig: &mut Rig<EitherNic>, qp_type: QpType, lengths: &[usize]) {
    let (a_qp, b_qp) = pair(rig, qp_type);
    let remote = rig.b.remote(0);
    for (&len, imm_data) in lengths.iter().zip(1..) {
        let ops = [
            SendOp::Send,
            SendOp::SendWithImm { imm_data },
            SendOp::Write { remote },
            SendOp::WriteWithImm { remote, imm_data },
        ];
        for (op, seed) in ops.into_iter().zip(u64::from(imm_data) * 4..) {
            one_message(rig, (a_qp, b_qp), op, (len, seed));
        }
        if qp_type == QpType::Rc {
            let there = rig.b.fill(0, len, u64::from(imm_data) << 8);
            rig.a.send(a_qp, 1, SendOp::Read { remote }, len);
            let [read, _] = completions(rig, [1, 0]);
            assert_good(&read);
            assert!(rig.a.bytes(0, len) == there, "{len} bytes read");
        }
    }
}

fn one_message(
    rig: &mut Rig<EitherNic>,
    (a_qp, b_qp): Pair,
    op: SendOp,
    (len, seed): (usize, u64),
) {
    let sent = rig.a.fill(0, len, seed);
    rig.b.fill(0, len, !seed);
    let told = !matches!(op, SendOp::Write { .. });
    rig.b.recv(b_qp, seed, 0, len);
    rig.a.send(a_qp, seed, op, len);
    if !told {
        // A WRITE is not told of: what is sent behind it arrives behind it.
        rig.a.send(a_qp, seed, SendOp::Send, 1);
    }
    let [left, landed] = completions(rig, [if told { 1 } else { 2 }, 1]);
    assert_good(&left);
    assert_good(&landed);
    let imm_data = match op {
        SendOp::SendWithImm { imm_data } | SendOp::WriteWithImm { imm_data, .. } => Some(imm_data),
        _ => None,
    };
    let opcode = match op {
        SendOp::WriteWithImm { .. } => WcOpcode::RecvRdmaWithImm,
        _ => WcOpcode::Recv,
    };
    let wc = landed[0];
    assert_eq!((wc.wr_id, wc.opcode, wc.imm_data), (seed, opcode, imm_data), "{op:?}");
    assert_eq!(wc.byte_len as usize, if told { len } else { 1 }, "{op:?}");
    assert!(rig.b.bytes(0, len) == sent, "{op:?} of {len} bytes");
}

/// Each does what it says, once.
pub(crate) fn atomics(rig: &mut Rig<EitherNic>) {
    let (a_qp, _) = pair(rig, QpType::Rc);
    let remote = rig.b.remote(0);
    rig.b.memory.write(0, &7u64.to_ne_bytes()).expect("within the window");
    for was in 7..107u64 {
        let op = match was % 2 {
            1 => SendOp::FetchAdd { remote, add: 1 },
            _ => SendOp::CmpSwap { remote, compare: was, swap: was + 1 },
        };
        rig.a.send(a_qp, was, op, 8);
        let [done, _] = completions(rig, [1, 0]);
        assert_good(&done);
        assert_eq!(rig.a.bytes(0, 8), was.to_ne_bytes(), "{op:?} fetched something else");
    }
    assert_eq!(rig.b.bytes(0, 8), 107u64.to_ne_bytes());
}

/// SENDs on UC, of which some get lost; returns how many. What arrives is whole and in order, and
/// no lost one keeps the later ones from arriving.
pub(crate) fn lossy_sends(rig: &mut Rig<EitherNic>) -> u64 {
    let qps = pair(rig, QpType::Uc);
    let length = |number: u64| 1 + (number * 7919 % (SLOT_BYTES as u64 - 1)) as usize;
    sends(rig, qps, None, MESSAGES_AT_A_TIME, length)
}

/// Datagrams of UD, from one byte to a full packet; returns how many got lost.
pub(crate) fn datagrams(rig: &mut Rig<EitherNic>) -> u64 {
    let (a_qp, b_qp) = rig.datagrams(QKEY);
    let dest = rig.b.device.local_addr();
    let ud = UdAddress { dest, remote_qpn: b_qp, remote_qkey: QKEY };
    let packet = rig.mtu.bytes() as usize;
    let lengths = [1, 2, 63, 64, 1000, packet - 1, packet];
    let length = |number| lengths[number as usize % lengths.len()];
    sends(rig, (a_qp, b_qp), Some(ud), DATAGRAMS_AT_A_TIME, length)
}

/// `depth` at a time; returns how many got lost.
fn sends(
    rig: &mut Rig<EitherNic>,
    (a_qp, b_qp): Pair,
    to: Option<UdAddress>,
    depth: u64,
    length: impl Fn(u64) -> usize,
) -> u64 {
    let slot = |number: u64| number as usize * SLOT_BYTES;
    let header = if to.is_some() { GRH_BYTES } else { 0 };
    let mut free: Vec<u64> = (0..2 * depth).collect();
    let (mut arrived, mut last) = (0, None);
    for first in (0..SENDS).step_by(depth as usize) {
        free.drain(..).for_each(|wr_id| rig.b.recv(b_qp, wr_id, slot(wr_id), SLOT_BYTES));
        let mut send = |number: u64| {
            let (at, len) = (slot(number - first), length(number));
            let bytes = rig.a.fill(at, len, number);
            let op = SendOp::SendWithImm { imm_data: number as u32 };
            let wr = SendWr::new(number, op, rig.a.list(at, len));
            let wr = to.into_iter().fold(wr, SendWr::to);
            rig.a.device.post_send(a_qp, &[wr]).expect("room for a send");
            bytes
        };
        let sent: Vec<_> = (first..first + depth).map(&mut send).collect();
        rig.run();
        let left = rig.a.completions();
        assert_eq!(left.len() as u64, depth);
        assert_good(&left);
        for wc in rig.b.completions() {
            free.push(wc.wr_id);
            if wc.status != WcStatus::Success {
                continue;
            }
            let number = u64::from(wc.imm_data.expect("it was sent with one"));
            let bytes = &sent[(number - first) as usize];
            assert_eq!(wc.byte_len as usize, header + bytes.len());
            let found = rig.b.bytes(slot(wc.wr_id) + header, bytes.len());
            assert!(found == *bytes, "message {number}");
            assert!(last < Some(number), "message {number} behind {last:?}");
            (arrived, last) = (arrived + 1, Some(number));
        }
    }
    println!("{arrived} of {SENDS} arrived");
    assert!(arrived > SENDS / 4, "a lost message cost many others");
    SENDS - arrived
}
