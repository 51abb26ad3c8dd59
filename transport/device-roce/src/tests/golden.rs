//! The engine's packets against captured ones of the same messages.

use super::*;
use crate::wire::pcap::{self, Frame};
use crate::wire::{Operation, Packet, PacketRepr};

/// What this device sends for the message of `frames`, told the same numbers.
fn sent_again(frames: &[Frame], mtu: Mtu) -> Vec<OnWire> {
    let packets: Vec<_> = frames.iter().map(|f| Packet::parse(&f.packet).unwrap()).collect();
    let (first, last) = (&packets[0], packets.last().unwrap());
    let mut link = TestLink::new(&frames[0].source.to_string());
    link.source_ports = 1;
    let mut end = End::on(link, RoceConfig::default());
    let qp =
        end.device.create_qp(&QpInit::new(QpType::Uc, end.cq).access(Access::REMOTE_ALL)).unwrap();
    let connect = Connect {
        sq_psn: first.bth.psn(),
        path_mtu: mtu,
        ..connect_to(frames[0].dest, QpNum(first.bth.dest_qp()))
    };
    end.device.connect_qp(qp, &connect).unwrap();
    let payload: Vec<u8> = packets.iter().flat_map(|p| p.payload).copied().collect();
    end.memory.write(0, &payload).unwrap();
    let imm_data = last.imm().map(|imm| imm.imm_data);
    let remote =
        first.reth().map_or(RemoteAddr::default(), |r| RemoteAddr { addr: r.va, rkey: r.rkey });
    let op = match (first.opcode.operation == Operation::Write, imm_data) {
        (true, Some(imm_data)) => SendOp::WriteWithImm { remote, imm_data },
        (true, None) => SendOp::Write { remote },
        (false, Some(imm_data)) => SendOp::SendWithImm { imm_data },
        (false, None) => SendOp::Send,
    };
    let mut wr = SendWr::new(1, op, end.list(0, payload.len()));
    wr.flags.solicited = last.bth.solicited();
    end.device.post_send(qp, &[wr]).unwrap();
    end.device.progress(0);
    std::mem::take(&mut end.device.link_mut().sent)
}

#[test]
fn the_same_message_makes_the_same_packets_as_rxe_but_for_the_ip_id() {
    let mut messages = 0;
    for capture in [pcap::UC_SMALL, pcap::FLOW, pcap::RAW_V4, pcap::RAW_V6] {
        let mut frames = pcap::frames(capture);
        // The last four frames of the mixed captures are rxe's; the others were written by hand.
        let by_hand = frames.iter().filter(|f| f.source.port() == 0xc123).count();
        frames.drain(..by_hand);
        let mut rest = &frames[..];
        while !rest.is_empty() {
            let ends = |f: &Frame| Packet::parse(&f.packet).unwrap().opcode.position.ends();
            let len = rest.iter().position(ends).unwrap() + 1;
            let (message, after) = rest.split_at(len);
            let ours = sent_again(message, Mtu::Mtu1024);
            assert_eq!(ours.len(), message.len());
            for (our, frame) in ours.iter().zip(message) {
                let icrc_at = frame.packet.len() - 4;
                assert_eq!(our.bytes[..icrc_at], frame.packet[..icrc_at]);
                // With the captured header's ID the ICRC is theirs; the wire tests show that.
                let zero_id = PacketRepr::parse(&frame.packet).unwrap();
                assert_eq!(our.bytes, zero_id.emit(frame.source, frame.dest));
                if frame.ip_id == 0 {
                    assert_eq!(our.bytes, frame.packet);
                }
            }
            (rest, messages) = (after, messages + 1);
        }
    }
    assert_eq!(messages, 8 + 4 + 2 + 2);
}

#[test]
fn rxe_packets_are_accepted_from_foreign_peers_only() {
    for foreign in [true, false] {
        let frames = pcap::frames(pcap::UC_SMALL);
        let mut link = TestLink::new(&frames[0].dest.to_string());
        link.foreign_peers = foreign;
        let mut end = End::on(link, RoceConfig::default());
        for frame in frames {
            let (source, dest, bytes) = (frame.source, frame.dest, frame.packet);
            end.device.link_mut().coming.push_back(OnWire { source, dest, tclass: 0, bytes });
        }
        end.device.progress(64);
        let c = end.counters();
        let expected = if foreign { (10, 10, 0) } else { (0, 0, 10) };
        assert_eq!((c.icrc_by_ip_id, c.unknown_qp, c.bad_icrc), expected);
    }
}
