//! The generation before: what it still says, and that its files are the next checkpoint's.

use super::crash::{LOSSES, run};
use super::*;
use crate::store::engine::Bug;
use crate::store::header::{log_name, map_name, number_in};
use crate::store::image::read_log;
use crate::store::map::ChunkMap;
use crate::store::parse_checkpoint;

/// What the checkpoint of `generation` and the logs from then on say.
fn state_since(media: &SimMedia, generation: u64, newest: u64) -> Result<ChunkMap, String> {
    let file = |g| media.content(&map_name(g)).ok_or(format!("{} is not there", map_name(g)));
    let parse = |g| parse_checkpoint(&file(g)?).map_err(|e| e.to_string());
    let mut map = parse(generation)?.map;
    for generation in generation..=newest {
        let header = parse(generation)?.header;
        let names = media.list().map_err(|e| e.to_string())?;
        let log = read_log(media, &names, generation, Some(&header)).map_err(|e| e.to_string())?;
        let log = log.map_err(|e| e.to_string())?;
        let lost = log.scan(header.next_sequence, 0).replay(&mut map, &[]);
        match lost {
            Ok(lost) if lost.is_empty() => {}
            other => return Err(format!("{}: {other:?}", log_name(generation))),
        }
    }
    Ok(map)
}

fn newest_map(names: &[String]) -> Option<u64> {
    names.iter().filter_map(|n| number_in(n, "map.")).max()
}

/// Whether the generation before is there under its names; if so it has to tell what the current
/// one does.
fn generation_before(media: &SimMedia) -> Result<bool, String> {
    let names = media.list().expect("it lists");
    let Some(newest) = newest_map(&names) else { return Ok(false) };
    let is_there = |name| names.contains(&name);
    if !is_there(log_name(newest - 1)) || !is_there(map_name(newest - 1)) {
        return Ok(false);
    }
    let before = state_since(media, newest - 1, newest)?;
    if before == state_since(media, newest, newest)? { Ok(true) } else { Err("it differs".into()) }
}

/// Looks at the generation before after every cut of one workload; how often it was there.
fn cut_everywhere(seed: u64, bug: Option<Bug>) -> Result<(u64, u64), String> {
    let whole = SimMedia::new(seed);
    run(&whole, seed, 20, bug);
    let (mut there, mut cuts) = (0, 0);
    for cut in 1..=whole.ops() + 1 {
        let media = SimMedia::new(seed);
        media.cut_power_at(cut);
        run(&media, seed, 20, bug);
        for (turn, loss) in LOSSES.into_iter().enumerate() {
            let after = media.fork(seed ^ cut << 8 ^ (turn as u64) << 32);
            after.power_on(loss);
            let found = generation_before(&after);
            cuts += 1;
            there +=
                u64::from(found.map_err(|e| format!("seed {seed}, cut {cut}, {loss:?}: {e}"))?);
        }
    }
    Ok((there, cuts))
}

#[test]
fn map_and_log_of_the_generation_before_tell_the_same_as_the_current_map_after_any_power_cut() {
    let (mut there, mut cuts) = (0, 0);
    for seed in 0..4 {
        let (found, of) = cut_everywhere(seed, None).unwrap_or_else(|wrong| panic!("{wrong}"));
        (there, cuts) = (there + found, cuts + of);
    }
    assert!(there * 4 > cuts, "it was there after {there} of {cuts} cuts");
}

#[test]
fn names_that_are_not_flushed_before_their_files_are_written_over_are_noticed() {
    let noticed = (0..12).any(|seed| cut_everywhere(seed, Some(Bug::SkipDirFlush)).is_err());
    assert!(noticed, "a generation before that was written over passes for a whole one");
}

#[test]
fn two_logs_and_two_maps_take_turns_across_restarts() {
    let media = SimMedia::new(1);
    let mut store = open(&media);
    create(&mut store, ChunkId(1));
    for turn in 0..6u8 {
        write(&mut store, ChunkId(1), 0, &[turn; 100]);
        store.log.wants_checkpoint = true;
        store.commit().expect("the medium flushes");
        let newest = u64::from(turn) + 2;
        let names = media.list().expect("it lists");
        let expected = ["data.0000".to_owned()]
            .into_iter()
            .chain([log_name(newest - 1), log_name(newest)])
            .chain([map_name(newest - 1), map_name(newest)]);
        assert!(names.iter().cloned().eq(expected), "{names:?}");
        assert_eq!(generation_before(&media), Ok(true));
        if turn % 2 == 1 {
            drop(store);
            store = open(&media);
            assert_eq!(media.list().expect("it lists"), names, "a restart keeps them");
        }
    }
    assert_eq!(read(&mut store, ChunkId(1), 0, 100).unwrap(), [5; 100]);
}

#[test]
fn the_map_that_an_interrupted_repair_has_left_is_gone_after_the_next_checkpoint() {
    let media = SimMedia::new(1);
    create(&mut open(&media), ChunkId(1));
    media.create("map.tmp.repair").expect("it is made");
    let mut store = open(&media);
    store.log.wants_checkpoint = true;
    store.commit().expect("the medium flushes");
    let names = media.list().expect("it lists");
    assert!(!names.iter().any(|name| name.ends_with(".repair")), "{names:?}");
    drop(store);
    assert!(open(&media).stat(ChunkId(1)).is_some());
}
