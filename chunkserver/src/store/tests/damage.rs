//! Damage of each file in turn: the store opens, says what is damaged, and serves nothing wrong.

use super::*;
use crate::store::{DamageKind, OpenError};

const LOG: &str = "log.00000001";
const LOG_BYTES: u64 = 64 << 10;

/// Three creates, each committed; where the second one begins in a copy of the log.
fn three_commits() -> (SimMedia, u64) {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    let middle = store.log.end;
    create(&mut store, ChunkId(2));
    create(&mut store, ChunkId(3));
    (media, middle)
}

fn kinds(store: &Store<SimMedia>) -> Vec<&'static str> {
    store.damage().iter().map(|damage| damage.kind.name()).collect()
}

fn put(media: &SimMedia, file: &str, at: u64, bytes: &[u8]) {
    let file = media.open(file).expect("it is there");
    media.write_at(&file, at, bytes).expect("it is written");
}

#[test]
fn damage_of_one_copy_of_the_log_loses_nothing_and_is_said_and_mended() {
    for at in [0, 5, 12, 20, 70] {
        for copy in [0, LOG_BYTES] {
            let (media, middle) = three_commits();
            media.flip_bit(LOG, copy + middle + at);
            let store = open(&media);
            assert_eq!(store.stats().chunks, 3);
            let said: Vec<_> =
                store.damage().iter().map(|damage| (damage.offset, &damage.kind)).collect();
            let expected = DamageKind::LogCopy { byte_len: 72, records: 1 };
            assert_eq!(said, [(copy + middle, &expected)]);
            drop(store);
            assert_eq!(kinds(&open(&media)), [""; 0], "it was written again");
        }
    }
}

#[test]
fn damage_of_both_copies_of_the_log_is_said_with_its_place_and_its_chunk_and_no_file_is_changed() {
    for (at, is_named) in [(5, false), (12, false), (70, true)] {
        let (media, middle) = three_commits();
        media.flip_bit(LOG, middle + at);
        media.flip_bit(LOG, LOG_BYTES + middle + at);
        let before = media.content(LOG);
        let mut store = open(&media);
        let DamageKind::LostRecords(lost) = &store.damage()[0].kind else { panic!("lost") };
        assert_eq!((lost.first, lost.last, lost.offset), (2, 2, middle));
        assert_eq!((lost.end, lost.count()), (middle + 72, 1));
        assert_eq!(lost.named, if is_named { vec![(2, ChunkId(2))] } else { Vec::new() });
        // The third create is whole and needs nothing that is lost.
        assert!(!store.stat(ChunkId(3)).expect("its record is whole").suspect);
        assert!(store.stat(ChunkId(2)).expect("nobody says that it is not there").suspect);
        assert_eq!(store.stat(ChunkId(1)).expect("it was there").suspect, !is_named);
        assert!(matches!(read(&mut store, ChunkId(2), 0, 1), Err(ReadError::Suspect(_))));
        assert_eq!(store.stat(ChunkId(9)).is_some(), !is_named, "it may have been made");
        let refused = store.stage_create(ChunkId(4), None);
        assert!(matches!(refused, Err(CreateError::Refused(Refused::Damaged))));
        store.close().expect("nothing is to be done");
        assert_eq!(media.content(LOG), before);
    }
}

#[test]
fn a_torn_tail_is_dropped_and_its_bytes_are_never_taken_for_records_again() {
    use crate::store::sim::Loss;
    let (media, middle) = three_commits();
    let end = middle + 2 * 72;
    for copy in [0, LOG_BYTES] {
        media.flip_bit(LOG, copy + end - 72 + 66);
    }
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
fn after_a_clean_close_damage_of_the_last_change_is_noticed() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    let last = store.log.end;
    create(&mut store, ChunkId(2));
    store.close().unwrap();
    for copy in [0, LOG_BYTES] {
        media.flip_bit(LOG, copy + last + 33);
    }
    assert_eq!(kinds(&open(&media)), ["lost-records"]);
}

#[test]
fn damage_of_headers_is_known_from_elsewhere_and_mended() {
    let with_data = || {
        let media = SimMedia::new(1);
        let mut store = open(&media);
        create(&mut store, ChunkId(1));
        write(&mut store, ChunkId(1), 0, b"x");
        media
    };
    for (file, at, kind) in [
        (LOG, 17, "log-header"),
        (LOG, 4000, "log-header"),
        (LOG, LOG_BYTES + 17, "log-header"),
        ("data.0000", 3, "segment-header"),
        ("data.0000", 4000, "segment-header"),
        ("map.00000001", 3, "map"),
        ("map.00000001", 4000, "map"),
    ] {
        let media = with_data();
        media.flip_bit(file, at);
        let mut store = open(&media);
        assert_eq!(kinds(&store), [kind], "{file} at {at}");
        assert_eq!(read(&mut store, ChunkId(1), 0, 1).unwrap(), b"x");
        drop(store);
        let mut store = open(&media);
        assert_eq!(kinds(&store), [""; 0], "{file} at {at} is mended");
        assert_eq!(read(&mut store, ChunkId(1), 0, 1).unwrap(), b"x");
    }
}

