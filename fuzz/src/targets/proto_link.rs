//! A link against a peer that says anything, with right checksums and generations.

use crate::class;
use crate::input::Reader;
use crate::targets::proto_host::{
    CHUNK_BYTES_MAX, Flying, Host, byte_of, control_generation, generation, other,
};
use towpath_base::crc::crc32c;
use towpath_base::{Nanos, Time};

use towpath_proto::limits::{ACK_BYTES_MAX, FRAME_ALIGN_BYTES, FRAME_UNIT_BYTES, HEADER_BYTES};
use towpath_proto::wire::{
    Ack, ChunkFlags, ChunkHeader, Frame, Kind, body_bytes, emit_table, place,
};
use towpath_proto::{OpEnd, PathId, Side};

/// Most operations of one input: enough to fill every table several times over.
const OPERATIONS_MAX: usize = 400;

/// Time moves by at most 2^37 ns at once: two minutes, beyond every timer.
const TIME_SHIFT_MAX: u8 = 38;

/// Kinds but DATA.
const CONTROLS: [Kind; 12] = [
    Kind::Open,
    Kind::Opened,
    Kind::Close,
    Kind::Abandon,
    Kind::Abandoned,
    Kind::CreditProbe,
    Kind::Ping,
    Kind::Goodbye,
    Kind::Renew,
    Kind::Lane,
    Kind::Grant,
    Kind::Revoke,
];

/// The first byte chooses side and paths; then operations: a kind and what it reads.
pub(crate) fn run(input: &[u8]) -> u64 {
    let mut reader = Reader::new(input);
    let first = reader.u8();
    let side = if first & 1 == 0 { Side::Client } else { Side::Server };
    let host = Host::new(side, 1 + (first >> 1 & 1));
    let mut peer = Peer { host, side, next: [0; 2], next_control: 0, next_ack: 0 };
    for _ in 0..OPERATIONS_MAX {
        if reader.is_empty() {
            break;
        }
        peer.operate(&mut reader);
        peer.host.take_events();
    }
    let classes = peer.host.classes();
    peer.host.link.peer_gone();
    peer.host.finish();
    class(&classes)
}

/// The other end as the fuzzer plays it.
struct Peer {
    host: Host,
    side: Side,
    /// What an honest peer would number next, on each path.
    next: [u64; 2],
    next_control: u32,
    next_ack: u64,
}

impl Peer {
    fn operate(&mut self, reader: &mut Reader<'_>) {
        let host = &mut self.host;
        match reader.u8() % 16 {
            0 => host.open(reader.u8() & 1 == 0),
            1 => {
                let channel = host.nth_channel(reader.u8());
                let lens = [u32::from(reader.u16()), u32::from(reader.u8())];
                let shift = reader.u8();
                let deadline = match shift & 1 {
                    0 => Time::NEVER,
                    _ => host.now + Nanos(1 << (shift % 32)),
                };
                host.send(channel, &lens[..if lens[1] == 0 { 1 } else { 2 }], deadline);
            }
            2 => host.cancel(usize::from(reader.u8())),
            3 => {
                let channel = host.nth_channel(reader.u8());
                let _ = host.link.close_channel(channel);
            }
            4 => host.take_messages(usize::from(reader.u8())),
            5 => {
                let channel = host.nth_channel(reader.u8());
                host.release(channel, u32::from(reader.u8()));
            }
            6 => host.now += Nanos(1 << (reader.u8() % TIME_SHIFT_MAX)),
            7..=9 => self.data(reader),
            10 | 11 => self.control(reader),
            12 => self.ack(reader),
            13 => self.turn(reader.u8()),
            14 => host.return_sent(usize::from(reader.u8()), reader.u8() & 1 == 0),
            _ => self.rare(reader),
        }
    }

