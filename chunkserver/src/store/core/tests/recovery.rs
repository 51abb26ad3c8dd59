//! Damage of superblocks, maps and directories while generations change, and stores that contradict
//! themselves.

use super::faults::{serves_right, workload};
use super::*;
use crate::store::core::blocking::Blocking;
use crate::store::core::layout::Layout;
use crate::store::core::memory::Memory;
use crate::store::core::page::{PAGE_BYTES, PageBytes};
use crate::store::core::ring::Ring;
use crate::store::core::superblock::{LogPoint, Superblock};
use crate::store::core::{NewStore, check_core, repair_core};
use crate::store::damage::DamageKind;
use towpath_disk::sim::Loss;
use towpath_disk::{Disk as _, PageNumber, What};

const LOSSES: [Loss; 4] = [Loss::Nothing, Loss::Everything, Loss::Suffix, Loss::Scattered];

/// Where the two superblocks are.
const SUPERBLOCKS: [u64; 2] = [0, PAGES - 1];

fn page_of(medium: &Medium, at: u64) -> Box<PageBytes> {
    let memory = Memory::new().expect("memory");
    let mut disk = medium.open(8).expect("nobody has it open");
    let page = Blocking::new(&mut disk, &memory).page(PageNumber(at));
    page.expect("it speaks").expect("it can be read")
}

fn put_page(medium: &Medium, at: u64, bytes: &[u8]) {
    let memory = Memory::new().expect("memory");
    let mut disk = medium.open(8).expect("nobody has it open");
    let mut disk = Blocking::new(&mut disk, &memory);
    disk.write(PageNumber(at), bytes).expect("it is written");
    disk.flush().expect("it is flushed");
}

fn superblock_of(medium: &Medium, at: u64) -> Superblock {
    Superblock::decode(&page_of(medium, at)).expect("it is whole")
}

/// Opens the store and brings a checkpoint as far as the power allows.
fn open_and_checkpoint(medium: &Medium) {
    let Ok(mut core) = open(medium) else { return };
    core.request_checkpoint();
    for _ in 0..1_000 {
        core.turn(Some(Duration::from_secs(1))).expect("the simulated disk always speaks");
        if core.stats().checkpoints > 0 || core.failure().is_some() {
            return;
        }
    }
}

/// What is served is all there was, now and after one more checkpoint.
fn is_whole(medium: &Medium, model: &Model) -> Result<(), String> {
    for turn in ["first", "second"] {
        let mut core = open(medium).map_err(|error| format!("{turn} open: {error}"))?;
        if core.is_damaged() {
            return Err(format!("{turn} open: {:?}", core.damage()));
        }
        match serves_right(&mut core, model) {
            Ok(true) => checkpoint(&mut core),
            other => return Err(format!("{turn} open: {other:?}, {:?}", core.damage())),
        }
    }
    Ok(())
}

/// The writes and flushes that an opening and its next checkpoint take.
fn events_of_a_checkpoint(medium: &Medium, seed: u64) -> u64 {
    let medium = medium.fork(seed);
    let before = medium.events();
    open_and_checkpoint(&medium);
    medium.events() - before
}

/// A crash at each write of the checkpoint after an opening that has found a rotten page, with each
/// `stride`th kind of loss.
fn crash_after_rot(seed: u64, stride: usize) {
    let (medium, model) = workload(seed);
    let layout = open(&medium).expect("it is whole").layout;
    let maps = (0..2).flat_map(|page| [0, 1].map(|place| layout.map_page(page, place)));
    let directories = [0, 1].map(|generation| layout.directory_page(generation, 0));
    let mut fell_back = 0;
    for bad in maps.chain(directories).chain(SUPERBLOCKS.map(PageNumber)) {
        let rotten = medium.fork(seed);
        rotten.flip_bit(bad.byte_offset() + 70);
        fell_back += u64::from(!open(&rotten.fork(seed)).expect("one").damage().is_empty());
        for cut in 1..=events_of_a_checkpoint(&rotten, seed) {
            let ways = LOSSES.map(Some).into_iter().chain([None]);
            let ways = (0..).zip(ways.skip(cut as usize % stride).step_by(stride));
            for (turn, loss) in ways {
                let medium = rotten.fork(seed ^ cut << 8 ^ turn << 32);
                medium.cut_power_at(medium.events() + cut);
                open_and_checkpoint(&medium);
                match loss {
                    Some(loss) => medium.power_on(loss),
                    None => medium.end_process(),
                }
                is_whole(&medium, &model).unwrap_or_else(|wrong| {
                    panic!("seed {seed}, page {bad}, cut {cut}, {loss:?}: {wrong}")
                });
            }
        }
    }
    assert!(fell_back >= 4, "only {fell_back} of these pages were in use");
}

