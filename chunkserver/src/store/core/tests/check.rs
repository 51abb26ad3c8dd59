//! The check of a store that no server has, and its repair.

use super::faults::{serves_right, workload};
use super::*;
use crate::store::check::CheckReport;
use crate::store::core::{check_core, repair_core};
use towpath_disk::PageNumber;
use towpath_disk::sim::Loss;

fn check(medium: &Medium) -> CheckReport {
    let mut disk = medium.open(8).expect("nobody has it open");
    let before = medium.events();
    let report = check_core(&mut disk, true).expect("it can be read");
    assert_eq!(medium.events(), before, "a check changes nothing");
    report
}

fn repair(medium: &Medium, accept_loss: bool) -> CheckReport {
    let disk = medium.open(8).expect("nobody has it open");
    repair_core(Box::new(disk), &CONFIG, accept_loss).expect("the medium takes it")
}

#[test]
fn a_whole_store_is_said_to_be_whole_and_each_bad_slice_is_named() {
    for seed in 0..4 {
        println!("seed {seed}");
        let (medium, model) = workload(seed);
        let report = check(&medium);
        assert!(report.is_whole(), "{report:?}");
        assert_eq!(
            (report.chunks, report.slices),
            (model.chunks.len() as u64, report.slices_checked)
        );
        let core = open(&medium).expect("it is whole");
        let named = core.map.chunks.iter().find_map(|(id, chunk)| {
            chunk.slices_from(0).next().map(|(slice, at)| (*id, slice, at.page))
        });
        let (chunk, slice, page) = named.expect("it has slices");
        let at = core.layout.data_page(page);
        drop(core);
        medium.flip_bit(at.byte_offset());
        let report = check(&medium);
        let bad: Vec<_> = report.bad_slices.iter().map(|bad| (bad.chunk, bad.slice)).collect();
        assert_eq!((bad, report.is_whole()), (vec![(chunk, slice)], false));
    }
}

#[test]
fn a_check_of_no_store_or_of_one_without_a_superblock_is_an_error() {
    let mut disk = medium(1).open(8).expect("nobody has it open");
    assert!(matches!(check_core(&mut disk, true), Err(OpenError::NoStore)));
    let (medium, _) = workload(1);
    (0..2).for_each(|n| medium.spoil(PageNumber(n * (PAGES - 1))));
    let mut disk = medium.open(8).expect("nobody has it open");
    assert!(matches!(check_core(&mut disk, true), Err(OpenError::Checkpoint { .. })));
}

#[test]
fn after_a_repair_the_store_takes_changes_and_serves_nothing_wrong() {
    let mut repaired = 0;
    for seed in 0..6 {
        let (medium, model) = workload(seed);
        let layout = open(&medium).expect("it is whole").layout;
        let log = |page| {
            (0..2)
                .map(move |copy| layout.log_slot(copy, page % layout.log_pages))
                .collect::<Vec<_>>()
        };
        let map = (0..2).map(|place| layout.map_page(0, place)).collect();
        for (turn, bad) in (0..44).map(log).chain([map]).enumerate() {
            println!("seed {seed}, turn {turn}");
            let medium = medium.fork(seed);
            bad.into_iter().for_each(|page| medium.spoil(page));
            let before = check(&medium);
            if !open(&medium).expect("it opens whatever is lost").is_damaged() {
                continue;
            }
            repaired += 1;
            assert!(!before.is_whole());
            let accept_loss = turn % 2 == 1;
            repair(&medium, accept_loss);
            medium.power_on(Loss::Everything);
            let after = check(&medium);
            assert_eq!(after.damage, [], "all of it was written anew");
            assert_eq!(after.suspect.is_empty(), accept_loss || before.suspect.is_empty());
            let mut core = open(&medium).expect("it was repaired");
            assert!(!core.is_damaged());
            if !accept_loss {
                // A chunk of which nothing is left is not known any more.
                let known = |chunk: &ChunkId| core.stat(*chunk).is_some();
                let known: Vec<_> = model.chunks.keys().copied().filter(known).collect();
                let rest = known.iter().map(|chunk| (*chunk, model.chunks[chunk].clone()));
                let rest = Model { chunks: rest.collect(), ..model.clone() };
                serves_right(&mut core, &rest).unwrap_or_else(|wrong| panic!("{wrong}"));
            }
            for stat in stats_of(&core) {
                delete(&mut core, stat.chunk);
            }
            create(&mut core, ChunkId(77));
            write(&mut core, ChunkId(77), 0, &[7; 30 * 4096]);
            drop(core);
            let mut core = open(&medium).expect("it was left whole");
            assert_eq!(read(&mut core, ChunkId(77), 0, 4096).expect("it is there"), [7; 4096]);
            assert!(check_after(core, &medium).is_whole());
        }
    }
    assert!(repaired > 10, "only {repaired} stores were damaged");
}

fn check_after(core: Core, medium: &Medium) -> CheckReport {
    drop(core);
    check(medium)
}
