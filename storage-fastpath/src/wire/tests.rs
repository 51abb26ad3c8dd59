//! Golden bytes both ways, each wrong field named, and hostile bytes.

use super::*;
use crate::limits::{ERROR_BYTES, IO_BYTES_MAX, IO_HEADER_BYTES};
use crate::slice::ChunkId;
use towpath_base::Prng;
use towpath_rpc::Fate;

const CHUNK: ChunkId = ChunkId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);

const WRITE: WriteHeader = WriteHeader { chunk: CHUNK, offset: 0x1fff, length: 0x1002 };

#[rustfmt::skip]
const WRITE_GOLDEN: [u8; IO_HEADER_BYTES + 12] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0xff, 0x1f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x10, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x38, 0x66, 0xb1, 0x77,
    0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34,
];

const WRITE_CRCS: [u32; 3] = [0x1413_1211, 0x2423_2221, 0x3433_3231];

const READ: ReadHeader = ReadHeader { chunk: CHUNK, offset: 0x0102_0304_0506_0708, length: 9 };

#[rustfmt::skip]
const READ_GOLDEN: [u8; IO_HEADER_BYTES] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, 0x79, 0x82, 0xa2,
];

const REPLY: ReadReplyHeader = ReadReplyHeader {
    chunk: CHUNK,
    offset: 4096,
    length: 1,
    chunk_bytes: 0x4142_4344_4546_4748,
    chunk_version: 0x5152_5354_5556_5758,
};

#[rustfmt::skip]
const REPLY_GOLDEN: [u8; IO_HEADER_BYTES + 4] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,
    0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, 0x00, 0x00, 0x00, 0x00, 0xc3, 0x9e, 0x95, 0xa7,
    0x61, 0x62, 0x63, 0x64,
];

const ERROR: ErrorReply = ErrorReply::WireCorrupt { chunk: CHUNK, slice: 0x7172 };

#[rustfmt::skip]
const ERROR_GOLDEN: [u8; ERROR_BYTES] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0x72, 0x71, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xca, 0x6c, 0xda, 0x06,
];

#[test]
fn the_golden_bytes_are_emitted_and_parsed() {
    assert_eq!(WRITE.emit(), WRITE_GOLDEN[..IO_HEADER_BYTES]);
    assert_eq!(emit_crcs(&WRITE_CRCS), WRITE_GOLDEN[IO_HEADER_BYTES..]);
    assert_eq!(WriteHeader::parse(&WRITE_GOLDEN), Ok((WRITE, WRITE_CRCS.to_vec())));
    assert_eq!(READ.emit(), READ_GOLDEN);
    assert_eq!(ReadHeader::parse(&READ_GOLDEN), Ok(READ));
    assert_eq!(REPLY.emit(), REPLY_GOLDEN[..IO_HEADER_BYTES]);
    assert_eq!(ReadReplyHeader::parse(&REPLY_GOLDEN), Ok((REPLY, vec![0x6463_6261])));
    assert_eq!(ERROR.emit(), ERROR_GOLDEN);
    assert_eq!(ErrorReply::parse(&ERROR_GOLDEN), Ok(ERROR));
}

/// `bytes` with `change` made to the first `N`, and their checksum right again.
fn resealed<const N: usize>(bytes: &[u8], change: impl FnOnce(&mut [u8; N])) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let header = changed.first_chunk_mut::<N>().expect("a whole header");
    change(header);
    seal(header);
    changed
}

#[test]
fn each_wrong_field_is_named() {
    let write = |at: usize, byte: u8| {
        let bytes = resealed::<IO_HEADER_BYTES>(&WRITE_GOLDEN, |header| header[at] = byte);
        WriteHeader::parse(&bytes).expect_err("a wrong field")
    };
    assert_eq!(write(32, 2), WireError::Version(2));
    assert_eq!(write(34, 2), WireError::Kind { found: 2, expected: 1 });
    assert_eq!(write(36, 1), WireError::Reserved("a flag"));
    assert_eq!(write(39, 0x80), WireError::Reserved("a flag"));
    assert_eq!(write(59, 1), WireError::Reserved("a reserved byte"));
    assert_eq!(write(40, 1), WireError::Reserved("a capability word"));
    assert_eq!(write(55, 1), WireError::Reserved("a capability word"));
    assert_eq!(write(28, 2), WireError::CrcCount { expected: 3, found: 2 });
    assert_eq!(write(27, 0xff), WireError::Length(0xff00_1002));
    let mut flipped = WRITE_GOLDEN;
    flipped[0] ^= 1;
    assert_eq!(WriteHeader::parse(&flipped), Err(WireError::HeaderCrc));
    let short = WireError::Short { found: 63, needed: 64 };
    assert_eq!(WriteHeader::parse(&WRITE_GOLDEN[..63]), Err(short));
    let cut = WireError::BodyLength { expected: 76, found: 75 };
    assert_eq!(WriteHeader::parse(&WRITE_GOLDEN[..75]), Err(cut));
    let longer = [&WRITE_GOLDEN[..], &[0]].concat();
    let long = WireError::BodyLength { expected: 76, found: 77 };
    assert_eq!(WriteHeader::parse(&longer), Err(long));
    let far = resealed::<IO_HEADER_BYTES>(&READ_GOLDEN, |header| header[16..24].fill(0xff));
    let range = WireError::Range { offset: u64::MAX, length: 9 };
    assert_eq!(ReadHeader::parse(&far), Err(range));
    let counted = resealed::<IO_HEADER_BYTES>(&READ_GOLDEN, |header| header[28] = 1);
    let count = WireError::CrcCount { expected: 0, found: 1 };
    assert_eq!(ReadHeader::parse(&counted), Err(count));
    let none = resealed::<IO_HEADER_BYTES>(&READ_GOLDEN, |header| header[24] = 0);
    assert_eq!(ReadHeader::parse(&none), Err(WireError::Length(0)));
    let code = resealed::<ERROR_BYTES>(&ERROR_GOLDEN, |header| header[34] = 99);
    assert_eq!(ErrorReply::parse(&code), Err(WireError::Code(99)));
    let reserved = resealed::<ERROR_BYTES>(&ERROR_GOLDEN, |header| header[38] = 1);
    assert_eq!(ErrorReply::parse(&reserved), Err(WireError::Reserved("a reserved byte")));
}

