//! Slices that go to the disk before their write is asked for.

use super::*;
use crate::store::error::ChangeError;
use towpath_disk::What;

const CHUNK: ChunkId = ChunkId(5);

fn pattern(slices: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; slices * SLICE_BYTES];
    Prng::new(seed).fill(&mut bytes);
    bytes
}

fn stage(core: &mut Core, asker: usize, stage: u64, first_slice: u64, bytes: &[u8]) -> bool {
    stage_for(core, (asker, 0), stage, first_slice, bytes)
}

fn stage_for(
    core: &mut Core,
    (asker, owner): (usize, usize),
    stage: u64,
    first_slice: u64,
    bytes: &[u8],
) -> bool {
    let data = vec![bytes.to_vec()];
    let request = Request::Stage { stage, owner, chunk: CHUNK, first_slice, data };
    core.submit(Client { asker, token: 1 }, request);
    let Some((_, Completion { reply, .. })) = core.answers.pop() else { panic!("no answer") };
    matches!(reply, Reply::Stage { is_staged: true, .. })
}

fn finish(core: &mut Core, stage: u64, bytes: &[u8], left: &[u8]) -> Result<Ticket, ChangeError> {
    let crcs = writer_crcs(CHUNK, 0, bytes);
    let (data, staged, terms) = (vec![left.to_vec()], Some(stage), Terms::default());
    let (chunk, offset) = (CHUNK, 0);
    let write = Request::Write { chunk, offset, data, crcs, staged, verified: true, terms };
    let Reply::Write { result, .. } = ask(core, write) else { panic!("another answer") };
    result
}

#[test]
fn a_write_has_what_was_staged_for_it_and_nothing_before_it_is_asked_for() {
    let medium = medium(1);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, CHUNK);
    settle(&mut core);
    let bytes = pattern(8, 1);
    let part = |first: usize, end: usize| &bytes[first * SLICE_BYTES..end * SLICE_BYTES];
    assert!(stage(&mut core, 9, 7, 5, part(5, 7)));
    assert!(stage(&mut core, 9, 7, 1, part(1, 3)));
    assert!(!stage(&mut core, 9, 7, 2, part(2, 4)), "one of them is there");
    settle(&mut core);
    assert_eq!((core.early_slices(), core.stat(CHUNK).expect("it is there").byte_len), (4, 0));
    let rest = [part(0, 1), part(3, 5), part(7, 8)].concat();
    finish(&mut core, 7, &bytes, &rest).expect("all of it is there");
    assert_eq!(read(&mut core, CHUNK, 0, bytes.len()).expect("it is written"), bytes);
    assert_eq!(core.early_slices(), 0);
    let gone = finish(&mut core, 7, &bytes, &rest).expect_err("it is the first one's");
    assert!(matches!(gone, ChangeError::NotStaged), "{gone}");
}

#[test]
fn what_is_given_up_leaves_no_page_and_its_name_is_free_at_once() {
    let medium = medium(2);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, CHUNK);
    let (free, bytes) = (core.stats().free_bytes, pattern(4, 2));
    for round in 0..200 {
        assert!(stage(&mut core, 9, 7, 0, &bytes), "round {round}");
        core.submit(Client { asker: 9, token: 2 }, Request::Unstage { stage: 7, disk: 0 });
        if round % 3 == 0 {
            core.turn(None).expect("the simulated disk always speaks");
        } else {
            settle(&mut core);
        }
        core.answers.clear();
    }
    // Who asked is gone.
    assert!(stage(&mut core, 3, 7, 0, &bytes) && stage(&mut core, 4, 7, 0, &bytes));
    core.drop_all_early_of(3);
    settle(&mut core);
    assert_eq!(core.early_slices(), 4, "the other one's are there");
    core.drop_all_early_of(4);
    settle(&mut core);
    assert_eq!((core.early_slices(), core.stats().free_bytes), (0, free));
}