    fn rare(&mut self, reader: &mut Reader<'_>) {
        let host = &mut self.host;
        match reader.u8() % 12 {
            0 => host.link.goodbye(),
            1 => host.link.set_receive_window(u64::from(reader.u32())),
            2 => host.link.peer_gone(),
            3 => host.release_all(),
            4 => {
                let mut header = [0; HEADER_BYTES];
                let bytes = reader.bytes(HEADER_BYTES);
                header[..bytes.len()].copy_from_slice(bytes);
                host.give_chunk(PathId(0), &header, &[]);
            }
            5 => host.give_ack(reader.bytes(HEADER_BYTES)),
            6 => {
                let drawn = reader.u8();
                host.fail_path(drawn & 1, drawn & 2 == 0);
            }
            7 => {
                let (kind, nth) = (reader.u8(), reader.u8());
                host.operate(kind, nth, (reader.u16().into(), reader.u16().into()));
            }
            8 => {
                let drawn = reader.u8();
                let end = [OpEnd::Done, OpEnd::Refused, OpEnd::Lost][usize::from(drawn % 3)];
                host.end_ops(usize::from(drawn >> 2), end);
            }
            9 => host.link.lane_failed(host.now),
            10 => host.grant(reader.u8() & 3 != 0),
            _ => host.link.handle_timeout(host.now),
        }
    }

    /// One turn of the driver; what it sends is forgotten.
    fn turn(&mut self, most: u8) {
        let mut frames: Vec<Flying> = Vec::new();
        let most = if most == 0 { usize::MAX } else { usize::from(most) };
        self.host.transmit(most, &mut frames);
        self.host.acks(&mut frames);
    }

    /// A header with all that every kind has.
    fn header(&mut self, reader: &mut Reader<'_>, kind: Kind) -> (PathId, ChunkHeader) {
        let selector = reader.u8();
        let path = usize::from(selector >> 7);
        let next = self.next[path];
        let number = match selector & 3 {
            0 => next,
            1 => next.saturating_add(reader.u8().into()),
            2 => next.saturating_sub(reader.u8().into()),
            _ => reader.u64(),
        };
        self.next[path] = next.max(number.saturating_add(1));
        let floor = match selector >> 2 & 3 {
            0 => 0,
            1 => reader.u8().into(),
            2 => reader.u16(),
            _ => 4095,
        };
        let mut header = ChunkHeader {
            kind,
            flags: ChunkFlags::default(),
            generation: generation(self.side, path as u8),
            number,
            message: 0,
            channel: 0,
            index: 0,
            offset: 0,
            message_len: 0,
            length: 0,
            floor_delta: number.min(floor.into()) as u16,
            credit: 0,
            ack_largest: 0,
            ack_hold: 0,
            body_crc: 0,
        };
        if selector & 0x10 != 0 {
            header.flags = header.flags.with(ChunkFlags::ACK, true);
            let ours = self.host.next_number[path];
            let back = reader.u8();
            let near = ours.wrapping_sub(back.into());
            header.ack_largest = if back == 0xff { reader.u32() } else { near as u32 };
            header.ack_hold = reader.u16().into();
        }
        if selector & 0x20 != 0 {
            header.flags = header.flags.with(ChunkFlags::CREDIT, true);
            header.credit = reader.u16();
        }
        if selector & 0x40 != 0 {
            header.generation = reader.u8().into();
        }
        (PathId(path as u8), header)
    }

    fn deliver(&mut self, path: PathId, header: &ChunkHeader, body: &[u8]) {
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        self.host.give_chunk(path, &bytes, body);
    }

    fn data(&mut self, reader: &mut Reader<'_>) {
        let (path, mut header) = self.header(reader, Kind::Data);
        header.channel = self.host.nth_channel(reader.u8()).0;
        let selector = reader.u8();
        header.message = match selector & 3 {
            0 | 1 => reader.u8().into(),
            2 => beyond_window(reader.u16().into()),
            _ => beyond_window(reader.u64()),
        };
        let (index, count) = (u32::from(reader.u8()), u32::from(reader.u8()));
        let mut frames = vec![honest(&header, selector >> 2 & 3, (index, count))];
        // And a lie about one of its fields.
        let lie = if selector & 0x10 == 0 { 1 } else { reader.u32() };
        let first = &mut frames[0];
        match selector >> 5 {
            1 => first.index = lie,
            2 => first.offset = lie,
            3 => first.message_len = lie,
            4 => first.length = lie % (CHUNK_BYTES_MAX + 1),
            5 => first.channel = lie,
            _ => {}
        }
        let more = reader.u8();
        self.host.bufs.is_short = more & 0x80 != 0;
        cut_part(&mut frames[0], more >> 4 & 7, reader);
        for _ in 0..more & 3 {
            let message = header.message.wrapping_add(u64::from(reader.u8() % 4));
            let message = if header.message < 256 { message % 256 } else { beyond_window(message) };
            let other = ChunkHeader { message, ..header };
            let (size, index) = (reader.u8(), u32::from(reader.u8() % 4));
            let mut frame = honest(&other, size & 3, (index, u32::from(size >> 2 & 3)));
            cut_part(&mut frame, size >> 4, reader);
            frames.push(frame);
        }
        let body = body_of(&mut header, &frames);
        header.flags = header.flags.with(ChunkFlags::BODY_CRC, selector >> 5 != 7);
        header.body_crc = crc32c(&body) ^ u32::from(selector >> 5 == 6);
        self.deliver(path, &header, &body);
    }

