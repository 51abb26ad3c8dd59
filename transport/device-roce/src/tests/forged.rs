//! Well-formed packets that break one rule each.

use super::*;
use crate::wire::{ExtHeaders, ImmDt, PacketRepr};

/// The packet with changed values and a right ICRC.
pub(super) fn forged(packet: &OnWire, change: impl FnOnce(&mut PacketRepr)) -> OnWire {
    let mut repr = PacketRepr::parse(&packet.bytes).unwrap();
    change(&mut repr);
    OnWire { bytes: repr.emit(packet.source, packet.dest), ..packet.clone() }
}

#[test]
fn lengths_that_do_not_fit_the_position_cost_the_message() {
    // (which of the three packets, its payload's length, whether the message still arrives)
    let cases = [
        (0, 252, false),
        (0, 256, true),
        (0, 260, false),
        (1, 252, false),
        (1, 260, false),
        (2, 0, false),
        (2, 1, true),
        (2, 256, true),
        (2, 257, false),
    ];
    for (at, len, good) in cases {
        let mut pair = Pair::uc(Mtu::Mtu256);
        pair.b.recv(pair.b_qp, 1, 0, 1024);
        let mut packets = pair.packets(SendOp::Send, 700);
        packets[at] = forged(&packets[at], |repr| repr.payload.resize(len, 7));
        pair.deliver(packets);
        assert_eq!(pair.b.received().len(), usize::from(good), "packet {at} of {len} bytes");
        assert_eq!(pair.b.counters().length_error, u64::from(!good));
    }
    for (len, good) in [(0, true), (256, true), (257, false)] {
        let mut pair = Pair::uc(Mtu::Mtu256);
        pair.b.recv(pair.b_qp, 1, 0, 1024);
        let mut packets = pair.packets(SendOp::Send, 10);
        packets[0] = forged(&packets[0], |repr| repr.payload.resize(len, 7));
        pair.deliver(packets);
        assert_eq!(pair.b.received().len(), usize::from(good), "an only packet of {len} bytes");
    }
}

#[test]
fn a_write_must_be_as_long_as_it_says() {
    for (dma_len, good) in [(699, false), (700, true), (701, false), (511, false), (0, false)] {
        let mut pair = Pair::uc(Mtu::Mtu256);
        pair.b.recv(pair.b_qp, 1, 0, 16);
        let remote = pair.b.remote(4096);
        let mut packets = pair.packets(SendOp::WriteWithImm { remote, imm_data: 0 }, 700);
        packets[0] = forged(&packets[0], |repr| {
            repr.ext.reth.as_mut().unwrap().dma_len = dma_len;
        });
        pair.deliver(packets);
        assert_eq!(pair.b.received().len(), usize::from(good), "{dma_len} for 700");
        assert_eq!(pair.b.counters().length_error, u64::from(!good));
    }
}

#[test]
fn a_write_that_would_leave_its_region_later_writes_nothing_at_all() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    let remote = pair.b.remote(MEMORY_BYTES - 699);
    let packets = pair.packets(SendOp::Write { remote }, 700);
    pair.deliver(packets);
    assert_eq!(pair.b.bytes(MEMORY_BYTES - 699, 699), vec![0; 699]);
    assert_eq!(pair.b.counters().bad_rkey, 1);
}

#[test]
fn a_message_does_not_go_on_with_another_operation() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    pair.b.recv(pair.b_qp, 1, 0, 1024);
    let remote = pair.b.remote(4096);
    let mut packets = pair.packets(SendOp::Send, 600);
    let writes = pair.packets(SendOp::Write { remote }, 600);
    let psn = PacketRepr::parse(&packets[1].bytes).unwrap().bth.psn;
    packets[1] = forged(&writes[1], |repr| repr.bth.psn = psn);
    pair.deliver(packets);
    assert_eq!(pair.b.completions(), []);
    assert_eq!(pair.b.bytes(4096, 600), vec![0; 600]);
    assert_eq!((pair.b.counters().psn_mismatch, pair.b.counters().messages_lost), (2, 1));
}

#[test]
fn congestion_and_migration_bits_and_a_limited_partition_key_pass() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    pair.b.recv(pair.b_qp, 1, 0, 1024);
    let packets = pair.packets(SendOp::Send, 10);
    let odd = forged(&packets[0], |repr| {
        (repr.bth.fecn, repr.bth.becn, repr.bth.mig_req) = (true, true, true);
        (repr.bth.pkey, repr.bth.ack_req) = (0x7fff, true);
    });
    pair.deliver([odd]);
    assert_eq!(pair.b.received(), [(1, 10)]);
    let other = forged(&packets[0], |repr| repr.bth.pkey = 0x1234);
    pair.deliver([other]);
    assert_eq!(pair.b.counters().bad_pkey, 1);
}

#[test]
fn opcodes_of_other_services_are_dropped() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    pair.b.recv(pair.b_qp, 1, 0, 1024);
    let packets = pair.packets(SendOp::SendWithImm { imm_data: 1 }, 10);
    // RC SEND only, UD SEND only, RC acknowledge.
    for (opcode, deth, aeth) in [(0x04, false, false), (0x64, true, false), (0x11, false, true)] {
        let ext = ExtHeaders {
            deth: deth.then(Default::default),
            aeth: aeth.then(Default::default),
            ..ExtHeaders::default()
        };
        let odd = forged(&packets[0], |repr| (repr.bth.opcode, repr.ext) = (opcode, ext));
        pair.deliver([odd]);
    }
    assert_eq!(pair.b.counters().bad_opcode, 3);
    pair.deliver(packets);
    assert_eq!(pair.b.received(), [(1, 10)]);
}

#[test]
fn the_solicited_bit_is_on_the_last_packet_only_and_pad_is_zero() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    pair.a.memory.write(0, &[0xee; 700]).unwrap();
    let mut wr = SendWr::new(1, SendOp::SendWithImm { imm_data: 0xaabb_ccdd }, pair.a.list(0, 597));
    wr.flags.solicited = true;
    let list = pair.a.list(0, 509);
    // The long message first, so that scratch memory is dirty where the pads will be.
    for _ in 0..2 {
        pair.a.device.post_send(pair.a_qp, &[wr, SendWr { sg_list: list, ..wr }]).unwrap();
        pair.a.device.progress(0);
        (wr.sg_list, wr.flags.solicited) = (pair.a.list(0, 513), true);
    }
    let sent = &pair.a.device.link().sent;
    for packet in sent {
        let view = crate::wire::Packet::parse(&packet.bytes).unwrap();
        assert_eq!(view.bth.solicited(), view.opcode.position.ends());
        let imm = view.opcode.position.ends().then_some(ImmDt { imm_data: 0xaabb_ccdd });
        assert_eq!(view.imm(), imm);
        let pad = &packet.bytes[packet.bytes.len() - 4 - usize::from(view.bth.pad_count())..];
        assert!(pad[..pad.len() - 4].iter().all(|&b| b == 0), "pad {pad:02x?}");
        let repr = PacketRepr::parse(&packet.bytes).unwrap();
        assert_eq!(repr.emit(packet.source, packet.dest), packet.bytes);
    }
    assert_eq!(sent.len(), 3 + 2 + 3 + 2);
}