#[test]
fn a_missing_segment_takes_only_its_slices_with_it_and_its_place_stays_empty() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    for id in 1..=3 {
        create(&mut store, ChunkId(id));
        write(&mut store, ChunkId(id), 0, &[id as u8; 20 * 4096]);
    }
    drop(store);
    media.remove("data.0001").unwrap();
    let mut store = open(&media);
    let DamageKind::Segment { slices, .. } = store.damage()[0].kind else { panic!("a segment") };
    let said = format!("data.0001: the file is missing; {slices} slices in it cannot be read");
    assert_eq!((store.damage().len(), store.damage()[0].to_string()), (1, said));
    let mut whole = 0;
    for id in 1..=3 {
        for slice in 0..20 {
            match read(&mut store, ChunkId(id), slice * 4096, 4096) {
                Ok(bytes) => {
                    assert_eq!(bytes, [id as u8; 4096]);
                    whole += 1;
                }
                Err(ReadError::Media(error)) => assert_eq!(error.file, "data.0001"),
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(whole, 60 - slices);
    // Changes go on, on pages of other segments; overwriting makes slices whole again.
    let free = free_bytes(&store);
    write(&mut store, ChunkId(3), 0, &[9; 4096]);
    assert_eq!(free_bytes(&store), free - 4096, "no page of the missing one comes back");
    for id in 1..=3 {
        store.stage_delete(ChunkId(id)).unwrap();
    }
    store.commit().unwrap();
    create(&mut store, ChunkId(4));
    write(&mut store, ChunkId(4), 0, &[4; 28 * 4096]);
    assert_eq!(read(&mut store, ChunkId(4), 0, 28 * 4096).unwrap(), [4; 28 * 4096]);
    assert!(media.content("data.0001").is_none());
}

#[test]
fn a_segment_of_another_place_is_neither_used_nor_written_to() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    write(&mut store, ChunkId(1), 0, &[1; 40 * 4096]);
    drop(store);
    for (from, to) in [("data.0000", "x"), ("data.0001", "data.0000"), ("x", "data.0001")] {
        media.rename(from, to).unwrap();
    }
    let before = (media.content("data.0000"), media.content("data.0001"));
    let mut store = open(&media);
    assert_eq!(kinds(&store), ["segment", "segment"]);
    assert!(matches!(read(&mut store, ChunkId(1), 0, 4096), Err(ReadError::Media(_))));
    create(&mut store, ChunkId(2));
    write(&mut store, ChunkId(2), 0, b"y");
    assert_eq!((media.content("data.0000"), media.content("data.0001")), before);
}

#[test]
fn a_stray_map_is_set_aside_and_named_and_never_written_over() {
    for bytes in [vec![0; 8192], vec![7; 100], Vec::new()] {
        let (media, _) = three_commits();
        let file = media.create("map.00000002").unwrap();
        media.write_at(&file, 0, &bytes).unwrap();
        let mut store = open(&media);
        assert_eq!(kinds(&store), ["stray-map"]);
        assert_eq!(store.stats().chunks, 3);
        for turn in 0..4u8 {
            write(&mut store, ChunkId(1), 0, &[turn]);
            store.log.wants_checkpoint = true;
            store.commit().unwrap();
        }
        drop(store);
        assert_eq!(media.content("damaged.map.00000002"), Some(bytes));
        let store = open(&media);
        assert_eq!((store.stats().chunks, kinds(&store)), (3, Vec::new()));
    }
}

#[test]
fn without_its_log_a_map_is_no_truth_and_the_store_says_so() {
    let (media, _) = three_commits();
    media.remove(LOG).unwrap();
    let mut store = open(&media);
    assert_eq!(kinds(&store), ["log"]);
    assert!(matches!(read(&mut store, ChunkId(1), 0, 1), Err(ReadError::Suspect(_))));
    assert!(store.stat(ChunkId(1)).expect("it may have been made").suspect);
    assert!(store.stage_create(ChunkId(1), None).is_err());
    store.close().unwrap();
    assert!(media.content(LOG).is_none());
}

#[test]
fn a_map_of_which_nothing_else_tells_is_an_error_that_names_it() {
    let (media, _) = three_commits();
    let mut store = open(&media);
    store.log.wants_checkpoint = true;
    store.commit().unwrap();
    drop(store);
    media.remove("map.00000001").unwrap();
    media.remove(LOG).unwrap();
    media.flip_bit("map.00000002", 4100);
    let error = Store::open(media.clone(), small_config()).err().expect("nothing is known");
    assert!(matches!(&error, OpenError::Checkpoint { file, .. } if file == "map.00000002"));
    put(&media, "map.00000002", 0, &[0; 4096]);
    assert!(Store::open(media, small_config()).is_err());
}

#[test]
fn a_damaged_map_is_known_from_the_one_before_on_a_full_medium_too() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    for id in 1..200 {
        create(&mut store, ChunkId(id));
    }
    store.log.wants_checkpoint = true;
    store.commit().unwrap();
    create(&mut store, ChunkId(200));
    drop(store);
    media.flip_bit("map.00000002", 5000);
    media.limit_space(media.used_bytes());
    let store = open(&media);
    assert_eq!((kinds(&store), store.stats().chunks), (vec!["map"], 200));
    drop(store);
    assert_eq!(kinds(&open(&media)), [""; 0]);
}

