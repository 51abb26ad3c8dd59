//! Packets against captures, and the checks at their edges.

use super::icrc::IdSpace;
use super::opcode::OPCODES;
use super::pcap::{self, Frame, id_difference};
use super::*;
use towpath_base::Prng;
use towpath_base::serial::Psn;

fn base(frame: &Frame) -> IcrcBase {
    let dest_qp = Bth::new_checked(&frame.packet).unwrap().dest_qp();
    IcrcBase::new(frame.source, frame.dest, dest_qp)
}

fn difference(frame: &Frame) -> u32 {
    base(frame).difference(&frame.packet).unwrap()
}

/// Frames that are sound but for what their test asked of rxe.
fn sound_frames(capture: &[u8]) -> Vec<Frame> {
    let mut frames = pcap::frames(capture);
    frames.retain(|frame| Bth::new_checked(&frame.packet).unwrap().tver() == 0);
    frames
}

#[test]
fn every_captured_frame_encodes_again_to_the_same_bytes() {
    for capture in [pcap::UC_SMALL, pcap::FLOW, pcap::RC_FADD, pcap::RAW_V4, pcap::RAW_V6] {
        for (i, frame) in sound_frames(capture).iter().enumerate() {
            let repr = PacketRepr::parse(&frame.packet).unwrap();
            let wrong_on_purpose = i == 1 && repr.bth.psn == Psn::new(0x556);
            let again = frame.emit(&repr);
            let icrc_at = again.len() - ICRC_BYTES;
            assert_eq!(again[..icrc_at], frame.packet[..icrc_at], "frame {i}");
            assert_eq!(again == frame.packet, !wrong_on_purpose, "the ICRC of frame {i}");
        }
    }
}

#[test]
fn a_write_with_immediate_of_three_packets_decodes_to_what_rxe_was_told() {
    let frames = pcap::frames(pcap::UC_SMALL);
    let packets: Vec<_> = frames.iter().map(|f| Packet::parse(&f.packet).unwrap()).collect();
    let bth = &packets[0].bth;
    assert_eq!((bth.opcode(), bth.dest_qp(), bth.psn()), (0x26, 0x18, Psn::new(0x12_3456)));
    assert_eq!((bth.pkey(), bth.tver(), bth.pad_count()), (PKEY_DEFAULT, 0, 0));
    assert!(!bth.solicited() && !bth.mig_req() && !bth.ack_req() && !bth.fecn() && !bth.becn());
    let reth = Reth { va: 0x55b0_3435_4480, rkey: 0x3fd, dma_len: 0x9c4 };
    assert_eq!(packets[0].reth(), Some(reth));
    assert_eq!((packets[1].reth(), packets[1].imm()), (None, None));
    assert_eq!(packets[2].imm(), Some(ImmDt { imm_data: 0xdead_beef }));
    let lengths: Vec<_> = packets.iter().map(|p| p.payload.len()).collect();
    assert_eq!(lengths[..8], [1024, 1024, 452, 100, 33, 13, 0, 64]);
    assert_eq!(packets[..3].iter().map(|p| p.payload.len()).sum::<usize>(), 0x9c4);
    assert_eq!(packets[4].bth.pad_count(), 3);
}

#[test]
fn rc_atomics_decode_at_the_wire_level() {
    let frames = pcap::frames(pcap::RC_FADD);
    for (i, pair) in frames.chunks(2).enumerate() {
        let request = Packet::parse(&pair[0].packet).unwrap();
        let atomic = request.atomic().unwrap();
        assert_eq!(request.opcode.operation, Operation::FetchAdd);
        assert!(request.bth.ack_req() && request.payload.is_empty());
        let response = Packet::parse(&pair[1].packet).unwrap();
        assert_eq!(response.opcode.operation, Operation::AtomicAcknowledge);
        assert_eq!(response.bth.psn(), request.bth.psn());
        assert_eq!(response.aeth().unwrap().msn, i as u32 + 1);
        let original = response.atomic_ack().unwrap().original;
        assert_ne!((atomic.swap_add, atomic.rkey), (0, 0), "frame {i}, was {original}");
        assert!(response.reth().is_none() && response.imm().is_none());
    }
}

