//! Dumps of stores that are whole, damaged, and none.

use towpath_disk::PageNumber;

use super::*;
use crate::store::core::{DumpRow, DumpWanted, dump_core};

fn rows(medium: &Medium, wanted: DumpWanted, max: usize) -> Result<Vec<DumpRow>, OpenError> {
    let mut disk = medium.open(32).expect("nobody has it");
    let mut rows = Vec::new();
    let result = dump_core(&mut disk, wanted, &mut |row| {
        rows.push(row);
        rows.len() < max
    });
    result.map(|()| rows)
}

fn filled(seed: u64) -> Medium {
    let medium = medium(seed);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, ChunkId(1));
    create(&mut core, ChunkId(2));
    write(&mut core, ChunkId(2), 5000, &[7; 10_000]);
    delete(&mut core, ChunkId(1));
    medium
}

#[test]
fn a_dump_has_superblocks_records_chunks_and_slices_and_changes_nothing() {
    let medium = filled(1);
    let before = medium.events();
    let all = rows(&medium, DumpWanted { log: true, slices: None }, 1000).expect("it is whole");
    let generations: Vec<_> = all
        .iter()
        .filter_map(|row| match row {
            DumpRow::Superblock { generation, page_count: PAGES, .. } => Some(*generation),
            _ => None,
        })
        .collect();
    assert_eq!(generations, [2, 1]);
    let first = CONFIG.first_sequence();
    let records: Vec<_> = all
        .iter()
        .filter_map(|row| match row {
            DumpRow::Record { sequence, chunk, kind, at, byte_len, .. } => {
                Some((*sequence - first, chunk.0, *kind, *at, *byte_len))
            }
            _ => None,
        })
        .collect();
    assert_eq!(records[0], (0, 1, "create", 1 << 40, 0));
    assert_eq!(records[2..4], [(2, 2, "write", 5000, 10_000), (3, 1, "delete", 0, 0)]);
    let Some(DumpRow::Chunk(stat, slices)) = all.last() else { panic!("{all:?}") };
    let found = (stat.chunk, stat.byte_len, stat.version - first, *slices);
    assert_eq!(found, (ChunkId(2), 15_000, 2, 3));
    let wanted = DumpWanted { log: false, slices: Some(ChunkId(2)) };
    let all = rows(&medium, wanted, 1000).expect("it is whole");
    let slices = all.iter().filter_map(|row| match row {
        DumpRow::Slice { slice, page: Some(_), offset: Some(offset), .. } => {
            Some((*slice, *offset))
        }
        _ => None,
    });
    let slices: Vec<_> = slices.collect();
    assert_eq!(slices.iter().map(|(slice, _)| *slice).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(slices.iter().all(|(_, offset)| offset.is_multiple_of(4096)));
    assert_eq!(medium.events(), before, "nothing was written");
    let mut core = open(&medium).expect("it is as it was");
    assert_eq!(read(&mut core, ChunkId(2), 5000, 10_000).expect("it is there"), [7; 10_000]);
}

#[test]
fn a_dump_ends_where_no_more_is_wanted() {
    let medium = filled(2);
    for max in 1..8 {
        let found = rows(&medium, DumpWanted { log: true, slices: None }, max).expect("whole");
        assert!(found.len() <= max, "{found:?}");
    }
}

#[test]
fn whatever_is_on_a_disk_a_dump_ends_and_says_what_it_can() {
    let none = rows(&medium(3), DumpWanted::default(), 10);
    assert!(matches!(none, Err(OpenError::NoStore)), "{none:?}");
    let mut prng = Prng::new(4);
    for seed in 0..200 {
        println!("seed {seed}");
        let medium = filled(seed);
        for _ in 0..1 + prng.below(40) {
            match prng.below(3) {
                0 => medium.spoil(PageNumber(prng.below(PAGES))),
                _ => medium.flip_bit(prng.below(PAGES * 4096)),
            }
        }
        for wanted in [
            DumpWanted { log: true, slices: None },
            DumpWanted { log: true, slices: Some(ChunkId(2)) },
        ] {
            let _ = rows(&medium, wanted, 500);
        }
    }
}

#[test]
fn a_dump_tells_chain_versions() {
    let medium = medium(3);
    let mut core = open(&medium).expect("a new store");
    let chunk = ChunkId(1);
    assert!(made(&ask(&mut core, on_chain(4, create_request(chunk)))).is_some());
    let raise = Request::Chain { chunk, chain: 5, version: None, stamp: 0 };
    assert!(made(&ask(&mut core, raise)).is_some());
    drop(core);
    let all = rows(&medium, DumpWanted { log: true, slices: None }, 1000).expect("it is whole");
    let raises = |row: &&DumpRow| matches!(row, DumpRow::Record { kind: "chain", at: 5, .. });
    assert_eq!(all.iter().filter(raises).count(), 1);
    let Some(DumpRow::Chunk(stat, _)) = all.last() else { panic!("{all:?}") };
    assert_eq!(stat.chain, 5);
}
