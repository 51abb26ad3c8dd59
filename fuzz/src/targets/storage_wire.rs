//! The storage protocol: rpc headers, read and write headers, error replies, control bodies.

use crate::class;
use crate::input::coarse;
use prost::Message;
use std::mem::discriminant;
use towpath_base::crc::crc32c;
use towpath_fastpath::control::{
    ChainRequest, ChunkInfo, ChunkRequest, CreateRequest, DeleteRequest, FinishRequest, InfoReply,
    ListReply, ListRequest, LocateReply, LocateRequest, RevokeRequest, ScrubReply, ScrubRequest,
    SessionRequest,
};
use towpath_fastpath::digest::{
    Digest, DigestReply, DigestRequest, SketchReply, SketchRequest, Sketches, SliceRange,
};
use towpath_fastpath::qos::wire::{JoinReply, JoinRequest, QosReply};
use towpath_fastpath::resident::{Located, SLOT_BYTES};
use towpath_fastpath::wire::{
    ChangeReply, ClearHeader, ErrorReply, ReadHeader, ReadReplyHeader, WireError, WriteHeader,
};
use towpath_fastpath::{ChunkId, Rebuild, Route, SLICE_BYTES};
use towpath_rpc::limits::HEADER_BYTES;

/// Bytes of a read or write header; its checksum is the last four.
const IO_HEADER_BYTES: usize = 128;
/// Bytes of the header of a read reply; likewise.
const READ_REPLY_BYTES: usize = 64;
/// Bytes of the reply to a change; likewise.
const CHANGE_REPLY_BYTES: usize = 24;
/// Bytes of an error reply; likewise.
const ERROR_BYTES: usize = 48;
/// Which body is a route.
const ROUTE: u8 = 12;
/// Which body is the plan of a part that is made anew.
const REBUILD: u8 = 13;

/// One byte that says which body follows (low four bits) and whether the checksum of its header is
/// left as it is (high bit), then the body.
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((&selector, rest)) = input.split_first() else { return 0 };
    let mut body = rest.to_vec();
    let which = selector & 15;
    if selector & 0x80 == 0 {
        let header_bytes = match which {
            3 => READ_REPLY_BYTES,
            4 => ERROR_BYTES,
            9 => CHANGE_REPLY_BYTES,
            _ => IO_HEADER_BYTES,
        };
        match which {
            ROUTE => seal_within(&mut body, (2, 12, 24), 8),
            REBUILD => seal_within(&mut body, (1, 80, 56), 4),
            _ => seal(&mut body, header_bytes),
        }
    }
    let outcome = match which {
        0 => rpc_header(&body),
        1 => of(WriteHeader::parse(&body).map(|(header, crcs)| {
            assert_eq!(header.emit()[..], body[..IO_HEADER_BYTES]);
            assert_eq!(crcs.len() * 4, body.len() - IO_HEADER_BYTES);
            crcs.len() as u64
        })),
        2 => of(ReadHeader::parse(&body).map(|header| {
            assert_eq!(header.emit()[..], body[..]);
            u64::from(header.length)
        })),
        3 => of(ReadReplyHeader::parse(&body).map(|(header, crcs)| {
            assert_eq!(header.emit()[..], body[..READ_REPLY_BYTES]);
            crcs.len() as u64
        })),
        4 => of(ErrorReply::parse(&body).map(|reply| {
            let again = reply.emit();
            assert_eq!(ErrorReply::parse(&again).as_ref(), Ok(&reply));
            0
        })),
        5 => requests(&body),
        6 => replies(&body),
        8 => of(ClearHeader::parse(&body).map(|header| {
            assert_eq!(header.emit()[..], body[..]);
            header.clear.method() as u64
        })),
        9 => of(ChangeReply::parse(&body).map(|reply| {
            assert_eq!(reply.emit()[..], body[..]);
            0
        })),
        10 => digest(&body),
        11 => sketches(&body),
        ROUTE => of(Route::parse(&body).map(|(route, rest)| {
            assert_eq!(route.emit()[..], body[..body.len() - rest.len()]);
            assert!(route.onward().all(|(next, _)| next.rank() > route.rank()));
            u64::from(route.rank())
        })),
        REBUILD => of(Rebuild::parse(&body).map(|(plan, crcs)| {
            assert_eq!(plan.emit()[..], body[..body.len() - 4 * crcs.len()]);
            let target = plan.target();
            assert!(target.offset.checked_add(target.length.into()).is_some());
            assert!(plan.onward().is_none_or(|(next, _)| next.rank() > plan.rank()));
            u64::from(plan.rank())
        })),
        _ => located(&body),
    };
    class(&[u64::from(which), outcome])
}

