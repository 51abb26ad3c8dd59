//! The wire formats of the protocol: whatever is parsed is emitted again as the same value.

use crate::class;
use crate::input::coarse;
use std::mem::discriminant;
use towpath_base::crc::crc32c;
use towpath_proto::limits::{ACK_BYTES_MAX, ACK_CREDITS_MAX, FRAME_UNIT_BYTES, HEADER_BYTES};
use towpath_proto::wire::{
    AckFrame, ChunkHeader, FrameTable, Hello, Kind, LANE_ANSWER_BYTES, LANE_PIECE_BYTES,
    LANE_REQUEST_BYTES, LaneAnswer, LaneRequest, PREFIX_BYTES, Welcome, body_bytes, emit_table,
    place,
};

/// Where the checksum of a 64-byte header stands.
const HEADER_CRC: usize = HEADER_BYTES - 4;
/// Where the checksum of an ack's body stands.
const BODY_CRC: usize = HEADER_BYTES - 8;

/// One byte that says whether the checksum is made right, then a header.
pub(crate) fn chunk_header(input: &[u8]) -> u64 {
    let Some((&selector, rest)) = input.split_first() else { return 0 };
    let Some(head) = rest.first_chunk::<HEADER_BYTES>() else { return 1 };
    let mut bytes = *head;
    if selector & 1 == 0 {
        seal_header(&mut bytes);
    }
    let header = match ChunkHeader::parse(&bytes) {
        Ok(header) => header,
        Err(error) => return class(&[2, class_of(&error)]),
    };
    assert!(header.floor() <= header.number);
    let mut emitted = [0xa5; HEADER_BYTES];
    header.emit(&mut emitted);
    assert_eq!(emitted, bytes, "{header:?}");
    assert_eq!(ChunkHeader::parse(&emitted), Ok(header));
    let kind = header.kind as u64;
    class(&[3, kind, coarse(u64::from(header.message_len)), coarse(u64::from(header.index))])
}

/// One byte that says whether the checksum is made right, a header, and a body. The table of frames
/// that is found is emitted again as the same bytes, and payloads lie one behind the other.
pub(crate) fn frame_table(input: &[u8]) -> u64 {
    let Some((&selector, rest)) = input.split_first() else { return 0 };
    let Some((head, body)) = rest.split_first_chunk::<HEADER_BYTES>() else { return 1 };
    let mut bytes = *head;
    if selector & 1 == 0 {
        seal_header(&mut bytes);
    }
    let header = ChunkHeader::parse(&bytes).ok().filter(|header| header.kind == Kind::Data);
    let Some(header) = header else { return 2 };
    let table = match FrameTable::parse(&header, body) {
        Ok(table) => table,
        Err(error) => return class(&[3, class_of(&error)]),
    };
    let mut end = table.first.length as usize;
    let mut frames = vec![table.first];
    for (frame, found) in table.others() {
        assert_eq!(found.start, place(end, &frame));
        assert!(frame.length as usize == found.len() && found.end <= body.len());
        end = found.end;
        frames.push(frame);
    }
    let units = header.flags.units();
    assert_eq!(body_bytes(end, units), body.len());
    let mut again = vec![0xa5; units * FRAME_UNIT_BYTES];
    emit_table(frames.iter(), &mut again);
    assert_eq!(again, body[body.len() - again.len()..], "{frames:?}");
    class(&[4, units as u64, frames.len() as u64, coarse(body.len() as u64)])
}