#[test]
fn slices_that_do_not_get_to_the_disk_fail_the_write_and_leave_no_page() {
    for waits in [true, false] {
        let medium = medium(3);
        let mut core = open(&medium).expect("a new store");
        create(&mut core, CHUNK);
        settle(&mut core);
        let (free, bytes) = (core.stats().free_bytes, pattern(2, 3));
        // All that the next writes can get, and all were written once.
        (1..=4).for_each(|page| medium.fail(What::Write, core.layout.data_page(page), 1));
        assert!(stage(&mut core, 9, 7, 0, &bytes));
        if waits {
            settle(&mut core);
        }
        let failed = finish(&mut core, 7, &bytes, &[]).expect_err("the disk has failed it");
        assert!(matches!(failed, ChangeError::Media(_)), "{failed}");
        settle(&mut core);
        // The pages of the write that failed are not used again.
        let left = free - bytes.len() as u64;
        assert_eq!((core.early_slices(), core.stats().free_bytes), (0, left), "waits: {waits}");
        let is_written = (0..400).any(|_| {
            let reply = ask(&mut core, write_request(CHUNK, 0, &bytes));
            matches!(reply, Reply::Write { result: Ok(_), .. })
        });
        assert!(is_written);
    }
}

#[test]
fn what_cannot_be_taken_now_is_refused_and_can_be_written_all_the_same() {
    let medium = medium(4);
    let mut core = open(&medium).expect("a new store");
    let bytes = pattern(2, 4);
    assert!(!stage(&mut core, 9, 1, 0, &bytes), "there is no such chunk");
    create(&mut core, CHUNK);
    settle(&mut core);
    assert!(!stage(&mut core, 9, 1, 0, &bytes[..5000]), "no whole slices");
    assert!(!stage(&mut core, 9, 1, u64::MAX / 4096, &bytes), "beyond the limit of the chunk");
    let mut taken = 0;
    while stage(&mut core, 9, 1, 2 * taken, &bytes) {
        taken += 1;
    }
    assert!(taken > 10, "all pages are taken: {taken}");
    core.drop_all_early_of(9);
    settle(&mut core);
    write(&mut core, CHUNK, 0, &bytes);
    // A slice beyond the end of the write that is asked for.
    assert!(stage(&mut core, 9, 2, 1, &bytes));
    let crcs = writer_crcs(CHUNK, 0, &bytes);
    let (data, staged, terms) = (Vec::new(), Some(2), Terms::default());
    let (chunk, offset) = (CHUNK, 0);
    let request = Request::Write { chunk, offset, data, crcs, staged, verified: true, terms };
    let Reply::Write { result, .. } = ask(&mut core, request) else { panic!("another answer") };
    assert!(matches!(result, Err(ChangeError::NotStaged)), "{result:?}");
    settle(&mut core);
    assert_eq!(core.early_slices(), 0);
}

#[test]
fn who_stages_all_that_it_can_leaves_room_for_others_and_gets_it_back() {
    const MIB: u64 = 256;
    let medium = Medium::new(5, 20_000);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, CHUNK);
    settle(&mut core);
    let bytes = pattern(MIB as usize, 5);
    // Each write is of one MiB, and all of them are of other places in the chunk.
    let mut next = 0;
    let mut hoard = |core: &mut Core, owner: (usize, usize)| {
        let before = core.early_slices();
        loop {
            next += 1;
            if !stage_for(core, owner, next, MIB * next, &bytes) {
                return (core.early_slices() - before) / MIB;
            }
            settle(core);
        }
    };
    // Links of one asker, and the one of another that has the same number.
    assert_eq!(hoard(&mut core, (1, 7)), 16);
    assert_eq!(hoard(&mut core, (1, 7)), 0);
    assert_eq!(hoard(&mut core, (2, 7)), 16);
    assert_eq!(hoard(&mut core, (1, 8)), 16);
    assert_eq!(hoard(&mut core, (1, 9)), 8);
    assert_eq!(hoard(&mut core, (1, 10)), 4);
    core.drop_all_early_of(1);
    assert_eq!(core.early_slices() / MIB, 16, "the other asker's are there");
    assert_eq!(hoard(&mut core, (1, 8)), 16);
    core.drop_all_early_of(1);
    core.drop_all_early_of(2);
    assert_eq!(core.early_slices(), 0);
    assert!(core.early.has_none());
}