fn of(parsed: Result<u64, WireError>) -> u64 {
    match parsed {
        Ok(size) => class(&[1, coarse(size)]),
        Err(error) => class(&[2, class_of(&error)]),
    }
}

fn rpc_header(bytes: &[u8]) -> u64 {
    match towpath_rpc::Header::parse(bytes) {
        Ok(header) => {
            assert_eq!(header.emit()[..], bytes[..HEADER_BYTES]);
            class(&[1, header.kind as u64, coarse(header.body_len.into()), header.inline.into()])
        }
        Err(error) => class(&[2, class_of(&error)]),
    }
}

fn class_of<T>(value: &T) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    discriminant(value).hash(&mut hasher);
    hasher.finish()
}

/// What a server decodes.
fn requests(body: &[u8]) -> u64 {
    class(&[
        decoded::<CreateRequest>(body),
        decoded::<ChunkRequest>(body),
        decoded::<DeleteRequest>(body),
        decoded::<FinishRequest>(body),
        decoded::<ListRequest>(body),
        decoded::<ScrubRequest>(body),
        decoded::<RevokeRequest>(body),
        decoded::<SessionRequest>(body),
        decoded::<LocateRequest>(body),
        decoded::<JoinRequest>(body),
        decoded::<DigestRequest>(body),
        decoded::<SketchRequest>(body),
        decoded::<ChainRequest>(body),
    ])
}

/// What a client decodes.
fn replies(body: &[u8]) -> u64 {
    class(&[
        decoded::<ChunkInfo>(body),
        decoded::<ListReply>(body),
        decoded::<ScrubReply>(body),
        decoded::<InfoReply>(body),
        decoded::<JoinReply>(body),
        decoded::<QosReply>(body),
    ])
}

/// What a client decodes and then believes: whatever passes is within the chunk and 4 GiB.
fn located(body: &[u8]) -> u64 {
    let Some((&first, body)) = body.split_first() else { return 0 };
    let Ok(reply) = LocateReply::decode(body) else { return 1 };
    match Located::check(first.into(), &reply) {
        Ok(None) => 2,
        Ok(Some(located)) => {
            let mut next = u64::from(first);
            for run in &reply.runs {
                assert!(run.first_slice >= next && run.count > 0);
                next = run.first_slice + u64::from(run.count);
                let end = (u64::from(run.slot) + u64::from(run.count)) * SLOT_BYTES as u64;
                assert!(end <= u64::from(u32::MAX));
            }
            // Of a chunk however long it is said to be.
            let slices = reply.byte_len.div_ceil(SLICE_BYTES as u64);
            assert!(next <= slices || next == u64::from(first));
            class(&[3, coarse(located.runs() as u64), reply.more.into()])
        }
        Err(_) => 4,
    }
}

/// What a client decodes and then believes of a range: where it begins in slices, how many it
/// touches, and the reply.
fn digest(body: &[u8]) -> u64 {
    let Some((&[first, count], body)) = body.split_first_chunk() else { return 0 };
    let slice = SLICE_BYTES as u64;
    let range = SliceRange::new(u64::from(first) * slice, u32::from(count) * slice as u32);
    let (Ok(range), Ok(reply)) = (range, DigestReply::decode(body)) else { return 1 };
    match Digest::check(ChunkId(7), range, reply) {
        Ok(digest) => {
            assert!(digest.crcs().len() as u64 <= range.span().count());
            let in_chunk = digest.byte_len().div_ceil(slice);
            assert!(digest.crcs().all(|(slice, _)| slice >= first.into() && slice < in_chunk));
            let holes = (0..512).filter(|slice| digest.is_hole(*slice)).count();
            assert!(holes <= digest.crcs().len());
            class(&[2, coarse(digest.crcs().len() as u64), coarse(holes as u64)])
        }
        Err(_) => 3,
    }
}