fn seal_header(bytes: &mut [u8]) {
    let crc = crc32c(&bytes[..HEADER_CRC]);
    bytes[HEADER_CRC..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// One byte that says what is made right (bit 0: nothing; bit 1: the length too), then a frame.
pub(crate) fn ack_frame(input: &[u8]) -> u64 {
    let Some((&selector, rest)) = input.split_first() else { return 0 };
    let mut bytes = rest.to_vec();
    if selector & 1 == 0 && bytes.len() >= HEADER_BYTES {
        seal_ack(&mut bytes, selector & 2 != 0);
    }
    let frame = match AckFrame::parse(&bytes) {
        Ok(frame) => frame,
        Err(error) => return class(&[1, class_of(&error)]),
    };
    let ack = frame.ack;
    let words: Vec<(u64, u64)> = frame.words().collect();
    let credits: Vec<(u32, u32)> = frame.credits().collect();
    assert!(credits.len() <= ACK_CREDITS_MAX && bytes.len() <= ACK_BYTES_MAX);
    let wanted = usize::try_from((ack.largest + 1 - ack.base).div_ceil(64)).expect("few words");
    assert!(wanted <= words.len(), "every number up to the largest has its bit");
    let mut out = [0; ACK_BYTES_MAX];
    let word_at = |number| words.iter().find(|(first, _)| *first == number).map_or(0, |w| w.1);
    let len = ack.emit(&mut out, word_at, credits.iter().copied());
    if wanted == words.len() {
        assert_eq!(out[..len], bytes, "{ack:?}");
    }
    let again = AckFrame::parse(&out[..len]).expect("what was emitted is a frame");
    assert_eq!(again.ack, ack);
    assert!(again.words().eq(words[..wanted].iter().copied()));
    assert!(again.credits().eq(credits.iter().copied()));
    class(&[2, words.len() as u64, credits.len() as u64, coarse(ack.largest + 1 - ack.base)])
}

fn seal_ack(bytes: &mut Vec<u8>, resize: bool) {
    if resize {
        let parts = [12, 14].map(|at| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])));
        let [words, credits] = parts;
        // Counts that no frame can have keep the length that the input has.
        if words + credits <= 2 * ACK_BYTES_MAX / 8 {
            bytes.resize(HEADER_BYTES + (words + credits) * 8, 0x5a);
        }
    }
    let body = crc32c(&bytes[HEADER_BYTES..]);
    bytes[BODY_CRC..HEADER_CRC].copy_from_slice(&body.to_le_bytes());
    seal_header(bytes);
}

/// What is said on the channel of a lane: one byte that says which and how much follows it, then a
/// request or an answer.
pub(crate) fn lane_message(input: &[u8]) -> u64 {
    let Some((&selector, rest)) = input.split_first() else { return 0 };
    let more = |length: u32| usize::from(selector & 2 == 0) * length as usize;
    if selector & 1 == 0 {
        let Some(bytes) = rest.first_chunk::<LANE_REQUEST_BYTES>() else { return 1 };
        let told = u32::from_le_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]);
        let message_len = LANE_REQUEST_BYTES + if bytes[0] == 2 { more(told) } else { 0 };
        let request = match LaneRequest::parse(bytes, message_len) {
            Ok(request) => request,
            Err(error) => return class(&[2, class_of(&error)]),
        };
        assert!((1..=LANE_PIECE_BYTES).contains(&request.length));
        assert_eq!(message_len, LANE_REQUEST_BYTES + request.written() as usize);
        assert_eq!(LaneRequest::parse(&request.emit(), message_len), Ok(request));
        return class(&[3, class_of(&request.kind), coarse(u64::from(request.length))]);
    }
    let Some(bytes) = rest.first_chunk::<LANE_ANSWER_BYTES>() else { return 4 };
    let told = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let message_len = LANE_ANSWER_BYTES + more(told);
    let answer = match LaneAnswer::parse(bytes, message_len) {
        Ok(answer) => answer,
        Err(error) => return class(&[5, class_of(&error)]),
    };
    assert_eq!(message_len, LANE_ANSWER_BYTES + answer.length as usize);
    assert_eq!(LaneAnswer::parse(&answer.emit(), message_len), Ok(answer));
    class(&[6, u64::from(answer.is_done), coarse(u64::from(answer.length))])
}

