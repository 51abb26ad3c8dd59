//! The bytes on the medium: golden records, damage of the log, and arbitrary input.

use super::*;
use crate::store::bytes::u32_at;
use crate::store::checkpoint::encode_checkpoint;
use crate::store::record::Op;
use crate::store::{
    Body, Extent, FILE_HEADER_BYTES, FileHeader, FileKind, Frame, HeaderError, LogKey, RecordError,
    parse_checkpoint, parse_record,
};

const FRAME: Frame =
    Frame { sequence: 0x0102, durable_sequence: 0x0101, generation: 3, previous_crc: 0xaabb_ccdd };

fn golden() -> Vec<u8> {
    let extents = [Extent { page: 7, count: 1 }, Extent { page: 9, count: 1 }];
    let op = Op::Write { offset: 4096, byte_len: 8192, extents: &extents, crcs: &[0x11, 0x22] };
    let mut bytes = Vec::new();
    op.encode(LogKey::PLAIN, FRAME, ChunkId(0x1234), &mut bytes);
    assert_eq!(bytes.len(), op.encoded_len());
    bytes
}

#[test]
fn a_write_record_has_its_golden_bytes() {
    let bytes = golden();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(hex(&bytes[..4]), "54574c52");
    assert_eq!(
        hex(&bytes[12..64]),
        "30000000020100000000000001010000000000003412000000000000\
         0000000000000000ddccbbaa020000000300000000000000"
    );
    assert_eq!(
        hex(&bytes[64..]),
        "0010000000000000002000000000000002000000020000000700000001000000\
         09000000010000001100000022000000"
    );
    let (record, len) = parse_record(&bytes, LogKey::PLAIN).unwrap();
    assert_eq!((len, record.frame, record.chunk), (bytes.len(), FRAME, ChunkId(0x1234)));
    let Body::Write(write) = record.body else { panic!("a write") };
    assert_eq!(write.slices().collect::<Vec<_>>(), [(7, 0x11), (9, 0x22)]);
}

#[test]
fn no_flipped_bit_and_no_cut_passes_for_a_record() {
    let bytes = golden();
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(parse_record(&bad, LogKey::PLAIN).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        let error = parse_record(&bytes[..len], LogKey::PLAIN).unwrap_err();
        assert!(matches!(error, RecordError::Short { .. }), "{len}: {error}");
    }
}

/// Puts right checksums over a body of any bytes, so that the parser looks at its fields.
fn sealed_record(kind: u8, body: &[u8]) -> Vec<u8> {
    use towpath_base::crc::crc32c;
    let mut bytes = golden()[..64].to_vec();
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let body_crc = crc32c(&bytes[64..]);
    bytes[8..12].copy_from_slice(&body_crc.to_le_bytes());
    let body_len = bytes.len() as u32 - 64;
    bytes[12..16].copy_from_slice(&body_len.to_le_bytes());
    bytes[52] = kind;
    let header_crc = crc32c(&bytes[8..64]);
    bytes[4..8].copy_from_slice(&header_crc.to_le_bytes());
    bytes
}

#[test]
fn arbitrary_bodies_under_right_checksums_never_panic() {
    let mut prng = Prng::new(11);
    let sound = golden()[64..].to_vec();
    for _ in 0..20_000 {
        let mut body = sound.clone();
        for _ in 0..1 + prng.below(4) {
            let at = prng.below(body.len() as u64) as usize;
            body[at] = [0, 1, 0x10, 0x7f, 0xff][prng.below(5) as usize];
        }
        body.truncate(prng.below(80) as usize);
        let bytes = sealed_record(prng.below(6) as u8, &body);
        if let Ok((record, _)) = parse_record(&bytes, LogKey::PLAIN)
            && let Body::Write(write) = record.body
        {
            assert_eq!(write.slices().count() as u64, write.span().count());
        }
    }
}

fn sound_checkpoint() -> Vec<u8> {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    for id in 1..4 {
        create(&mut store, ChunkId(id));
        write(&mut store, ChunkId(id), u64::from(id as u8) * 5000, &[1; 9000]);
    }
    let header = FileHeader { number: 4, next_sequence: 9, ..store.identity };
    let bytes = encode_checkpoint(header, &store.map);
    assert_eq!(parse_checkpoint(&bytes).unwrap().map, store.map);
    bytes
}

#[test]
fn a_checkpoint_survives_its_bytes_and_arbitrary_ones_never_panic() {
    let sound = sound_checkpoint();
    let mut prng = Prng::new(5);
    for _ in 0..3000 {
        let mut bytes = sound.clone();
        for _ in 0..1 + prng.below(3) {
            let at =
                FILE_HEADER_BYTES as u64 + prng.below((sound.len() - FILE_HEADER_BYTES) as u64);
            bytes[at as usize] = [0, 1, 0x10, 0x7f, 0xff][prng.below(5) as usize];
        }
        if bytes != sound {
            assert!(parse_checkpoint(&bytes).is_err());
        }
        // Again with right checksums, so that the fields are looked at.
        let header = FileHeader::parse(FileKind::Map, &sound).unwrap();
        let body_crc = towpath_base::crc::crc32c(&bytes[FILE_HEADER_BYTES..]);
        let chunk_count = prng.below(5);
        let header = FileHeader { body_crc, chunk_count, ..header };
        bytes[..FILE_HEADER_BYTES].copy_from_slice(&header.emit());
        let _ = parse_checkpoint(&bytes);
    }
    for len in 0..sound.len() {
        assert!(parse_checkpoint(&sound[..len]).is_err());
    }
}