/// The same of sketches.
fn sketches(body: &[u8]) -> u64 {
    let Some((&[first, count], body)) = body.split_first_chunk() else { return 0 };
    let slice = SLICE_BYTES as u64;
    let range = SliceRange::new(u64::from(first) * slice, u32::from(count) * slice as u32);
    let (Ok(range), Ok(reply)) = (range, SketchReply::decode(body)) else { return 1 };
    match Sketches::check(range, reply) {
        Ok(sketches) => {
            assert_eq!(sketches.sketches().len(), usize::from(count));
            class(&[2, coarse(count.into())])
        }
        Err(_) => 3,
    }
}

/// Whatever decodes encodes to something that decodes to the same.
fn decoded<T: Message + Default + PartialEq>(body: &[u8]) -> u64 {
    let Ok(message) = T::decode(body) else { return 0 };
    let again = T::decode(&message.encode_to_vec()[..]);
    assert!(again.is_ok_and(|again| again == message));
    1 + coarse(message.encoded_len() as u64)
}

fn seal(body: &mut [u8], header_bytes: usize) {
    let Some(crc_at) = header_bytes.checked_sub(4).filter(|_| body.len() >= header_bytes) else {
        return;
    };
    let crc = crc32c(&body[..crc_at]);
    body[crc_at..header_bytes].copy_from_slice(&crc.to_le_bytes());
}