#[test]
fn an_ip_id_explains_the_icrc_of_every_rxe_frame_and_of_no_corrupted_one() {
    let space = IdSpace::new(4096 + 64);
    let mut rng = Prng::new(11);
    let mut explained_by_chance = 0;
    for frame in pcap::frames(pcap::UC_SMALL).iter().chain(&pcap::frames(pcap::FLOW)) {
        assert_ne!((difference(frame), frame.ip_id), (0, 0), "rxe numbers its packets");
        assert!(space.explains(frame.packet.len(), difference(frame)));
        for _ in 0..1000 {
            let mut bytes = frame.packet.clone();
            let bit = rng.below(bytes.len() as u64 * 8) as usize;
            // The masked byte may change on the way; the queue pair is given, not read.
            if !(4..8).contains(&(bit / 8)) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let off = base(frame).difference(&bytes).unwrap();
                explained_by_chance += u32::from(space.explains(bytes.len(), off));
            }
        }
    }
    assert!(explained_by_chance < 10, "{explained_by_chance} of 14,000, expected 0.2");
}

#[test]
fn the_id_space_of_any_length_holds_exactly_the_effects_of_ids() {
    let space = IdSpace::new(4096 + 64);
    let mut rng = Prng::new(12);
    for words in [4, 5, 100, 1034] {
        let packet = vec![0; words * 4];
        for _ in 0..50 {
            let id = rng.next_u32() as u16;
            assert!(space.explains(packet.len(), id_difference(id, &packet)), "ID {id:#x}");
        }
        let outside = (0..2000).filter(|_| space.explains(packet.len(), rng.next_u32())).count();
        assert!(outside < 5, "{outside} of 2,000 random differences");
    }
    assert!(!space.explains(4096 + 80, 0), "longer than it was made for");
    assert!(!space.explains(18, 0), "not whole words");
}

