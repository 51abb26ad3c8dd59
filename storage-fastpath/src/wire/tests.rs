//! Golden bytes both ways, each wrong field named, and hostile bytes.

use super::*;
use crate::change::{Clear, Terms};
use crate::limits::{
    CHAIN_MAX, CHANGE_REPLY_BYTES, ERROR_BYTES, IO_BYTES_MAX, IO_HEADER_BYTES, READ_REPLY_BYTES,
};
use crate::slice::ChunkId;
use towpath_base::Prng;
use towpath_rpc::Fate;

const CHUNK: ChunkId = ChunkId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);

const SENDER: Sender = Sender { epoch: 0x8182_8384_8586_8788, tenant: 0x9192_9394, class: 2 };

const WRITE: WriteHeader = WriteHeader {
    chunk: CHUNK,
    offset: 0x1fff,
    length: 0x1002,
    sender: SENDER,
    terms: Terms {
        version: Some(0xa1a2_a3a4_a5a6_a7a8),
        stamp: 0xb1b2_b3b4_b5b6_b7b8,
        chain: 0xc3_c2c1,
    },
};

#[rustfmt::skip]
const WRITE_GOLDEN: [u8; IO_HEADER_BYTES + 12] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0xff, 0x1f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x10, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0x00, 0x88, 0x87, 0x86, 0x85, 0x84, 0x83, 0x82, 0x81,
    0x94, 0x93, 0x92, 0x91, 0x02, 0x00, 0x00, 0x00, 0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1,
    0xb8, 0xb7, 0xb6, 0xb5, 0xb4, 0xb3, 0xb2, 0xb1, 0xc1, 0xc2, 0xc3, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x24, 0xaf, 0xb3, 0x36,
    0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34,
];

const WRITE_CRCS: [u32; 3] = [0x1413_1211, 0x2423_2221, 0x3433_3231];

const READ: ReadHeader =
    ReadHeader { chunk: CHUNK, offset: 0x0102_0304_0506_0708, length: 9, sender: SENDER };

#[rustfmt::skip]
const READ_GOLDEN: [u8; IO_HEADER_BYTES] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x88, 0x87, 0x86, 0x85, 0x84, 0x83, 0x82, 0x81,
    0x94, 0x93, 0x92, 0x91, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xb4, 0x04, 0xfd, 0x6f,
];

const ZERO: ClearHeader = ClearHeader {
    chunk: CHUNK,
    clear: Clear::Zero { offset: 0x0102_0304_0506_0708, byte_len: 0xf1f2_f3f4 },
    sender: Sender { epoch: 0, tenant: 0, class: 0 },
    terms: Terms { version: Some(7), stamp: 8, chain: 0 },
};

#[rustfmt::skip]
const ZERO_GOLDEN: [u8; IO_HEADER_BYTES] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0xf4, 0xf3, 0xf2, 0xf1, 0x00, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x05, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x7b, 0xde, 0x9e, 0x97,
];

const REPLY: ReadReplyHeader = ReadReplyHeader {
    chunk: CHUNK,
    offset: 4096,
    length: 1,
    chunk_bytes: 0x4142_4344_4546_4748,
    chunk_version: 0x5152_5354_5556_5758,
};

#[rustfmt::skip]
const REPLY_GOLDEN: [u8; READ_REPLY_BYTES + 4] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,
    0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, 0x00, 0x00, 0x00, 0x00, 0x6e, 0x75, 0x47, 0x44,
    0x61, 0x62, 0x63, 0x64,
];

const CHANGED: ChangeReply = ChangeReply { chunk_version: 0x5152_5354_5556_5758 };

#[rustfmt::skip]
const CHANGED_GOLDEN: [u8; CHANGE_REPLY_BYTES] = [
    0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, 0x02, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x88, 0x5b, 0x82, 0xf3,
];

const ERROR: ErrorReply = ErrorReply::WireCorrupt { chunk: CHUNK, slice: 0x7172 };

#[rustfmt::skip]
const ERROR_GOLDEN: [u8; ERROR_BYTES] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0x72, 0x71, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9a, 0x10, 0x48, 0x55,
];

#[test]
fn the_golden_bytes_are_emitted_and_parsed() {
    assert_eq!(WRITE.emit(), WRITE_GOLDEN[..IO_HEADER_BYTES]);
    assert_eq!(emit_crcs(&WRITE_CRCS)[..], WRITE_GOLDEN[IO_HEADER_BYTES..]);
    assert_eq!(WriteHeader::parse(&WRITE_GOLDEN), Ok((WRITE, WRITE_CRCS.to_vec())));
    assert_eq!(READ.emit(), READ_GOLDEN);
    assert_eq!(ReadHeader::parse(&READ_GOLDEN), Ok(READ));
    assert_eq!(ZERO.emit(), ZERO_GOLDEN);
    assert_eq!(ClearHeader::parse(&ZERO_GOLDEN), Ok(ZERO));
    assert_eq!(REPLY.emit(), REPLY_GOLDEN[..READ_REPLY_BYTES]);
    assert_eq!(ReadReplyHeader::parse(&REPLY_GOLDEN), Ok((REPLY, vec![0x6463_6261])));
    assert_eq!(CHANGED.emit(), CHANGED_GOLDEN);
    assert_eq!(ChangeReply::parse(&CHANGED_GOLDEN), Ok(CHANGED));
    assert_eq!(ERROR.emit(), ERROR_GOLDEN);
    assert_eq!(ErrorReply::parse(&ERROR_GOLDEN), Ok(ERROR));
}