/// The checksum of what names servers lies within it, and counts as zeros: where their number is,
/// how long it is without them and each of them, and where its checksum is.
fn seal_within(body: &mut [u8], (count_at, head, each): (usize, usize, usize), crc_at: usize) {
    let Some(&count) = body.get(count_at) else { return };
    let Some(sealed) = body.get_mut(..head + each * usize::from(count)) else { return };
    sealed[crc_at..crc_at + 4].fill(0);
    let crc = crc32c(sealed);
    sealed[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;
    use towpath_fastpath::control::SlotRun;
    use towpath_fastpath::wire::{Sender, tenant_number};
    use towpath_fastpath::{Clear, Helper, Rebuilt, RouteKind, Terms};

    fn with(selector: u8, body: &[u8]) -> Vec<u8> {
        [&[selector], body].concat()
    }

    /// What is asked and told of slices without their bytes.
    fn of_slices(chunk: ChunkId) -> Vec<(&'static str, Vec<u8>)> {
        let digest = DigestRequest { chunk: chunk.into(), offset: 8192, length: 12_288 };
        let crcs = vec![0x1413_1211, 0x2423_2221];
        let digested = DigestReply { version: 7, byte_len: 13_000, crcs, holes: vec![2] };
        let sketch = SketchRequest { chunk: chunk.into(), offset: 8192, length: 8192, seed: 5 };
        let sketches = vec![0x1413_1211, 0x2423_2221];
        let sketched = SketchReply { version: 7, byte_len: 16_384, sketches };
        vec![
            ("digest", with(5, &digest.encode_to_vec())),
            ("digested", with(10, &[&[2, 3], &digested.encode_to_vec()[..]].concat())),
            ("sketch", with(5, &sketch.encode_to_vec())),
            ("sketched", with(11, &[&[2, 2], &sketched.encode_to_vec()[..]].concat())),
        ]
    }

    fn route() -> Vec<u8> {
        let servers = ["10.0.0.1:7400", "10.0.0.2:7400", "[2001:db8::3]:7400"];
        let servers = servers.map(|server| server.parse().expect("an address"));
        Route::new(RouteKind::Tree, &servers).expect("a route").emit()
    }

    fn rebuild() -> Vec<u8> {
        let server = |number: u16| ([10, 0, 0, 1], 7400 + number).into();
        let helper = |number: u16| Helper {
            server: server(number),
            chunk: ChunkId(number.into()),
            version: 7,
            coefficient: 3,
        };
        let terms = Terms { version: Some(9), stamp: 0x1234, chain: 3 };
        let (chunk, offset, length) = (ChunkId(7), 4_096, 8_192);
        let target = Rebuilt { server: server(9), chunk, offset, length, terms };
        Rebuild::new(&[helper(1), helper(2)], target).expect("a plan").emit()
    }

    fn ways() -> [(&'static str, Vec<u8>); 2] {
        [("route", with(ROUTE, &route())), ("rebuild", with(REBUILD, &rebuild()))]
    }

    #[test]
    fn the_seeds_of_storage_wire_are_as_made() {
        let chunk = ChunkId(7);
        let sender = Sender { epoch: 3, tenant: tenant_number("web"), class: 2 };
        let terms = Terms { version: Some(9), stamp: 0x1234, chain: 3 };
        let write = WriteHeader { chunk, offset: 4096, length: 8192, sender, terms };
        let write = [&write.emit()[..], &[0x5a; 8]].concat();
        let read = ReadHeader { chunk, offset: 100, length: 5000, sender }.emit();
        let clear = |clear| ClearHeader { chunk, clear, sender, terms }.emit();
        let trim = clear(Clear::Trim { offset: 4096, byte_len: 100_000 });
        let zero = clear(Clear::Zero { offset: 5, byte_len: 10 });
        let truncate = clear(Clear::Truncate { byte_len: 9000 });
        let changed = ChangeReply { chunk_version: 7 }.emit();
        let header = towpath_fastpath::wire::ReadReplyHeader {
            chunk,
            offset: 4096,
            length: 100,
            chunk_bytes: 9000,
            chunk_version: 7,
        };
        let read_reply = [&header.emit()[..], &[0x5a; 4]].concat();
        let error = ErrorReply::NoSuchChunk { chunk }.emit();
        let raise = ChainRequest { chunk: chunk.into(), chain: 3, version: Some(9), stamp: 4 };
        let list = ListRequest::default().encode_to_vec();
        let push = towpath_rpc::Header {
            kind: towpath_rpc::Kind::Push,
            method: 12,
            status: towpath_rpc::Status::OK,
            inline: false,
            request: 0,
            body_len: 48,
            data_len: 0,
            timeout_us: 0,
        };
        let join = JoinRequest { tenant: "web".into(), runs_engine: true };
        let qos = QosReply { period_ns: 1_000_000_000, pool: -5, ..QosReply::default() };
        let runs = [(0, 5, 2), (2, 9, 1)];
        let runs = runs.map(|(first_slice, slot, count)| SlotRun { first_slice, slot, count });
        let located = LocateReply {
            resident: true,
            grant: 1,
            version: 7,
            byte_len: 9000,
            runs: runs.into(),
            more: false,
        };
        let made = [
            ("push", with(0, &push.emit())),
            ("rpc", with(0, &[1, 1, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0])),
            ("write", with(1, &write)),
            ("read", with(2, &read)),
            ("read_reply", with(3, &read_reply)),
            ("trim", with(8, &trim)),
            ("zero", with(8, &zero)),
            ("truncate", with(8, &truncate)),
            ("changed", with(9, &changed)),
            ("error", with(4, &error)),
            ("other_chain", with(4, &ErrorReply::OtherChain { chunk, chain: 3 }.emit())),
            ("chain", with(5, &raise.encode_to_vec())),
            ("list", with(5, &list)),
            ("join", with(5, &join.encode_to_vec())),
            ("qos", with(6, &qos.encode_to_vec())),
            (
                "locate",
                with(5, &LocateRequest { chunk: chunk.into(), first_slice: 3 }.encode_to_vec()),
            ),
            ("located", with(7, &[&[0], &located.encode_to_vec()[..]].concat())),
            ("info", with(6, &InfoReply::default().encode_to_vec())),
        ];
        let made: Vec<_> = made.into_iter().chain(of_slices(chunk)).chain(ways()).collect();
        seeds::check("storage_wire", &made);
    }
}