    fn control(&mut self, reader: &mut Reader<'_>) {
        let kind = CONTROLS[usize::from(reader.u8()) % CONTROLS.len()];
        let (path, mut header) = self.header(reader, kind);
        let selector = reader.u8();
        header.channel = match selector & 3 {
            0 => reader.u32(),
            _ => self.host.nth_channel(reader.u8()).0,
        };
        // The ids that the peer may open are those of its side.
        if kind == Kind::Open && selector & 4 == 0 {
            let first = u32::from(other(self.side) == Side::Server);
            header.channel = header.channel % 4 * 2 + first;
        }
        header.message = if selector & 8 == 0 { reader.u8().into() } else { reader.u64() };
        header.index = if selector & 16 == 0 { u32::from(selector >> 7) } else { reader.u32() };
        header.message_len = 1 << (reader.u8() % 32);
        header.offset = match selector >> 5 & 3 {
            0 => reader.u32(),
            1 => self.next_control.wrapping_add(reader.u8().into()),
            _ => self.next_control,
        };
        if header.offset == self.next_control {
            self.next_control = self.next_control.wrapping_add(1);
        }
        self.deliver(path, &header, &[]);
    }

    fn ack(&mut self, reader: &mut Reader<'_>) {
        let selector = reader.u8();
        let path = usize::from(selector & 1);
        let ours = self.host.next_number[path];
        let largest = match selector >> 1 & 3 {
            3 => reader.u64(),
            _ => ours.saturating_sub(1).saturating_sub(reader.u8().into()),
        };
        let span = match selector >> 3 & 3 {
            0 => 0,
            1 | 2 => u64::from(reader.u8()),
            _ => u64::from(reader.u16() % 4096),
        };
        let largest = largest.min(u64::MAX - 1);
        self.next_ack += 1;
        let ack = Ack {
            path: path as u16,
            generation: control_generation(self.side),
            acked_generation: generation(other(self.side), path as u8),
            ack_number: if selector & 0x20 == 0 { self.next_ack } else { reader.u64() },
            largest,
            base: (largest + 1).saturating_sub(span),
            receive_time: reader.u16().into(),
            hold: reader.u16().into(),
            window_kib: if selector & 0x40 == 0 { 1 << 10 } else { reader.u32() },
            disordered: reader.u8().into(),
        };
        let words: Vec<u64> = (0..span.div_ceil(64)).map(|_| reader.u64()).collect();
        let word_at = |number: u64| words.get(((number - ack.base) / 64) as usize).copied();
        let credits = if selector & 0x80 == 0 { 0 } else { reader.u8() % 40 };
        let credits: Vec<(u32, u32)> = (0..credits)
            .map(|_| (self.host.nth_channel(reader.u8()).0, u32::from(reader.u16())))
            .collect();
        let mut out = [0; ACK_BYTES_MAX];
        let len = ack.emit(&mut out, |number| word_at(number).unwrap_or(0), credits.into_iter());
        self.host.give_ack(&out[..len]);
    }
}

/// A message id that is beyond the window in a header and, cut to 32 bits, in a table of frames: of
/// what is taken no two messages have the same low byte, which is what their bytes tell them apart
/// by.
fn beyond_window(message: u64) -> u64 {
    message | 0xf000
}

/// An honest piece of the message that a header names: pieces of one size and a tail.
fn honest(header: &ChunkHeader, size: u8, (index, count): (u32, u32)) -> Frame {
    let size = [1, 64, 192, CHUNK_BYTES_MAX][usize::from(size)];
    let message_len = size * count.max(1) + size / 3;
    let offset = index * size;
    let length = size.min(message_len.saturating_sub(offset));
    let (channel, message) = (header.channel, header.message);
    let (part_start, piece_len, at_page) = (0, length, false);
    Frame { channel, message, message_len, index, offset, length, part_start, piece_len, at_page }
}