#[test]
fn every_clear_survives_the_wire() {
    for clear in [
        Clear::Trim { offset: 1, byte_len: 1 },
        Clear::Zero { offset: 1 << 40, byte_len: u32::MAX.into() },
        Clear::Truncate { byte_len: 0 },
        Clear::Truncate { byte_len: u64::MAX },
    ] {
        for terms in [Terms::default(), WRITE.terms, ZERO.terms] {
            let header = ClearHeader { clear, terms, sender: SENDER, ..ZERO };
            assert_eq!(ClearHeader::parse(&header.emit()), Ok(header));
        }
    }
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
    assert_eq!(write(32, 1), WireError::Version(1));
    assert_eq!(write(34, 2), WireError::Kind { found: 2, expected: 1 });
    assert_eq!(write(36, 3), WireError::Reserved("a flag"));
    assert_eq!(write(39, 0x80), WireError::Reserved("a flag"));
    assert_eq!(write(36, 0), WireError::Reserved("a version without its flag"));
    for at in [53, 55, 80, 103, 104, 119, 120, 123] {
        assert_eq!(write(at, 1), WireError::Reserved("a reserved byte"));
    }
    assert_eq!(write(75, 1), WireError::Chain(0x01c3_c2c1));
    assert_eq!(write(79, 1), WireError::Chain(0x0100_0000_00c3_c2c1));
    assert_eq!(write(28, 2), WireError::CrcCount { expected: 3, found: 2 });
    assert_eq!(write(27, 0xff), WireError::Length(0xff00_1002));
    let read = |at: usize, byte: u8| {
        let bytes = resealed::<IO_HEADER_BYTES>(&READ_GOLDEN, |header| header[at] = byte);
        ReadHeader::parse(&bytes).expect_err("a wrong field")
    };
    assert_eq!(read(36, 1), WireError::Reserved("a term of a read"));
    assert_eq!(read(64, 1), WireError::Reserved("a term of a read"));
    assert_eq!(read(72, 1), WireError::Reserved("a term of a read"));
    let zero = |at: usize, byte: u8| {
        let bytes = resealed::<IO_HEADER_BYTES>(&ZERO_GOLDEN, |header| header[at] = byte);
        ClearHeader::parse(&bytes).expect_err("a wrong field")
    };
    assert_eq!(zero(34, 1), WireError::Kind { found: 1, expected: 4 });
    assert_eq!(zero(34, 6), WireError::Length(0xf1f2_f3f4));
    assert_eq!(zero(28, 1), WireError::CrcCount { expected: 0, found: 1 });
    let changed = |at: usize, byte: u8| {
        let bytes = resealed::<CHANGE_REPLY_BYTES>(&CHANGED_GOLDEN, |reply| reply[at] = byte);
        ChangeReply::parse(&bytes).expect_err("a wrong field")
    };
    assert_eq!(changed(8, 1), WireError::Version(1));
    assert_eq!(changed(10, 3), WireError::Kind { found: 3, expected: 7 });
    assert_eq!(changed(12, 1), WireError::Reserved("a flag"));
    assert_eq!(changed(19, 1), WireError::Reserved("a reserved byte"));
    let mut flipped = WRITE_GOLDEN;
    flipped[0] ^= 1;
    assert_eq!(WriteHeader::parse(&flipped), Err(WireError::HeaderCrc));
    let short = WireError::Short { found: 127, needed: 128 };
    assert_eq!(WriteHeader::parse(&WRITE_GOLDEN[..127]), Err(short));
    let cut = WireError::BodyLength { expected: 140, found: 139 };
    assert_eq!(WriteHeader::parse(&WRITE_GOLDEN[..139]), Err(cut));
    let longer = [&WRITE_GOLDEN[..], &[0]].concat();
    let long = WireError::BodyLength { expected: 140, found: 141 };
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
        ErrorReply::OtherVersion { version: u64::MAX },
        ErrorReply::OtherChain { chunk, chain: CHAIN_MAX },
    ] {
        assert_eq!(ErrorReply::parse(&error.emit()), Ok(error));
        let known = error != ErrorReply::CommitFailed;
        let fate = if known { Fate::DidNotHappen } else { Fate::Unknown };
        assert_eq!(error.fate(), fate, "{error}");
    }
    for code in 0..=9 {
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
    let mut parsed = [0; 6];
    for _ in 0..200_000 {
        let golden: &[u8] = match prng.below(6) {
            0 => &WRITE_GOLDEN,
            1 => &READ_GOLDEN,
            2 => &REPLY_GOLDEN,
            3 => &ZERO_GOLDEN,
            4 => &CHANGED_GOLDEN,
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
            bytes = match bytes.len() {
                CHANGE_REPLY_BYTES => resealed::<CHANGE_REPLY_BYTES>(&bytes, |_| {}),
                ERROR_BYTES => resealed::<ERROR_BYTES>(&bytes, |_| {}),
                READ_REPLY_BYTES..IO_HEADER_BYTES => resealed::<READ_REPLY_BYTES>(&bytes, |_| {}),
                IO_HEADER_BYTES.. => resealed::<IO_HEADER_BYTES>(&bytes, |_| {}),
                _ => bytes,
            };
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
        if let Ok(header) = ClearHeader::parse(&bytes) {
            assert_eq!(header.emit()[..], bytes);
            parsed[4] += 1;
        }
        if let Ok(reply) = ChangeReply::parse(&bytes) {
            assert_eq!(reply.emit()[..], bytes);
            parsed[5] += 1;
        }
        if let Ok(error) = ErrorReply::parse(&bytes) {
            assert_eq!(ErrorReply::parse(&error.emit()), Ok(error));
            parsed[3] += 1;
        }
    }
    assert!(parsed.iter().all(|&count| count > 5000), "too few mutants parsed: {parsed:?}");
}