#[test]
fn records_lost_here_and_there_are_all_told_and_the_others_kept() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    let places: Vec<_> = (0..200)
        .map(|id| {
            let at = store.log.end;
            create(&mut store, ChunkId(id));
            at
        })
        .collect();
    drop(store);
    media.remove("map.00000001").unwrap();
    for (_, at) in places.iter().enumerate().filter(|(id, _)| id % 2 == 0) {
        for copy in [0, LOG_BYTES] {
            media.flip_bit(LOG, copy + at + 68);
        }
    }
    let store = open(&media);
    let lost = kinds(&store).iter().filter(|kind| **kind == "lost-records").count();
    assert_eq!((lost, kinds(&store).contains(&"map"), store.is_damaged()), (100, true, true));
    let suspect = |id: u128| store.stat(ChunkId(id)).expect("it was made").suspect;
    assert!((0..200).all(|id| suspect(id) == (id % 2 == 0)), "each is known by its header");
}

/// Whether a store whose server was killed before it wrote a mark says after `harm` of its log that
/// changes may be lost.
fn is_lossy_after(harm: impl Fn(&SimMedia)) -> bool {
    let (media, _) = three_commits();
    harm(&media);
    let store = open(&media);
    assert!(store.is_damaged() || store.stats().chunks == 3, "{:?}", store.damage());
    store.is_damaged()
}

#[test]
fn a_log_that_is_cut_short_is_said_to_have_lost_changes() {
    // The last one leaves the first copy whole.
    for (byte_len, is_lossy) in [0, 1, 2, 4096, 4096 + 72, 8192 - 8, LOG_BYTES - 1]
        .map(|len| (len, true))
        .into_iter()
        .chain([(LOG_BYTES, false)])
    {
        let cut = |media: &SimMedia| {
            let file = media.open(LOG).expect("it is there");
            media.set_len(&file, byte_len).expect("it is cut");
        };
        assert_eq!(is_lossy_after(cut), is_lossy, "{byte_len} bytes are left");
    }
}

#[test]
fn a_log_that_holds_nothing_of_its_own_is_said_to_have_lost_changes() {
    let len = 2 * LOG_BYTES as usize;
    for bytes in [vec![0; len], random_bytes(&mut Prng::new(1), len)] {
        assert!(is_lossy_after(|media| put(media, LOG, 0, &bytes)));
    }
    assert!(is_lossy_after(|media| {
        let map = media.content("map.00000001").expect("it is there");
        put(media, LOG, 0, &vec![0; len]);
        put(media, LOG, 0, &map);
    }));
}

#[test]
fn a_log_that_cannot_be_read_where_its_next_record_is_due_is_said_to_have_lost_changes() {
    let spoil = |copies: &'static [u64], page: u64| {
        move |media: &SimMedia| copies.iter().for_each(|copy| media.spoil(LOG, copy + page * 4096))
    };
    assert!(is_lossy_after(spoil(&[0, LOG_BYTES], 1)));
    assert!(!is_lossy_after(spoil(&[0], 1)), "the other copy is whole");
    assert!(!is_lossy_after(spoil(&[0, LOG_BYTES], 2)), "no record is due there");
}

#[test]
fn a_missing_map_that_a_full_medium_has_no_room_for_is_an_error_that_says_so() {
    let (media, _) = three_commits();
    media.remove("map.00000001").expect("it is there");
    let _ = media.remove("map.tmp");
    media.limit_space(media.used_bytes());
    match Store::open(media.clone(), small_config()) {
        Err(OpenError::Media(error)) => assert!(error.is_full(), "{error}"),
        other => panic!("{:?}", other.err()),
    }
    media.limit_space(u64::MAX);
    assert_eq!(open(&media).stats().chunks, 3);
}
