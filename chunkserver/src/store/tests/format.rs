//! The bytes on the medium: golden records, damage of the log, and arbitrary input.

use super::*;
use crate::store::checkpoint::encode_checkpoint;
use crate::store::record::Op;
use crate::store::sim::Loss;
use crate::store::{
    Body, Extent, FILE_HEADER_BYTES, FileHeader, FileKind, Frame, HeaderError, OpenError,
    RecordError, parse_checkpoint, parse_record,
};

const FRAME: Frame =
    Frame { sequence: 0x0102, durable_sequence: 0x0101, generation: 3, previous_crc: 0xaabb_ccdd };

fn golden() -> Vec<u8> {
    let extents = [Extent { page: 7, count: 1 }, Extent { page: 9, count: 1 }];
    let op = Op::Write { offset: 4096, byte_len: 8192, extents: &extents, crcs: &[0x11, 0x22] };
    let mut bytes = Vec::new();
    op.encode(FRAME, ChunkId(0x1234), &mut bytes);
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
    let (record, len) = parse_record(&bytes).unwrap();
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
        assert!(parse_record(&bad).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        let error = parse_record(&bytes[..len]).unwrap_err();
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
        if let Ok((record, _)) = parse_record(&bytes)
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
    page[8] = 2;
    assert_eq!(FileHeader::parse(FileKind::Log, &page), Err(HeaderError::Crc));
    page[12..16].fill(0);
    let crc = towpath_base::crc::crc32c(&page);
    page[12..16].copy_from_slice(&crc.to_le_bytes());
    let error = FileHeader::parse(FileKind::Log, &page);
    assert_eq!(error, Err(HeaderError::Version { found: 2 }));
}

fn three_commits() -> (SimMedia, u64) {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    let middle = store.log.end;
    create(&mut store, ChunkId(2));
    create(&mut store, ChunkId(3));
    (media, middle)
}

#[test]
fn damage_in_the_middle_of_the_log_is_an_error_that_names_its_place() {
    for at in [0, 5, 12, 20, 70] {
        let (media, middle) = three_commits();
        media.flip_bit("log.00000001", middle + at);
        match Store::open(media.clone(), small_config()).err().expect("it is damaged") {
            OpenError::LogDamaged { file, offset, .. } => {
                assert_eq!((file.as_str(), offset), ("log.00000001", middle));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_torn_tail_is_dropped_and_its_bytes_are_never_taken_for_records_again() {
    let (media, middle) = three_commits();
    let end = middle + 2 * 72;
    media.flip_bit("log.00000001", end - 72 + 66);
    let mut store = open(&media);
    assert_eq!((store.stats().chunks, store.stats().torn_tail_bytes), (2, 70));
    assert!(store.stat(ChunkId(3)).is_none());
    create(&mut store, ChunkId(4));
    drop(store);
    media.power_on(Loss::Everything);
    let store = open(&media);
    assert_eq!(store.stats().chunks, 3);
    assert_eq!(store.stats().torn_tail_bytes, 0);
}

#[test]
fn a_sound_record_of_an_unknown_kind_or_out_of_place_is_never_dropped() {
    for kind in [9, 3] {
        let (media, middle) = three_commits();
        let file = media.open("log.00000001").unwrap();
        media.write_at(&file, middle + 2 * 72, &sealed_record(kind, &[])).unwrap();
        let error = Store::open(media, small_config()).err().expect("it is refused");
        let place = match error {
            OpenError::LogDamaged { offset, .. } if kind == 9 => offset,
            OpenError::Sequence { offset, .. } if kind == 3 => offset,
            other => panic!("{other}"),
        };
        assert_eq!(place, middle + 2 * 72);
    }
}

#[test]
fn after_a_clean_close_damage_of_the_last_change_is_noticed() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    let last = store.log.end;
    create(&mut store, ChunkId(2));
    store.close().unwrap();
    media.flip_bit("log.00000001", last + 33);
    let error = Store::open(media, small_config()).err().expect("it is damaged");
    assert!(matches!(error, OpenError::LogDamaged { offset, .. } if offset == last), "{error}");
}

#[test]
fn damaged_or_missing_files_are_named() {
    let with_data = || {
        let media = SimMedia::new(1);
        let mut store = open(&media);
        create(&mut store, ChunkId(1));
        write(&mut store, ChunkId(1), 0, b"x");
        drop(store);
        media
    };
    let error = |media: &SimMedia| {
        Store::open(media.clone(), small_config()).err().expect("it is damaged").to_string()
    };
    for (file, at) in [("map.00000001", 5000), ("log.00000001", 17), ("data.0000", 3)] {
        let media = with_data();
        media.flip_bit(file, at.min(media.content(file).unwrap().len() as u64 - 1));
        assert!(error(&media).contains(file), "{}", error(&media));
        let media = with_data();
        media.remove(file).unwrap();
        let said = error(&media);
        assert!(said.contains(file) || said.contains("no map"), "{said}");
    }
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