/// Makes a frame carry a part of its piece.
fn cut_part(frame: &mut Frame, how: u8, reader: &mut Reader<'_>) {
    if how == 0 || frame.length <= 8 {
        return;
    }
    let start = u32::from(reader.u8()) * 8 % frame.length;
    let rest = frame.length - start;
    let length = if how & 1 == 0 { rest } else { (u32::from(reader.u8()) * 8).clamp(1, rest) };
    (frame.part_start, frame.offset) = (start, frame.offset.wrapping_add(start));
    frame.length = length;
}

/// The body of a chunk with these frames, as far as it can be made, and what its header says of
/// them. Every byte tells its message.
fn body_of(header: &mut ChunkHeader, frames: &[Frame]) -> Vec<u8> {
    let first = &frames[0];
    (header.channel, header.message) = (first.channel, first.message);
    (header.message_len, header.index) = (first.message_len, first.index);
    (header.offset, header.length) = (first.offset, first.length);
    let units = first.units_as_first() + frames[1..].iter().map(Frame::units).sum::<usize>();
    header.flags = header.flags.with_units(units).with(ChunkFlags::PART, first.is_part());
    let mut body = Vec::new();
    for frame in frames {
        body.resize(place(body.len(), frame), 0);
        let tag = frame.message as u8;
        body.extend((0..frame.length).map(|at| byte_of(tag, frame.offset.wrapping_add(at))));
    }
    if units > 0 {
        let table = body_bytes(body.len(), 0).next_multiple_of(FRAME_ALIGN_BYTES);
        body.resize(table + units * FRAME_UNIT_BYTES, 0);
        emit_table(frames.iter(), &mut body[table..]);
    }
    body
}

#[cfg(test)]
mod tests {
    use crate::seeds;

    /// The peer's next control chunk: its kind as an index, for the first channel.
    fn control(kind: u8) -> Vec<u8> {
        vec![10, kind, 0x20, 8, 0, 0x41, 0, 0, 20]
    }

    /// A chunk of 192 bytes of the message with this id on the first channel.
    fn data(message: u8, index: u8, count: u8) -> Vec<u8> {
        vec![7, 0, 0, 0x08, message, index, count]
    }

    const OPEN: [u8; 2] = [0, 0];
    const TURN: [u8; 2] = [13, 0];
    const TAKE: [u8; 2] = [4, 255];
    const RELEASE: [u8; 3] = [5, 0, 255];
    const RETURNED: [u8; 3] = [14, 255, 0];
    /// An ack of all but the newest number, with no hole, and of the newest.
    const ACKS: [[u8; 7]; 2] = [[12, 0, 1, 5, 0, 9, 0], [12, 0, 0, 5, 0, 9, 0]];

    #[test]
    fn the_seeds_are_as_made() {
        let side = |first: u8, parts: &[&[u8]]| [&[first], &parts.concat()[..]].concat();
        let late: Vec<u8> = [3, 0, 1, 2, 4, 5].map(|index| data(0, index, 6)).concat();
        let tail = data(0, 6, 6);
        let whole: Vec<u8> = [0, 1].map(|id| [data(id, 1, 1), data(id, 0, 1)].concat()).concat();
        let (opened, send) = (control(1), [1, 0, 0x58, 2, 9, 0]);
        let open: &[u8] = &control(0);
        let made = [
            ("peer_streams", side(0, &[open, &late, &RELEASE, &tail, &TURN, &RELEASE, &TURN])),
            ("peer_sends_whole", side(1, &[open, &whole, &TAKE, &RELEASE, &TURN])),
            ("we_send", side(2, &[&OPEN, &TURN, &opened, &send, &TURN, &ACKS.concat(), &RETURNED])),
            (
                "cancelled",
                side(0, &[&OPEN, &TURN, &opened, &send, &TURN, &[2, 0], &TURN, &control(4)]),
            ),
            (
                "goodbye",
                side(0, &[&OPEN, &TURN, &opened, &[15, 0], &ACKS[1], &TURN, &ACKS[1], &TURN]),
            ),
            ("close_before_opened", side(0, &[&OPEN, &TURN, &control(2), &OPEN])),
            ("number_beyond_all", {
                let header = [10, 6, 0x0f, 255, 255, 255, 255, 255, 255, 255, 255];
                side(0, &[&header, &[0x41, 0, 0, 0], &TURN])
            }),
        ];
        seeds::check("link", &made);
    }
}
