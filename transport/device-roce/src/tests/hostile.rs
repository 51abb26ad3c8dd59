//! Packets that nobody sane sends: nothing panics and no byte lands where it must not.

use super::*;
use crate::wire::{BTH_BYTES, IcrcBase};
use towpath_base::Prng;

const PACKETS: usize = 100_000;
/// Receives lie in the first half of each of these 16 slots; what else is in memory is guarded.
const SLOT_BYTES: usize = 2048;

fn mutate(bytes: &mut Vec<u8>, rng: &mut Prng) {
    for _ in 0..rng.between(1, 4) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(6) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.next_u32() as u8,
            2 => bytes.truncate(at.max(1)),
            3 => bytes.extend((0..rng.below(40)).map(|i| i as u8)),
            // Headers are where the interesting values are.
            4 => bytes[at % BTH_BYTES] = rng.next_u32() as u8,
            _ => {
                let header = at % 28.min(bytes.len());
                bytes[header] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize];
            }
        }
    }
}

/// Makes the ICRC right, so that the packet gets past it.
pub(super) fn forge(packet: &mut OnWire, dest: SocketAddr) {
    if packet.bytes.len() < BTH_BYTES + 4 {
        return;
    }
    let at = packet.bytes.len() - 4;
    let [a, b, c] = [packet.bytes[5], packet.bytes[6], packet.bytes[7]];
    let base = IcrcBase::new(packet.source, dest, u32::from_be_bytes([0, a, b, c]));
    packet.bytes[at..].fill(0);
    let icrc = base.difference(&packet.bytes).unwrap();
    packet.bytes[at..].copy_from_slice(&icrc.to_le_bytes());
}

#[test]
fn a_hundred_thousand_mutated_packets_neither_panic_nor_write_outside() {
    let seed = 20;
    println!("seed {seed}");
    let mut rng = Prng::new(seed);
    let mut pair = Pair::uc(Mtu::Mtu256);
    pair.b.memory.write(0, &vec![0x5a; MEMORY_BYTES]).unwrap();
    // Only the other region is open to WRITE.
    pair.b.device.dereg_mr(pair.b.keys.lkey).unwrap();
    pair.b.keys = pair
        .b
        .device
        .reg_shared_mr(PdNum::DEFAULT, &pair.b.memory, pair.b.memory.whole(), Access::LOCAL)
        .unwrap();
    let open = SharedMemory::new(4096).unwrap();
    let open_keys = pair
        .b
        .device
        .reg_shared_mr(PdNum::DEFAULT, &open, open.whole(), Access::REMOTE_WRITE)
        .unwrap();
    let remote = RemoteAddr { addr: open.addr() + 64, rkey: open_keys.rkey };
    let mut seeds = pair.packets(SendOp::SendWithImm { imm_data: 1 }, 700);
    seeds.extend(pair.packets(SendOp::WriteWithImm { remote, imm_data: 1 }, 700));
    seeds.extend(pair.packets(SendOp::Send, 33));
    seeds.extend(pair.packets(SendOp::Write { remote }, 5));
    let dest = pair.b.device.local_addr();
    let (mut posted, mut completed) = (0, 0);
    for i in 0..PACKETS {
        while posted - completed < 16 {
            let at = posted % 16 * SLOT_BYTES;
            pair.b.recv(pair.b_qp, posted as u64, at, 1 + rng.below(1024) as usize);
            posted += 1;
        }
        let mut packet = seeds[rng.below(seeds.len() as u64) as usize].clone();
        if !rng.chance(0.1) {
            mutate(&mut packet.bytes, &mut rng);
        }
        if !rng.chance(0.05) {
            forge(&mut packet, dest);
        }
        pair.deliver([packet]);
        completed += pair.b.completions().len();
        let state = pair.b.device.qp_state(pair.b_qp);
        assert_eq!(state, Ok(QpState::Rts), "packet {i} took the queue pair down");
    }
    let memory = pair.b.bytes(0, MEMORY_BYTES);
    let (slots, beyond) = memory.split_at(16 * SLOT_BYTES);
    let gaps = slots.chunks(SLOT_BYTES).flat_map(|slot| &slot[SLOT_BYTES / 2..]);
    assert!(gaps.chain(beyond).all(|&b| b == 0x5a), "bytes outside every receive were written");
    let c = pair.b.counters();
    assert_eq!(c.packets_received, PACKETS as u64);
    let seen = [c.too_short, c.bad_version, c.bad_opcode, c.bad_icrc, c.bad_pkey, c.unknown_qp];
    let reached = [c.psn_mismatch, c.length_error, c.bad_rkey, c.recv_too_long, c.resyncs];
    assert!(seen.iter().chain(&reached).all(|&n| n > 50), "every check was reached: {c:?}");
    assert!(c.messages_received > 1000, "{c:?}");
}