#[test]
fn the_fast_icrc_equals_the_icrc_of_all_bytes_for_any_header() {
    let mut rng = Prng::new(13);
    let addrs = ["10.0.0.1:4791", "10.9.8.7:61000", "[fd00::1]:4791", "[fe80::2]:50000"];
    for round in 0..400 {
        let pair = round % 2 * 2;
        let source: std::net::SocketAddr = addrs[pair].parse().unwrap();
        let dest: std::net::SocketAddr = addrs[pair + 1].parse().unwrap();
        let mut packet = vec![0; 16 + 4 * rng.below(1040) as usize];
        rng.fill(&mut packet);
        let mut all = vec![0xff; 8];
        let udp_len = (packet.len() as u16 + 8).to_be_bytes();
        let ip_len = (packet.len() as u16 + 28).to_be_bytes();
        match (source.ip(), dest.ip()) {
            (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) => {
                let [hi, lo] = ip_len;
                all.extend([0x45, 0xff, hi, lo, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
                all.extend(a.octets());
                all.extend(b.octets());
            }
            (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) => {
                let [hi, lo] = udp_len;
                all.extend([0x6f, 0xff, 0xff, 0xff, hi, lo, 17, 0xff]);
                all.extend(a.octets());
                all.extend(b.octets());
            }
            _ => unreachable!("the pairs are of one family"),
        }
        all.extend(source.port().to_be_bytes());
        all.extend(dest.port().to_be_bytes());
        all.extend(udp_len);
        all.extend([0xff, 0xff]);
        let bth_at = all.len();
        all.extend(&packet[..packet.len() - ICRC_BYTES]);
        all[bth_at + 4] = 0xff;
        let mut crc = towpath_base::crc::Crc32::new();
        crc.update(&all);
        let at = packet.len() - ICRC_BYTES;
        packet[at..].copy_from_slice(&crc.value().to_le_bytes());
        let dest_qp = Bth::new_checked(&packet).unwrap().dest_qp();
        assert_eq!(IcrcBase::new(source, dest, dest_qp).difference(&packet), Some(0));
    }
}

#[test]
fn errors_name_the_field_that_a_packet_ends_in() {
    let whole = &pcap::frames(pcap::UC_SMALL)[0].packet;
    let field = |len: usize| match Packet::parse(&whole[..len]) {
        Err(WireError::TooShort { field, .. }) => Some(field),
        _ => None,
    };
    assert_eq!(field(11), Some(Field::Bth));
    assert_eq!(field(12), Some(Field::ExtHeaders));
    assert_eq!(field(27), Some(Field::ExtHeaders));
    assert_eq!(field(28), Some(Field::Icrc));
    assert_eq!(field(31), Some(Field::Icrc));
    assert_eq!(field(32), None, "a WRITE's first packet of no payload is well formed");
    let words = Packet::parse(&whole[..33]).unwrap_err();
    assert_eq!(words, WireError::NotWords { have: 33 });
    let mut bad = whole[..32].to_vec();
    bad[1] = 0x30;
    let short = WireError::TooShort { field: Field::Pad, need: 35, have: 32 };
    assert_eq!(Packet::parse(&bad).unwrap_err(), short);
    bad[1] = 1;
    assert_eq!(Packet::parse(&bad).unwrap_err(), WireError::BadVersion(1));
    (bad[0], bad[1]) = (0x15, 0);
    assert_eq!(Packet::parse(&bad).unwrap_err(), WireError::BadOpcode(0x15));
}

#[test]
fn every_opcode_is_found_by_its_number_and_requests_carry_the_right_one() {
    for opcode in &OPCODES {
        assert_eq!(Opcode::of(opcode.number), Some(opcode));
    }
    assert_eq!((0..=255).filter(|&n| Opcode::of(n).is_some()).count(), OPCODES.len());
    for opcode in &OPCODES {
        let write = match opcode.operation {
            Operation::Send if !opcode.has_ieth() => false,
            Operation::Write => true,
            _ => continue,
        };
        let (service, position) = (opcode.service, opcode.position);
        let number = Opcode::request(service, write, position, opcode.has_imm());
        assert_eq!(number, opcode.number);
    }
}

#[test]
fn rc_requests_and_answers_carry_the_right_opcode() {
    use super::opcode::number;
    let alone = [
        (number::RC_READ_REQUEST, Operation::ReadRequest, false),
        (number::RC_ACKNOWLEDGE, Operation::Acknowledge, true),
        (number::RC_ATOMIC_ACKNOWLEDGE, Operation::AtomicAcknowledge, true),
        (number::RC_CMP_SWAP, Operation::CmpSwap, false),
        (number::RC_FETCH_ADD, Operation::FetchAdd, false),
    ];
    for (number, operation, is_answer) in alone {
        let opcode = Opcode::of(number).unwrap();
        let found = (opcode.service, opcode.operation, opcode.position, opcode.is_answer());
        assert_eq!(found, (Service::Rc, operation, Position::Only, is_answer));
    }
    for position in [Position::First, Position::Middle, Position::Last, Position::Only] {
        let opcode = Opcode::of(Opcode::read_response(position)).unwrap();
        assert_eq!((opcode.operation, opcode.position), (Operation::ReadResponse, position));
        assert_eq!((opcode.is_answer(), opcode.has_aeth()), (true, position != Position::Middle));
    }
}

#[test]
fn random_bytes_parse_or_fail_and_what_parses_encodes_again() {
    let mut rng = Prng::new(14);
    let addr: std::net::SocketAddr = "10.0.0.1:4791".parse().unwrap();
    let mut parsed = 0;
    for _ in 0..20_000 {
        let mut bytes = vec![0; rng.below(96) as usize];
        rng.fill(&mut bytes);
        if let Some(flags) = bytes.get_mut(1) {
            *flags &= 0xf0;
        }
        if let Ok(repr) = PacketRepr::parse(&bytes) {
            parsed += 1;
            assert_eq!(PacketRepr::parse(&repr.emit(addr, addr)).map(|r| r.ext), Ok(repr.ext));
        }
    }
    assert!(parsed > 100, "{parsed} of 20,000");
}