/// One byte that says what is made right (bit 0: nothing; bit 1: the length too), then a message.
pub(crate) fn hello(input: &[u8]) -> u64 {
    let Some((&selector, rest)) = input.split_first() else { return 0 };
    let mut bytes = rest.to_vec();
    if selector & 1 == 0 && bytes.len() >= PREFIX_BYTES + 4 {
        let len = bytes.len();
        if selector & 2 != 0 {
            bytes[12..16].copy_from_slice(&(len as u32).to_le_bytes());
        }
        let crc = crc32c(&bytes[..len - 4]);
        bytes[len - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    // What a reader of a stream asks first; it must know before the rest is there.
    let announced = bytes.first_chunk::<PREFIX_BYTES>().map(Welcome::byte_len);
    let welcome = match Welcome::parse(&bytes) {
        Ok(welcome) => welcome,
        Err(error) => return class(&[1, class_of(&error), announced.is_some().into()]),
    };
    assert_eq!(announced, Some(Ok(bytes.len())));
    match welcome {
        Welcome::Refused(refusal) => {
            assert_eq!(Welcome::parse(&refusal.emit()), Ok(Welcome::Refused(refusal)));
            class(&[2, class_of(&refusal)])
        }
        Welcome::Hello(hello) => hello_again(hello),
    }
}

fn hello_again(hello: Hello) -> u64 {
    let emitted = hello.emit();
    let parts = [
        3,
        hello.paths.len() as u64,
        hello.addr.is_ipv4().into(),
        u64::from(hello.mtu.bytes()),
        coarse(hello.window_bytes),
    ];
    assert_eq!(Welcome::parse(&emitted), Ok(Welcome::Hello(hello)));
    class(&parts)
}

/// Which variant it is, and the field that it names.
fn class_of<T: std::fmt::Debug>(error: &T) -> u64 {
    let text = format!("{error:?} {:?}", discriminant(error));
    // Numbers inside would make a class of each value.
    crate::fnv1a(text.bytes().filter(|byte| !byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;
    use towpath_base::serial::Psn;
    use towpath_proto::wire::{Ack, AppProtocol, ChunkFlags, Frame, HelloPath, Refusal};
    use towpath_proto::{Carrier, Class, GrantId, OpKind};
    use towpath_verbs::{Mtu, QpNum};

    fn selected(selector: u8, bytes: &[u8]) -> Vec<u8> {
        [&[selector], bytes].concat()
    }

    #[test]
    fn the_seeds_of_chunk_header_are_as_made() {
        let data = ChunkHeader {
            kind: Kind::Data,
            flags: ChunkFlags::ACK.with(ChunkFlags::CREDIT, true),
            generation: 0x0403_0201,
            number: 0x1_0000_0005,
            message: 7,
            channel: 2,
            index: 2,
            offset: 0x8000,
            message_len: 0x1_0000,
            length: 0x4000,
            floor_delta: 5,
            credit: 128,
            ack_largest: 99,
            ack_hold: 1_000,
            body_crc: 0x1234_5678,
        };
        let open = ChunkHeader { kind: Kind::Open, index: 1, offset: 3, length: 0, ..data };
        let table = ChunkHeader { flags: data.flags.with_units(7), ..data };
        let made = [("data", data, 0), ("data_table", table, 1), ("open", open, 0)];
        let made = made.map(|(name, header, selector)| {
            let mut bytes = [0; HEADER_BYTES];
            header.emit(&mut bytes);
            (name, selected(selector, &bytes))
        });
        seeds::check("chunk_header", &made);
    }

    /// A chunk with these frames, whose payloads are zeroes.
    fn chunk_of(frames: &[Frame]) -> Vec<u8> {
        let first = frames[0];
        let units = first.units_as_first() + frames[1..].iter().map(Frame::units).sum::<usize>();
        let header = ChunkHeader {
            kind: Kind::Data,
            flags: ChunkFlags::default().with_units(units).with(ChunkFlags::PART, first.is_part()),
            generation: 1,
            number: 5,
            message: first.message,
            channel: first.channel,
            index: first.index,
            offset: first.offset,
            message_len: first.message_len,
            length: first.length,
            floor_delta: 5,
            credit: 0,
            ack_largest: 0,
            ack_hold: 0,
            body_crc: 0,
        };
        let places = frames.iter().fold(0, |end, frame| place(end, frame) + frame.length as usize);
        let mut bytes = vec![0; HEADER_BYTES + body_bytes(places, units)];
        let (head, body) = bytes.split_first_chunk_mut().unwrap();
        header.emit(head);
        let table = body.len() - units * FRAME_UNIT_BYTES;
        emit_table(frames.iter(), &mut body[table..]);
        bytes
    }

    #[test]
    fn the_seeds_of_frame_table_are_as_made() {
        let whole = |message: u64, length: u32| Frame {
            channel: 2,
            message,
            message_len: length,
            index: 0,
            offset: 0,
            length,
            part_start: 0,
            piece_len: length,
            at_page: false,
        };
        let piece = Frame { message_len: 900, index: 1, offset: 400, ..whole(9, 100) };
        let paged = Frame { at_page: true, ..whole(4, 4100) };
        let part = Frame { offset: 416, part_start: 16, length: 8, ..piece };
        let made = [
            ("alone", chunk_of(&[whole(1, 20)]), 0),
            ("short", chunk_of(&[whole(1, 64), whole(2, 5), whole(3, 64)]), 1),
            ("pages", chunk_of(&[whole(1, 4096), piece, whole(2, 7)]), 1),
            ("at_pages", chunk_of(&[whole(1, 600), paged, whole(2, 7)]), 1),
            ("parts", chunk_of(&[part, part, whole(2, 7)]), 0),
        ];
        let made = made.map(|(name, bytes, selector)| (name, selected(selector, &bytes)));
        seeds::check("frame_table", &made);
    }

    #[test]
    fn the_seeds_of_ack_frame_are_as_made() {
        let holes = Ack {
            path: 0,
            generation: 11,
            acked_generation: 2,
            ack_number: 3,
            largest: 1_099,
            base: 1_000,
            receive_time: 5_000,
            hold: 600,
            window_kib: 512,
            disordered: 0,
        };
        let whole = Ack { base: 1_100, ..holes };
        let credits = [(0, 130), (2, 260)];
        let made = [("holes", holes, 0), ("whole", whole, 2), ("sealed", holes, 1)];
        let made = made.map(|(name, ack, selector)| {
            let mut out = [0; ACK_BYTES_MAX];
            let len = ack.emit(&mut out, |number| number | 0b1010, credits.into_iter());
            (name, selected(selector, &out[..len]))
        });
        seeds::check("ack_frame", &made);
    }

    #[test]
    fn the_seeds_of_lane_messages_are_as_made() {
        let request = |kind, length| {
            let (number, grant, offset) = (7, GrantId(3), 4096);
            LaneRequest { number, kind, grant, offset, length }.emit()
        };
        let answer = |is_done, word, length| LaneAnswer { number: 7, is_done, word, length }.emit();
        let made = [
            ("read", selected(0, &request(OpKind::Read, LANE_PIECE_BYTES))),
            ("write", selected(0, &request(OpKind::Write, 100))),
            ("word", selected(0, &request(OpKind::WriteWord { value: 5 }, 8))),
            ("add", selected(0, &request(OpKind::FetchAdd { add: 5 }, 8))),
            ("swap", selected(0, &request(OpKind::CmpSwap { compare: 1, swap: 2 }, 8))),
            ("was_read", selected(1, &answer(true, 0, 4096))),
            ("was_added", selected(1, &answer(true, 40, 0))),
            ("refused", selected(1, &answer(false, 0, 0))),
        ];
        seeds::check("lane_message", &made);
    }

    #[test]
    fn the_seeds_of_hello_are_as_made() {
        let path = HelloPath {
            carrier: Carrier::Uc,
            qp_num: QpNum(0x12_3456),
            psn: Psn::new(0xab_cdef),
            generation: 77,
        };
        let v4 = Hello {
            further_addrs: Vec::new(),
            seal: None,
            instance: 0x0102_0304_0506_0708,
            class: Class::Silver,
            dscp: 0,
            addr: "127.0.0.1:4791".parse().unwrap(),
            mtu: Mtu::Mtu4096,
            cuts_each_send: true,
            omits_icrc: false,
            chunk_bytes_max: 57_344,
            charge_bytes: 1_280,
            window_bytes: 1 << 20,
            path_chunks: 4096,
            control: path,
            paths: vec![path, HelloPath { carrier: Carrier::Rc, qp_num: QpNum(2), ..path }],
            app: AppProtocol::named("app/7"),
        };
        let addr = "[fd00::1]:65535".parse().unwrap();
        let (mtu, paths) = (Mtu::Mtu256, vec![path]);
        let v6 = Hello { addr, class: Class::Copper, dscp: 1, mtu, paths, ..v4.clone() };
        let made = [
            ("v4", selected(0, &v4.emit())),
            ("v6", selected(2, &v6.emit())),
            ("refused", selected(0, &Refusal::Full.emit())),
            ("refused_app", selected(0, &Refusal::App { served: v4.app }.emit())),
            ("refused_paths", selected(0, &Refusal::Paths { most: 4 }.emit())),
        ];
        seeds::check("hello", &made);
    }
}