#[test]
fn another_format_version_is_told_from_damage() {
    let header = FileHeader::new(FileKind::Log, 1, 2, 32);
    let mut page = header.emit();
    assert_eq!(FileHeader::parse(FileKind::Log, &page), Ok(header));
    assert!(matches!(FileHeader::parse(FileKind::Map, &page), Err(HeaderError::Magic(_))));
    page[8] = 3;
    assert_eq!(FileHeader::parse(FileKind::Log, &page), Err(HeaderError::Crc));
    page[12..16].fill(0);
    let crc = towpath_base::crc::crc32c(&page);
    page[12..16].copy_from_slice(&crc.to_le_bytes());
    let error = FileHeader::parse(FileKind::Log, &page);
    assert_eq!(error, Err(HeaderError::Version { found: 3 }));
}

#[test]
fn checksums_that_a_client_chose_are_never_taken_for_the_header_of_a_record() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    let at = store.log.end;
    // What a client knows: generations and versions are small numbers. It makes slices of which
    // each has the checksum it wants, since four bytes of a slice force any.
    let frame = Frame { sequence: 9, durable_sequence: 8, generation: 1, previous_crc: 0 };
    let mut forged = Vec::new();
    Op::Seal.encode(LogKey::PLAIN, frame, ChunkId::default(), &mut forged);
    let crcs: Vec<u32> = forged.chunks(4).map(|part| u32_at(part, 0)).cycle().take(256).collect();
    let bytes = vec![1; 256 * SLICE_BYTES];
    let config = small_config().capacity_bytes(u64::MAX);
    drop(store);
    let mut store = Store::open(media.clone(), config).expect("it is sound");
    let data = [&bytes[..]];
    let write = Write { chunk: ChunkId(1), offset: 0, data: &data, crcs: &crcs, verified: true };
    store.stage_write(&write).unwrap();
    store.commit().unwrap();
    assert!(store.log.end - at > 1024, "the checksums fill sectors of their own");
    drop(store);
    // A power cut in the middle of that commit: the sector of the header did not make it.
    let file = media.open("log.00000001").unwrap();
    for copy in [0, 64 << 10] {
        media.write_at(&file, copy + at, &[0; 64]).unwrap();
    }
    let store = open(&media);
    assert_eq!(store.stat(ChunkId(1)).expect("it was durable").byte_len, 0);
}

#[test]
fn a_log_and_a_map_of_version_1_are_read_and_the_next_ones_are_of_version_2() {
    let media = SimMedia::new(1);
    let header =
        FileHeader { version: 1, next_sequence: 1, ..FileHeader::new(FileKind::Log, 77, 1, 32) };
    let mut log = header.emit().to_vec();
    let mut frame = Frame { sequence: 1, durable_sequence: 0, generation: 1, previous_crc: 0 };
    let op = Op::Create { limit_bytes: 1 << 40, unfinished: false, resident: false };
    frame.previous_crc = op.encode(LogKey::PLAIN, frame, ChunkId(1), &mut log);
    frame.sequence = 2;
    op.encode(LogKey::PLAIN, frame, ChunkId(2), &mut log);
    log.resize(64 << 10, 0);
    let map = encode_checkpoint(
        FileHeader { kind: FileKind::Map, ..header },
        &crate::store::map::ChunkMap::default(),
    );
    for (name, bytes) in [("log.00000001", &log), ("map.00000001", &map)] {
        let file = media.create(name).unwrap();
        media.write_at(&file, 0, bytes).unwrap();
    }
    let mut store = open(&media);
    assert_eq!(store.stats().chunks, 2);
    write(&mut store, ChunkId(1), 0, b"x");
    assert_eq!(store.stats().checkpoints, 1);
    write(&mut store, ChunkId(2), 0, b"y");
    drop(store);
    let log = media.content("log.00000002").unwrap();
    assert_eq!(FileHeader::parse(FileKind::Log, &log).unwrap().version, 2);
    let mut store = open(&media);
    assert_eq!(read(&mut store, ChunkId(1), 0, 1).unwrap(), b"x");
    assert_eq!(read(&mut store, ChunkId(2), 0, 1).unwrap(), b"y");
}

#[test]
fn restart_reads_the_log_since_the_checkpoint_and_not_what_came_before() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    for turn in 0..2000u32 {
        write(&mut store, ChunkId(1), 0, &turn.to_le_bytes());
    }
    let stats = store.stats();
    assert!(stats.checkpoints >= 4 && stats.log_bytes <= 40 << 10, "the log is bounded");
    drop(store);
    let mut store = open(&media);
    assert!(store.stats().records_replayed < 400);
    assert_eq!(read(&mut store, ChunkId(1), 0, 4).unwrap(), 1999u32.to_le_bytes());
}