#[test]
fn every_error_survives_the_wire_and_every_rule_has_its_number() {
    let chunk = CHUNK;
    for error in [
        ErrorReply::NoSuchChunk { chunk },
        ErrorReply::ChunkExists { chunk },
        ErrorReply::PastEnd { chunk, length: u64::MAX },
        ErrorReply::PastLimit { chunk, limit: 5 },
        ErrorReply::WireCorrupt { chunk, slice: u64::MAX },
        ErrorReply::SliceCorrupt { chunk, slice: 7 },
        ErrorReply::NoSpace,
        ErrorReply::TooManyChunks { max: 3 },
        ErrorReply::StoreFailed,
        ErrorReply::Media,
        ErrorReply::TooLong { max: 9 },
        ErrorReply::Busy,
        ErrorReply::BadRequest { why: Why::Limit },
        ErrorReply::CommitFailed,
    ] {
        assert_eq!(ErrorReply::parse(&error.emit()), Ok(error));
        let known = error != ErrorReply::CommitFailed;
        let fate = if known { Fate::DidNotHappen } else { Fate::Unknown };
        assert_eq!(error.fate(), fate, "{error}");
    }
    for code in 0..=7 {
        let bytes = resealed::<ERROR_BYTES>(&ERROR_GOLDEN, |header| {
            header[34] = 13;
            header[36] = code;
        });
        let Ok(ErrorReply::BadRequest { why }) = ErrorReply::parse(&bytes) else {
            panic!("rule {code}")
        };
        assert_eq!(why as u8, code);
    }
}

#[test]
fn hostile_bytes_are_refused_or_mean_what_they_say() {
    let seed = 31;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut parsed = [0; 4];
    for _ in 0..200_000 {
        let golden: &[u8] = match prng.below(4) {
            0 => &WRITE_GOLDEN,
            1 => &READ_GOLDEN,
            2 => &REPLY_GOLDEN,
            _ => &ERROR_GOLDEN,
        };
        let mut bytes = golden.to_vec();
        for _ in 0..prng.below(4) {
            let at = prng.below(bytes.len() as u64) as usize;
            bytes[at] = prng.next_u32() as u8;
        }
        if prng.chance(0.1) {
            bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize);
        }
        // Half of them with a right checksum, so that the checks behind it are reached.
        if prng.chance(0.5) {
            if bytes.len() == ERROR_BYTES {
                bytes = resealed::<ERROR_BYTES>(&bytes, |_| {});
            } else if bytes.len() >= IO_HEADER_BYTES {
                bytes = resealed::<IO_HEADER_BYTES>(&bytes, |_| {});
            }
        }
        if let Ok((header, crcs)) = WriteHeader::parse(&bytes) {
            assert_eq!([&header.emit()[..], &emit_crcs(&crcs)].concat(), bytes);
            parsed[0] += 1;
        }
        if let Ok(header) = ReadHeader::parse(&bytes) {
            assert_eq!(header.emit()[..], bytes);
            assert!(header.length as usize <= IO_BYTES_MAX);
            parsed[1] += 1;
        }
        if let Ok((header, crcs)) = ReadReplyHeader::parse(&bytes) {
            assert_eq!([&header.emit()[..], &emit_crcs(&crcs)].concat(), bytes);
            parsed[2] += 1;
        }
        if let Ok(error) = ErrorReply::parse(&bytes) {
            assert_eq!(ErrorReply::parse(&error.emit()), Ok(error));
            parsed[3] += 1;
        }
    }
    assert!(parsed.iter().all(|&count| count > 5000), "too few mutants parsed: {parsed:?}");
}
