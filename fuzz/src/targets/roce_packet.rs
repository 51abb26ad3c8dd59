//! RoCEv2 packets: what is parsed is emitted again as the same values, with a right ICRC.

use crate::class;
use crate::input::coarse;
use std::net::SocketAddr;
use towpath_device_roce::wire::{IcrcBase, Packet, PacketRepr, WireError};

/// One byte that chooses the addresses, then a packet from BTH to ICRC.
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((&selector, bytes)) = input.split_first() else { return 0 };
    let (source, dest) = addresses(selector);
    let packet = match Packet::parse(bytes) {
        Ok(packet) => packet,
        Err(error) => return class(&[1, class_of(&error)]),
    };
    let repr = PacketRepr::parse(bytes).expect("a packet has values");
    assert_eq!(repr.payload, packet.payload);
    let emitted = repr.emit(source, dest);
    assert_eq!(emitted.len(), bytes.len(), "{repr:?}");
    assert_eq!(PacketRepr::parse(&emitted).as_ref(), Ok(&repr));
    let base = IcrcBase::new(source, dest, repr.bth.dest_qp);
    assert_eq!(base.difference(&emitted), Some(0), "the ICRC is that of the packet");
    let opcode = u64::from(repr.bth.opcode);
    class(&[2, opcode, coarse(repr.payload.len() as u64), u64::from(repr.bth.pad_count)])
}

fn addresses(selector: u8) -> (SocketAddr, SocketAddr) {
    let pair = match selector % 3 {
        0 => ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        1 => ([0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 2].into()),
        _ => ([0, 0, 0, 0, 0, 0xffff, 0x0a00, 1].into(), [10, 0, 0, 2].into()),
    };
    (SocketAddr::new(pair.0, 49_152), SocketAddr::new(pair.1, 4791))
}

fn class_of(error: &WireError) -> u64 {
    match *error {
        WireError::TooShort { field, .. } => field as u64,
        WireError::NotWords { .. } => 10,
        WireError::BadVersion(_) => 11,
        WireError::BadOpcode(_) => 12,
        _ => 13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;
    use towpath_base::serial::Psn;
    use towpath_device_roce::wire::{
        Aeth, AtomicAckEth, AtomicEth, Bth, BthRepr, Deth, ExtHeaders, Ieth, ImmDt, Reth,
    };

    #[test]
    fn the_seeds_are_as_made() {
        let bth = BthRepr::parse(&Bth::new_checked(&[0; 12]).unwrap()).unwrap();
        let packet = |opcode, ext, payload: &[u8]| PacketRepr {
            bth: BthRepr { opcode, pkey: 0xffff, dest_qp: 17, psn: Psn::new(0xff_fffe), ..bth },
            ext,
            payload: payload.to_vec(),
        };
        let none = ExtHeaders::default();
        let reth = Some(Reth { va: 0x7000_1000, rkey: 0x1234, dma_len: 13 });
        let deth = Some(Deth { qkey: 0x1111, src_qp: 5 });
        let imm = Some(ImmDt { imm_data: 7 });
        let aeth = Some(Aeth { syndrome: 0x1f, msn: 3 });
        let nak = Some(Aeth { syndrome: 0x60, msn: 3 });
        let atomic = Some(AtomicEth { va: 0x7000_1008, rkey: 0x1234, swap_add: 5, compare: 9 });
        let atomic_ack = Some(AtomicAckEth { original: 1000 });
        let ieth = Some(Ieth { rkey: 0x1234 });
        let made = [
            ("rc_read_request", packet(0x0c, ExtHeaders { reth, ..none }, b"")),
            ("rc_read_response_last", packet(0x0f, ExtHeaders { aeth, ..none }, b"thirteen byte")),
            ("rc_nak", packet(0x11, ExtHeaders { aeth: nak, ..none }, b"")),
            ("rc_atomic_ack", packet(0x12, ExtHeaders { aeth, atomic_ack, ..none }, b"")),
            ("rc_cmp_swap", packet(0x13, ExtHeaders { atomic, ..none }, b"")),
            ("rc_send_last_inv", packet(0x16, ExtHeaders { ieth, ..none }, b"inv")),
            ("uc_send_only", packet(0x24, none, b"thirteen byte")),
            ("uc_write_only_imm", packet(0x2b, ExtHeaders { reth, imm, ..none }, b"thirteen byte")),
            ("ud_send_only", packet(0x64, ExtHeaders { deth, ..none }, b"datagram")),
            ("uc_send_first", packet(0x20, none, &[0x5a; 256])),
        ];
        let made = made.map(|(name, repr)| {
            let (source, dest) = addresses(0);
            (name, [vec![0], repr.emit(source, dest)].concat())
        });
        seeds::check("roce_packet", &made);
    }
}
