//! RC packets against captures of rxe: every frame, every opcode, and what the captures prove.

use crate::wire::opcode::OPCODES;
use crate::wire::pcap::{self, Frame};
use crate::wire::{NakCode, Opcode, Operation, Packet, PacketRepr, Position, Service, Syndrome};
use std::collections::BTreeSet;

/// What another decoder read in the captures, with the work requests and completions beside it.
pub(super) const TRANSCRIPTS: &str = include_str!("../../../../tests/vectors/rc/transcripts.txt");

fn name(opcode: &Opcode) -> String {
    let operation = match opcode.operation {
        Operation::Send => "SEND",
        Operation::Write => "WRITE",
        Operation::ReadRequest => return "READ_REQUEST".into(),
        Operation::ReadResponse => "READ_RESPONSE",
        Operation::Acknowledge => return "ACKNOWLEDGE".into(),
        Operation::AtomicAcknowledge => return "ATOMIC_ACKNOWLEDGE".into(),
        Operation::CmpSwap => return "CMP_SWAP".into(),
        Operation::FetchAdd => return "FETCH_ADD".into(),
    };
    let position = match opcode.position {
        Position::First => "FIRST",
        Position::Middle => "MIDDLE",
        Position::Last => "LAST",
        Position::Only => "ONLY",
    };
    let with = match (opcode.has_imm(), opcode.has_ieth()) {
        (true, _) => "_WITH_IMM",
        (_, true) => "_WITH_INV",
        _ => "",
    };
    format!("{operation}_{position}{with}")
}

/// Whether the frame is the requester's: host 1's.
fn is_request(frame: &Frame) -> bool {
    frame.source.ip().to_string().ends_with('1')
}

/// The frame as a line of the transcripts.
fn line(frame: &Frame) -> String {
    let time_ms = frame.time_us as f64 / 1000.0;
    let arrow = if is_request(frame) { '>' } else { '<' };
    format!("{time_ms:7.1} {arrow} {}", words(&PacketRepr::parse(&frame.packet).unwrap()))
}

/// The packet in the words of the transcripts.
pub(super) fn words(packet: &PacketRepr) -> String {
    let PacketRepr { bth, ext, payload } = packet;
    let opcode = name(Opcode::of(bth.opcode).unwrap());
    let mut line = format!("{opcode} psn {:06x}", bth.psn.value());
    for (set, word) in [(bth.ack_req, " ack_req"), (bth.solicited, " solicited")] {
        line += if set { word } else { "" };
    }
    if let Some(reth) = ext.reth {
        line += &format!(" va {:#x} rkey {:#x} dma_len {}", reth.va, reth.rkey, reth.dma_len);
    }
    if let Some(aeth) = ext.aeth {
        line += &format!(" syndrome {:#04x} msn {}", aeth.syndrome, aeth.msn);
    }
    if let Some(atomic) = ext.atomic {
        let (swap_add, compare) = (atomic.swap_add, atomic.compare);
        line += &format!(" va {:#x} rkey {:#x}", atomic.va, atomic.rkey);
        line += &format!(" swap_add {swap_add} compare {compare}");
    }
    if let Some(ack) = ext.atomic_ack {
        line += &format!(" original {}", ack.original);
    }
    if let Some(imm) = ext.imm {
        line += &format!(" imm {:#010x}", imm.imm_data);
    }
    if let Some(ieth) = ext.ieth {
        line += &format!(" inv {:#010x}", ieth.rkey);
    }
    if !payload.is_empty() {
        line += &format!(" payload {}", payload.len());
    }
    line
}

fn all_frames() -> impl Iterator<Item = (&'static str, Frame)> {
    pcap::RC.iter().flat_map(|&(name, capture)| {
        pcap::frames(capture).into_iter().map(move |frame| (name, frame))
    })
}

#[test]
fn every_frame_encodes_again_to_the_same_bytes_and_its_icrc_is_right() {
    let mut count = 0;
    for (name, frame) in all_frames() {
        let repr = PacketRepr::parse(&frame.packet).unwrap();
        assert_eq!(frame.emit(&repr), frame.packet, "{name}: {}", line(&frame));
        count += 1;
    }
    assert!(count > 500, "{count} frames");
}

#[test]
fn every_frame_reads_as_another_decoder_reads_it() {
    for section in TRANSCRIPTS.split("== ").skip(1) {
        let (name, rest) = section.split_once('\n').unwrap();
        let frames = rest.lines().filter(|line| !line.contains(" | "));
        let expected: Vec<_> = frames.map(str::to_owned).collect();
        let ours: Vec<_> = pcap::rc_frames(name).iter().map(line).collect();
        assert_eq!(ours, expected, "{name}");
    }
    assert_eq!(TRANSCRIPTS.matches("== ").count(), pcap::RC.len());
}

#[test]
fn the_captures_hold_every_rc_opcode_syndrome_kind_address_family_and_mtu() {
    let mut opcodes = BTreeSet::new();
    let (mut syndromes, mut families, mut sizes) =
        <(BTreeSet<_>, BTreeSet<_>, BTreeSet<_>)>::default();
    for (_, frame) in all_frames() {
        let packet = Packet::parse(&frame.packet).unwrap();
        opcodes.insert(packet.bth.opcode());
        syndromes.extend(packet.aeth().map(|aeth| aeth.syndrome));
        families.insert(frame.source.is_ipv4());
        if packet.opcode.position == Position::First {
            sizes.insert(packet.payload.len());
        }
    }
    let rc = OPCODES.iter().filter(|opcode| opcode.service == Service::Rc);
    assert_eq!(opcodes, rc.map(|opcode| opcode.number).collect());
    let meaning = |bits: &u8| Syndrome::of(*bits).unwrap();
    let meanings: Vec<_> = syndromes.iter().map(meaning).collect();
    for code in NakCode::ALL {
        assert!(meanings.contains(&Syndrome::Nak(code)), "{code:?}");
    }
    let rnr = meanings.iter().filter_map(|meaning| match meaning {
        Syndrome::RnrNak(timer) => Some(timer.code()),
        _ => None,
    });
    assert_eq!(rnr.collect::<Vec<_>>(), [1, 12, 14, 22]);
    assert_eq!(families.len(), 2);
    assert!([256, 1024, 4096].iter().all(|mtu| sizes.contains(mtu)), "{sizes:?}");
}