#[test]
fn a_rotten_page_and_a_crash_at_any_write_of_the_next_checkpoint_lose_nothing() {
    crash_after_rot(0, 4);
}

/// Damage of a superblock after a crash at each write of a checkpoint, with each `stride`th kind of
/// loss.
fn damage_after_crash(seed: u64, stride: usize) {
    let (whole, model) = workload(seed);
    for cut in 1..=events_of_a_checkpoint(&whole, seed) {
        for (turn, loss) in
            (0..).zip(LOSSES.into_iter().skip(cut as usize % stride)).step_by(stride)
        {
            let medium = whole.fork(seed ^ cut << 8 ^ turn << 32);
            medium.cut_power_at(medium.events() + cut);
            open_and_checkpoint(&medium);
            medium.power_on(loss);
            for page in SUPERBLOCKS {
                let bits = [70, 1024 + 70, 2048 + 70, 4000].map(Some).into_iter().chain([None]);
                for bit in bits.skip(cut as usize / 2 % stride).step_by(stride) {
                    let medium = medium.fork(cut);
                    match bit {
                        Some(bit) => medium.flip_bit(page * PAGE_BYTES as u64 + bit),
                        None => medium.spoil(PageNumber(page)),
                    }
                    is_whole(&medium, &model).unwrap_or_else(|wrong| {
                        panic!("seed {seed}, cut {cut}, {loss:?}, {page}, {bit:?}: {wrong}")
                    });
                }
            }
        }
    }
}

#[test]
fn one_bad_superblock_at_any_step_of_a_checkpoint_loses_nothing() {
    damage_after_crash(0, 2);
}

#[test]
#[ignore = "minutes: every kind of loss, over more seeds"]
fn stress_rot_and_crashes_around_checkpoints_lose_nothing() {
    for seed in 0..20 {
        println!("seed {seed}");
        crash_after_rot(seed, 1);
        damage_after_crash(seed, 1);
    }
}

