//! Two honest links with lanes; between them chunks get lost and queue pairs die as the input says:
//! each operation has one outcome, and it is true.

use crate::input::Reader;
use crate::targets::proto_host::Host;
use crate::targets::proto_link_pair::Pair;
use towpath_base::Nanos;

/// Most operations of one input.
const OPERATIONS_MAX: usize = 300;

/// Time moves by at most 2^29 ns at once: half a second, so that nobody is taken for dead.
const TIME_SHIFT_MAX: u8 = 30;

/// Operations: a kind, whose high bit names the end.
pub(crate) fn run(input: &[u8]) -> u64 {
    let mut reader = Reader::new(input);
    let mut pair = Pair::new(1);
    for _ in 0..OPERATIONS_MAX {
        if reader.is_empty() {
            break;
        }
        operate(&mut pair, &mut reader);
        pair.hosts.iter_mut().for_each(Host::take_events);
    }
    pair.end()
}

fn operate(pair: &mut Pair, reader: &mut Reader<'_>) {
    let kind = reader.u8();
    let (at, flag) = (usize::from(kind >> 7), kind & 16 != 0);
    let host = &mut pair.hosts[at];
    match kind & 15 {
        0 => host.grant(true),
        1 => host.grant(false),
        2..=4 => {
            let (what, nth) = (reader.u8(), reader.u8());
            let offset = u32::from(reader.u8()) * if flag { 8 } else { 17 };
            host.operate(what, nth, (offset, u32::from(reader.u8())));
        }
        5 | 6 => {
            pair.carry(at, usize::from(reader.u8()));
        }
        7 => host.answer_ops(usize::from(reader.u8())),
        8 => host.break_lane(flag),
        9 => {
            let span = Nanos(1 << (reader.u8() % TIME_SHIFT_MAX));
            pair.hosts.iter_mut().for_each(|host| host.now += span);
        }
        10 => pair.turn(at, usize::from(reader.u8())),
        11 => pair.deliver(at, usize::from(reader.u8())),
        12 => {
            let nth = usize::from(reader.u8());
            pair.disturb(at, kind >> 4 & 7, nth);
        }
        13 => host.return_sent(usize::from(reader.u8()), flag),
        14 if kind & 0x70 == 0x70 => {
            host.link.goodbye();
            pair.gone = true;
        }
        14 => host.lane.is_poor = true,
        _ => {
            pair.round(flag);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::seeds;

    const ROUND: [u8; 1] = [15];
    /// The server grants, and all is joined.
    const GRANT: [u8; 4] = [0x80, 15, 15, 15];
    /// The client's turn.
    const TURN: [u8; 2] = [10, 0];

    /// An operation of the client on the first grant.
    fn op(kind: u8) -> [u8; 5] {
        [2, kind, 0, 0, 64]
    }

    #[test]
    fn the_seeds_are_as_made() {
        let of = |parts: &[&[u8]]| [&GRANT[..], &parts.concat()[..]].concat();
        let all = [op(0), op(1), op(2), op(3), op(4)].concat();
        let made = [
            ("each_kind", of(&[&all, &ROUND])),
            // Two have reached the peer, one answer has come.
            ("broken_in_the_midst", of(&[&all, &TURN, &[5, 2, 7, 1, 8], &ROUND])),
            ("newest_first", of(&[&all, &TURN, &[0x18], &ROUND])),
            // Lost once; the second time a word alone has been posted.
            ("lost_twice", of(&[&all, &TURN, &[5, 1, 8, 15, 10, 0, 8], &ROUND])),
            ("revoked_in_the_midst", of(&[&all, &TURN, &[5, 1, 0x81, 5, 9], &ROUND])),
            ("the_peers_breaks", of(&[&[0x88], &all, &TURN, &[5, 9], &ROUND])),
            ("none_can_be_made", of(&[&all, &TURN, &[8, 14], &ROUND, &[9, 25], &ROUND])),
            // A link that leaves took no LANE in, and waited for its operation for ever.
            ("goodbye_and_broken", of(&[&ROUND, &op(0), &[0x7e, 0x88], &ROUND])),
            ("goodbye", of(&[&all, &TURN, &[5, 1, 0x7e], &ROUND])),
        ];
        seeds::check("lane_pair", &made);
    }
}