#[test]
fn a_store_whose_superblocks_have_no_copies_opens_and_has_them_then() {
    let (medium, model) = workload(1);
    for page in SUPERBLOCKS {
        let plain = superblock_of(&medium, page).encode();
        put_page(&medium, page, &plain[..]);
    }
    drop(open(&medium).expect("it is whole"));
    for page in SUPERBLOCKS {
        let medium = medium.fork(1);
        medium.spoil(PageNumber(page));
        let generations: Vec<_> = [0, 1].map(|_| superblock_of(&medium, PAGES - 1 - page)).into();
        assert_eq!(generations[0], generations[1]);
        is_whole(&medium, &model).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn a_superblock_that_can_be_neither_read_nor_written_keeps_nothing_from_being_read() {
    let (medium, model) = workload(2);
    for page in SUPERBLOCKS {
        let medium = medium.fork(page);
        medium.spoil(PageNumber(page));
        medium.fail(What::Write, PageNumber(page), u32::MAX);
        let mut core = open(&medium).expect("the other one is whole");
        assert_eq!(serves_right(&mut core, &model), Ok(true));
    }
}

/// A store whose newest map is newer than the place of the log where its superblock begins.
fn contradictory(seed: u64) -> (Medium, Model, [Superblock; 2]) {
    let (mut prng, medium) = (Prng::new(seed), any_medium(seed));
    let mut core = open(&medium).expect("a new store");
    let mut model = Model::default();
    for step in 0..30 {
        let change = model.random(&mut prng);
        let reply = ask(&mut core, change.request());
        model.take(&change, &reply).unwrap_or_else(|wrong| panic!("{wrong}"));
        if step == 15 {
            // Whatever the seed has made, this one is in both maps and in the log between them.
            let change = Change::Create(ChunkId(88));
            let reply = ask(&mut core, change.request());
            model.take(&change, &reply).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }
    checkpoint(&mut core);
    core.seal();
    settle(&mut core);
    drop(core);
    let mut both = SUPERBLOCKS.map(|at| superblock_of(&medium, at));
    both.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    let [newest, before] = both;
    let wrong = Superblock { start: before.start, ..newest };
    assert!(newest.start.page > before.start.page);
    put_page(&medium, newest.layout.superblock(newest.generation).0, &wrong.encode()[..]);
    let plain = before.encode();
    put_page(&medium, before.layout.superblock(before.generation).0, &plain[..]);
    (medium, model, [newest, before])
}

#[test]
fn a_generation_from_which_the_log_does_not_follow_gives_way_to_the_one_before() {
    for seed in 0..8 {
        println!("seed {seed}");
        let (medium, model, _) = contradictory(seed);
        let core = open(&medium.fork(seed)).expect("the one before is whole");
        let said = format!("{:?}", core.damage());
        assert!(said.contains("the log does not follow from generation"), "{said}");
        is_whole(&medium, &model).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn where_the_log_follows_from_no_generation_a_repair_makes_suspects_of_what_does_not_fit() {
    for seed in 0..8 {
        println!("seed {seed}");
        let (medium, model, [_, before]) = contradictory(seed);
        put_page(&medium, before.layout.superblock(before.generation).0, &[0; PAGE_BYTES]);
        let report = check(&medium).expect("it can be read");
        assert!(!report.takes_changes && !report.is_whole());
        let is_misfit = |kind: &DamageKind| matches!(kind, DamageKind::Misfit { .. });
        assert!(report.damage.iter().any(|damage| is_misfit(&damage.kind)), "{report:?}");
        assert!(report.suspect.contains(&ChunkId(88)), "it is created twice: {report:?}");
        let mut core = open(&medium).expect("it is read");
        assert!(core.is_damaged());
        serves_right(&mut core, &model).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(fate(&ask(&mut core, create_request(ChunkId(99)))), Fate::NotDone);
        drop(core);
        for accept_loss in [false, true] {
            let medium = medium.fork(seed);
            let disk = medium.open(8).expect("nobody has it open");
            repair_core(Box::new(disk), &CONFIG, accept_loss).expect("the medium takes it");
            medium.power_on(Loss::Everything);
            let report = check(&medium).expect("it can be read");
            assert!(report.takes_changes && report.damage.is_empty(), "{report:?}");
            assert_eq!(report.suspect.is_empty(), accept_loss);
            let mut core = open(&medium).expect("it was repaired");
            assert_eq!(serves_right(&mut core, &model), Ok(accept_loss));
            create(&mut core, ChunkId(99));
        }
    }
}

fn check(medium: &Medium) -> Result<crate::store::check::CheckReport, OpenError> {
    let mut disk = medium.open(8).expect("nobody has it open");
    check_core(&mut disk, true)
}

#[test]
fn a_slice_that_cannot_be_read_takes_nothing_else_of_the_last_group() {
    for seed in 0..8 {
        println!("seed {seed}");
        let medium = medium(seed);
        medium.set_durable_writes(DurableWrites::None);
        let mut core = open(&medium).expect("a new store");
        create(&mut core, ChunkId(1));
        create(&mut core, ChunkId(2));
        for (token, chunk) in [(1, ChunkId(1)), (2, ChunkId(2))] {
            let request = write_request(chunk, 0, &[7; 2 * SLICE_BYTES]);
            core.submit(Client { asker: 0, token }, request);
        }
        settle(&mut core);
        assert!(core.take_answers().all(|(_, answer)| fate(&answer.reply) == Fate::Done));
        let page = core.map.chunks[&ChunkId(1)].slice(1).page;
        let at = core.layout.data_page(page);
        drop(core);
        medium.power_on(Loss::Everything);
        medium.spoil(at);
        let report = check(&medium).expect("it can be read");
        assert!(report.takes_changes && !report.is_whole());
        for turn in 0..2 {
            let mut core = open(&medium).expect("it opens");
            assert!(!core.is_damaged());
            let kinds: Vec<_> = core.damage().iter().map(|damage| damage.kind.clone()).collect();
            let slice = DamageKind::Slice { chunk: ChunkId(1), slice: 1 };
            assert_eq!(kinds, vec![slice; 1 - turn], "it is named once");
            let lens = [1, 2].map(|chunk| core.stat(ChunkId(chunk)).map(|stat| stat.byte_len));
            assert_eq!(lens, [Some(2 * SLICE_BYTES as u64); 2]);
            let whole = [(1, 0), (2, 0), (2, SLICE_BYTES as u64)];
            for (chunk, offset) in whole {
                let found = read(&mut core, ChunkId(chunk), offset, SLICE_BYTES);
                assert_eq!(found.expect("it is whole"), [7; SLICE_BYTES]);
            }
            let bad = read(&mut core, ChunkId(1), SLICE_BYTES as u64, SLICE_BYTES);
            assert!(matches!(bad, Err(ReadError::Media(_))), "{bad:?}");
            checkpoint(&mut core);
        }
    }
}

#[test]
fn a_check_and_a_server_agree_on_whether_a_store_takes_changes() {
    let (mut agreed, mut prng) = ([0; 3], Prng::new(7));
    let stores = [0, 1, 2, 3].map(|seed| workload(seed).0);
    for seed in 0..400 {
        println!("seed {seed}");
        let medium = stores[seed as usize % stores.len()].fork(seed);
        let metadata = 1 + 2 * CONFIG.log_pages + 40;
        for _ in 0..1 + prng.below(6) {
            let page = match prng.below(4) {
                0 => SUPERBLOCKS[prng.below(2) as usize],
                1 => 1 + 2 * CONFIG.log_pages + prng.below(26),
                2 => prng.below(metadata),
                _ => prng.below(PAGES),
            };
            match prng.below(2) {
                0 => medium.spoil(PageNumber(page)),
                _ => medium.flip_bit(page * PAGE_BYTES as u64 + prng.below(3_000)),
            }
        }
        let checked = check(&medium).map(|report| report.takes_changes);
        let opened = open(&medium).map(|mut core| {
            let answer = ask(&mut core, create_request(ChunkId(99)));
            fate(&answer) == Fate::Done
        });
        match (checked, opened) {
            (Ok(checked), Ok(opened)) => {
                assert_eq!(checked, opened, "check says {checked}, the server {opened}");
                agreed[usize::from(opened)] += 1;
            }
            (Err(checked), Err(opened)) => {
                assert_eq!(checked.to_string(), opened.to_string());
                agreed[2] += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(agreed.iter().all(|count| *count > 5), "{agreed:?}");
}

/// A medium of another length with the same pages.
fn resized(medium: &Medium, page_count: u64) -> Medium {
    let resized = Medium::new(1, page_count);
    let from = medium.open(1).expect("nobody has it open").page_count();
    for at in 0..page_count.min(from) {
        put_page(&resized, at, &page_of(medium, at)[..]);
    }
    resized
}

#[test]
fn a_disk_that_was_cut_is_read_and_named_and_takes_no_changes_and_a_longer_one_is_as_before() {
    let (medium, model) = workload(3);
    for page_count in [PAGES - 1, PAGES - 40] {
        let cut = resized(&medium, page_count);
        let report = check(&cut).expect("it can be read");
        assert!(!report.takes_changes && !report.is_whole());
        let wants = PAGES * PAGE_BYTES as u64;
        let kind = DamageKind::Cut { wants };
        assert!(report.damage.iter().any(|damage| damage.kind == kind), "{report:?}");
        let mut core = open(&cut).expect("it is read");
        assert!(core.is_damaged());
        let is_all = serves_right(&mut core, &model);
        assert!(matches!((page_count, is_all), (_, Ok(true)) | (360, Ok(_))), "{page_count}");
        drop(core);
        let disk = Box::new(cut.open(8).expect("nobody has it open"));
        let refused = repair_core(disk, &CONFIG, true).expect_err("it is still short");
        assert!(refused.to_string().contains(&format!("truncate -s {wants}")), "{refused}");
        let again = resized(&cut, PAGES);
        is_whole(&again, &model).unwrap_or_else(|wrong| panic!("{page_count}: {wrong}"));
    }
    let short = resized(&medium, 200);
    assert!(matches!(open(&short).map(drop), Err(OpenError::Cut { .. })));
    let long = resized(&medium, PAGES + 9);
    is_whole(&long, &model).unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn the_page_count_of_a_superblock_is_held_against_the_disk_before_memory_is_asked_for() {
    for page_count in [1 << 32, 1 << 40, (1 << 43) + 5] {
        let Some(layout) = Layout::new(page_count, 128) else { continue };
        let superblock = Superblock {
            store_id: 1,
            generation: 2,
            layout,
            is_sparse: true,
            log_nonce: 1,
            start: LogPoint { page: 0, sequence: 1, crc: 0 },
            ring: Ring::new(128),
            map_pages_used: layout.map_pages,
            written_pages: 0,
        };
        let medium = medium(1);
        put_page(&medium, 0, &superblock.encode()[..]);
        assert!(matches!(open(&medium).map(drop), Err(OpenError::Cut { .. })), "{page_count}");
        assert!(matches!(check(&medium).map(drop), Err(OpenError::Cut { .. })), "{page_count}");
    }
}

const MIB: u64 = 1 << 20;

/// Length of a disk of which not all is looked at.
const DISK_BYTES: u64 = 22 * MIB;

/// What somebody else writes to a disk: its name, where it begins, and bytes by their offset behind
/// that.
type Foreign = (&'static str, u64, Vec<(u64, &'static [u8])>);

fn foreign() -> Vec<Foreign> {
    let mut all = vec![
        ("GPT", 0, vec![(510, &b"\x55\xaa"[..]), (512, b"EFI PART")]),
        ("MBR", 0, vec![(446, b"\x80\x20\x21"), (510, b"\x55\xaa")]),
        ("ZFS", 0, vec![(128 << 10, b"\x0c\xb1\xba\0\0\0\0\0")]),
        ("ZFS", DISK_BYTES - (256 << 10), vec![(128 << 10, b"\x0c\xb1\xba\0\0\0\0\0")]),
        ("GPT", DISK_BYTES - 512, vec![(0, b"EFI PART")]),
        ("unknown", DISK_BYTES - 1, vec![(0, b"x")]),
        ("unknown", DISK_BYTES - MIB, vec![(0, b"some text, then zeros")]),
    ];
    for base in [0, MIB, 4 * MIB] {
        all.extend([
            ("SQLite", base, vec![(0, &b"SQLite format 3\0"[..])]),
            ("btrfs", base, vec![(65_536 + 64, b"_BHRfS_M")]),
            ("swap", base, vec![(4086, b"SWAPSPACE2")]),
            ("LVM", base, vec![(512, b"LABELONE")]),
            ("LUKS", base, vec![(0, b"LUKS\xba\xbe")]),
            ("ext4", base, vec![(1024 + 56, b"\x53\xef")]),
            ("XFS", base, vec![(0, b"XFSB")]),
            ("unknown", base, vec![(77, b"x")]),
        ]);
    }
    all
}

#[test]
fn what_others_have_on_a_disk_is_named_and_not_touched_unless_a_store_is_asked_for() {
    for (number, (name, base, parts)) in foreign().into_iter().enumerate() {
        println!("{name} at {base}");
        let medium = Medium::new(1, DISK_BYTES / PAGE_BYTES as u64);
        for (offset, bytes) in &parts {
            let (page, at) = ((base + offset) / 4096, ((base + offset) % 4096) as usize);
            let mut content = page_of(&medium, page);
            content[at..at + bytes.len()].copy_from_slice(bytes);
            put_page(&medium, page, &content[..]);
        }
        let before = medium.events();
        let refused = open(&medium).map(drop).expect_err("something is there");
        assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
        let said = refused.to_string();
        assert!(said.contains(name) && said.contains("--format"), "{name} at {base}: {said}");
        assert_eq!(check(&medium).map(drop).expect_err("no store").to_string(), said);
        assert_eq!(medium.events(), before, "nothing was written");
        if number % 4 > 0 {
            continue;
        }
        let disk = Box::new(medium.open(8).expect("nobody has it open"));
        let mut core =
            Core::open_or_make(disk, &CONFIG, NewStore::OnAnything).expect("it is asked for");
        create(&mut core, ChunkId(1));
        drop(core);
        // What is a store now stays one, also where the flag was left.
        let disk = Box::new(medium.open(8).expect("nobody has it open"));
        let core = Core::open_or_make(disk, &CONFIG, NewStore::OnAnything).expect("it is there");
        assert!(core.stat(ChunkId(1)).is_some());
    }
}

#[test]
fn a_store_without_superblocks_is_not_formatted() {
    let (medium, _) = workload(2);
    for way in 0..3 {
        let medium = medium.fork(way);
        for page in SUPERBLOCKS {
            match way {
                0 => medium.spoil(PageNumber(page)),
                1 => medium.flip_bit(page * PAGE_BYTES as u64 + 70),
                _ => put_page(&medium, page, &[0; PAGE_BYTES]),
            }
        }
        if way == 1 {
            SUPERBLOCKS
                .iter()
                .for_each(|page| medium.flip_bit(page * PAGE_BYTES as u64 + 1024 + 70));
            SUPERBLOCKS
                .iter()
                .for_each(|page| medium.flip_bit(page * PAGE_BYTES as u64 + 2048 + 70));
        }
        let before = medium.events();
        let disk = Box::new(medium.open(8).expect("nobody has it open"));
        let refused = Core::open_or_make(disk, &CONFIG, NewStore::OnAnything).map(drop);
        assert!(matches!(refused, Err(OpenError::Checkpoint { .. })), "{way}: {refused:?}");
        assert_eq!(medium.events(), before, "nothing was written");
    }
}
