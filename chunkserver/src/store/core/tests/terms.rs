//! Changes that are meant for a version, and changes that are asked for twice.

use super::*;
use crate::store::error::ChangeError;
use crate::store::limits::CHAIN_MAX;
use towpath_disk::PageNumber;

const CHUNK: ChunkId = ChunkId(5);

/// The version that a change has made.
fn done(core: &mut Core, request: Request<Vec<u8>, Buf>) -> u64 {
    let reply = ask(core, request);
    made(&reply).unwrap_or_else(|| panic!("{reply:?}"))
}

fn refusal(core: &mut Core, request: Request<Vec<u8>, Buf>) -> Option<Refused> {
    refused(&ask(core, request))
}

fn with_stamp(stamp: u64, mut request: Request<Vec<u8>, Buf>) -> Request<Vec<u8>, Buf> {
    match &mut request {
        Request::Write { terms, .. }
        | Request::Clear { terms, .. }
        | Request::Finish { terms, .. } => terms.stamp = stamp,
        Request::Create { stamp: place, .. } | Request::Chain { stamp: place, .. } => {
            *place = stamp;
        }
        _ => panic!("it has no stamp"),
    }
    request
}

/// Every kind of change of a chunk of 8,192 bytes, that may be meant for a version.
fn changes() -> Vec<Request<Vec<u8>, Buf>> {
    let terms = Terms::default();
    let clear = |clear| Request::Clear { chunk: CHUNK, clear, terms };
    vec![
        write_request(CHUNK, 100, &[2; 100]),
        clear(Clear::Trim { offset: 4096, byte_len: 4096 }),
        clear(Clear::Zero { offset: 0, byte_len: 8192 }),
        clear(Clear::Truncate { byte_len: 8192 }),
        Request::Finish { chunk: CHUNK, byte_len: 8192, terms },
        Request::Delete { chunk: CHUNK, version: None },
    ]
}

#[test]
fn a_change_for_another_version_is_refused_with_the_one_there_is_and_changes_nothing() {
    let medium = medium(1);
    let mut core = open(&medium).expect("a new store");
    let created = done(&mut core, create_request(CHUNK));
    let written = done(&mut core, write_request(CHUNK, 0, &[1; 8192]));
    assert!(created < written);
    for wrong in [created, written + 1, 0, u64::MAX] {
        for request in changes() {
            let found = refusal(&mut core, only_if(wrong, request));
            assert_eq!(found, Some(Refused::OtherVersion { version: written }));
        }
    }
    assert_eq!(core.stat(CHUNK).map(|stat| stat.version), Some(written));
    assert_eq!(read(&mut core, CHUNK, 0, 8192).expect("as it was"), [1; 8192]);
    let mut version = written;
    for request in changes() {
        let next = done(&mut core, only_if(version, request));
        assert!(next > version);
        version = next;
    }
    assert_eq!(core.stat(CHUNK), None);
}

#[test]
fn of_many_changes_for_one_version_that_are_under_way_together_one_is_made() {
    let medium = medium(2);
    let mut core = open(&medium).expect("a new store");
    let mut version = done(&mut core, create_request(CHUNK));
    for round in 0..20u8 {
        for token in 0..6u8 {
            let write = write_request(CHUNK, 0, &[token; 100]);
            let to = Client { asker: 0, token: token.into() };
            core.submit(to, only_if(version, write));
            if round % 2 == 0 {
                core.turn(None).expect("it speaks");
            }
        }
        settle(&mut core);
        let answers: Vec<_> = core.take_answers().map(|(_, answer)| answer).collect();
        let first = answers.iter().find_map(|answer| made(&answer.reply)).expect("one is made");
        for Completion { token, reply, .. } in &answers {
            match token {
                0 => assert_eq!(made(reply), Some(first)),
                _ => assert_eq!(refused(reply), Some(Refused::OtherVersion { version: first })),
            }
        }
        assert_eq!(read(&mut core, CHUNK, 0, 100).expect("it is there"), [0; 100]);
        version = first;
    }
}

#[test]
fn a_change_on_a_version_that_does_not_come_about_does_not_happen_either() {
    for seed in 0..20 {
        println!("seed {seed}");
        let medium = medium(seed);
        medium.set_durable_writes(DurableWrites::None);
        let mut core = open(&medium).expect("a new store");
        let version = done(&mut core, create_request(CHUNK));
        let first = core.layout.data_page(1);
        medium.fail(towpath_disk::What::Write, PageNumber(first.0), 1);
        let to = |token| Client { asker: 0, token };
        let write = |at: u64, byte| write_request(CHUNK, at * 4096, &[byte; 4096]);
        core.submit(to(1), only_if(version, write(0, 1)));
        // Nobody is told that number before it is durable, but it can be guessed.
        core.submit(to(2), only_if(version + 1, write(1, 2)));
        core.submit(to(3), only_if(version + 2, Request::Delete { chunk: CHUNK, version: None }));
        core.submit(to(4), create_request(CHUNK));
        core.submit(to(5), write(2, 3));
        if seed % 2 == 0 {
            core.turn(None).expect("it speaks");
        }
        settle(&mut core);
        let other = Some(Refused::OtherVersion { version });
        for (_, Completion { token, reply, .. }) in core.take_answers() {
            match token {
                1 => {
                    assert!(matches!(
                        reply,
                        Reply::Write { result: Err(ChangeError::Media(_)), .. }
                    ));
                }
                2 | 3 => assert_eq!(refused(&reply), other, "{token}"),
                4 => assert!(matches!(reply, Reply::Change(Err(ChangeError::Exists(CHUNK))))),
                _ => assert!(made(&reply).is_some()),
            }
        }
        drop(core);
        let mut core = open(&medium).expect("it is whole");
        let mut expected = vec![0; 3 * 4096];
        expected[2 * 4096..].fill(3);
        assert_eq!(read(&mut core, CHUNK, 0, 3 * 4096).expect("it is there"), expected);
    }
}

#[test]
fn what_is_asked_for_again_with_its_stamp_is_made_once_and_answered_alike() {
    let medium = medium(3);
    let mut core = open(&medium).expect("a new store");
    let create = || with_stamp(9, create_request(CHUNK));
    let mut version = done(&mut core, create());
    assert_eq!(done(&mut core, create()), version);
    let exists = ask(&mut core, with_stamp(8, create_request(CHUNK)));
    assert!(matches!(exists, Reply::Change(Err(ChangeError::Exists(_)))));
    let changes = || changes().into_iter().take(5).chain([write_request(CHUNK, 0, &[1; 8192])]);
    let stamp = |at| 20 + at as u64;
    // They need a length first.
    version = done(&mut core, only_if(version, write_request(CHUNK, 0, &[1; 8192])));
    for (at, request) in changes().enumerate() {
        let before = version;
        version = done(&mut core, only_if(before, with_stamp(stamp(at), request)));
        match at % 3 {
            0 => {}
            1 => checkpoint(&mut core),
            _ => {
                drop(core);
                core = open(&medium).expect("it was left whole");
            }
        }
        for (other, request) in changes().enumerate() {
            let again = only_if(before, with_stamp(stamp(other), request));
            match other == at {
                true => assert_eq!(done(&mut core, again), version, "change {at}"),
                false => {
                    let other = Refused::OtherVersion { version };
                    assert_eq!(refusal(&mut core, again), Some(other), "{other} for {at}");
                }
            }
        }
        assert_eq!(core.stat(CHUNK).map(|stat| stat.version), Some(version));
    }
    // A change without a stamp takes the place of the one that had it.
    let unstamped = done(&mut core, write_request(CHUNK, 0, &[7; 10]));
    let again = only_if(version, with_stamp(stamp(5), write_request(CHUNK, 0, &[1; 8192])));
    let other = Refused::OtherVersion { version: unstamped };
    assert_eq!(refusal(&mut core, again), Some(other));
}

#[test]
fn what_is_asked_for_again_while_the_first_is_under_way_is_made_once() {
    let medium = medium(4);
    let mut core = open(&medium).expect("a new store");
    create(&mut core, CHUNK);
    for round in 0..10u8 {
        for token in 0..3 {
            let write = with_stamp(100 + u64::from(round), write_request(CHUNK, 0, &[round; 50]));
            core.submit(Client { asker: 0, token }, write);
        }
        settle(&mut core);
        let versions: Vec<_> = core.take_answers().map(|(_, answer)| made(&answer.reply)).collect();
        assert_eq!(versions.len(), 3);
        assert!(versions[0].is_some() && versions.iter().all(|version| *version == versions[0]));
    }
    assert_eq!(core.stats().writes, 10);
}

fn create_on(chain: u32) -> Request<Vec<u8>, Buf> {
    on_chain(chain, create_request(CHUNK))
}

fn raise(chain: u32) -> Request<Vec<u8>, Buf> {
    Request::Chain { chunk: CHUNK, chain, version: None, stamp: 0 }
}

fn chain(core: &Core) -> Option<u32> {
    core.stat(CHUNK).map(|stat| stat.chain)
}

#[test]
fn a_change_names_the_chain_version_of_its_chunk_or_is_refused_with_it() {
    for kept in [0, 3, CHAIN_MAX] {
        let medium = medium(21);
        let mut core = open(&medium).expect("a new store");
        done(&mut core, create_on(kept));
        done(&mut core, on_chain(kept, write_request(CHUNK, 0, &[1; 8192])));
        let version = core.stat(CHUNK).map(|stat| stat.version);
        for wrong in [0, 1, 2, 4, CHAIN_MAX].into_iter().filter(|wrong| *wrong != kept) {
            for request in changes().into_iter().take(5) {
                let found = refusal(&mut core, on_chain(wrong, request));
                assert_eq!(found, Some(Refused::OtherChain { chain: kept }), "{wrong}");
            }
        }
        assert_eq!(core.stat(CHUNK).map(|stat| stat.version), version);
        // The last one deletes, and names none.
        for request in changes() {
            done(&mut core, on_chain(kept, request));
        }
        assert_eq!(core.stat(CHUNK), None);
    }
}

#[test]
fn a_chain_version_rises_and_stays_and_fences_what_names_an_older_one() {
    let medium = medium(22);
    let mut core = open(&medium).expect("a new store");
    let absent = ask(&mut core, raise(1));
    assert!(matches!(absent, Reply::Change(Err(ChangeError::NoSuchChunk(CHUNK)))));
    let created = done(&mut core, create_request(CHUNK));
    let write = |named| on_chain(named, write_request(CHUNK, 0, &[named as u8; 100]));
    assert_eq!(done(&mut core, raise(0)), created, "it has none, and gets none");
    let mut version = done(&mut core, write(0));
    for (at, (before, next)) in [(0, 1), (1, 2), (2, 9), (9, CHAIN_MAX)].into_iter().enumerate() {
        let raised =
            done(&mut core, only_if(version, with_stamp(50 + u64::from(next), raise(next))));
        assert!(raised > version);
        assert_eq!(done(&mut core, raise(next)), raised, "nothing is to be done");
        assert_eq!(done(&mut core, only_if(version, raise(next))), raised);
        if at % 2 == 0 {
            checkpoint(&mut core);
        }
        drop(core);
        core = open(&medium).expect("it was left whole");
        let other = Some(Refused::OtherChain { chain: next });
        assert_eq!(chain(&core), Some(next));
        assert_eq!(refusal(&mut core, write(before)), other);
        assert_eq!(refusal(&mut core, raise(before)), other);
        version = done(&mut core, with_stamp(7, write(next)));
        assert_eq!(refusal(&mut core, only_if(raised, write(before))), other);
        let again = done(&mut core, with_stamp(7, write(before)));
        assert_eq!(again, version, "what was made is known, whatever it names");
    }
    assert_eq!(read(&mut core, CHUNK, 0, 100).expect("as written"), [CHAIN_MAX as u8; 100]);
    let beyond = ask(&mut core, raise(CHAIN_MAX + 1));
    assert!(matches!(beyond, Reply::Change(Err(ChangeError::Chain(_)))));
    delete(&mut core, CHUNK);
    let beyond = ask(&mut core, create_on(CHAIN_MAX + 1));
    assert!(matches!(beyond, Reply::Change(Err(ChangeError::Chain(_)))));
}

#[test]
fn changes_that_are_under_way_with_a_raise_are_made_before_it_or_name_the_new_chain_version() {
    for seed in 0..20 {
        println!("seed {seed}");
        let medium = medium(seed);
        let mut core = open(&medium).expect("a new store");
        done(&mut core, create_on(1));
        let write = |named, at: u64| on_chain(named, write_request(CHUNK, at * 4096, &[1; 4096]));
        let asked = [write(1, 0), raise(2), write(1, 1), write(2, 2), raise(1), raise(2)];
        for (token, request) in (0..).zip(asked) {
            core.submit(Client { asker: 0, token }, request);
            if seed % 2 == 0 {
                core.turn(None).expect("it speaks");
            }
        }
        settle(&mut core);
        for (_, Completion { token, reply, .. }) in core.take_answers() {
            let is_late = token == 2 || token == 4;
            let other = is_late.then_some(Refused::OtherChain { chain: 2 });
            assert_eq!((refused(&reply), made(&reply).is_some()), (other, !is_late), "{token}");
        }
        assert_eq!(chain(&core), Some(2));
    }
}

#[test]
fn a_raise_on_a_version_that_does_not_come_about_does_not_happen_either() {
    for seed in 0..20 {
        println!("seed {seed}");
        let medium = medium(seed);
        medium.set_durable_writes(DurableWrites::None);
        let mut core = open(&medium).expect("a new store");
        let version = done(&mut core, create_on(1));
        let first = core.layout.data_page(1);
        medium.fail(towpath_disk::What::Write, PageNumber(first.0), 1);
        let to = |token| Client { asker: 0, token };
        let write = |named, at: u64| on_chain(named, write_request(CHUNK, at * 4096, &[1; 4096]));
        core.submit(to(0), only_if(version, write(1, 0)));
        core.submit(to(1), only_if(version + 1, raise(2)));
        core.submit(to(2), write(1, 1));
        core.submit(to(3), write(2, 2));
        if seed % 2 == 0 {
            core.turn(None).expect("it speaks");
        }
        settle(&mut core);
        for (_, Completion { token, reply, .. }) in core.take_answers() {
            match token {
                0 => {
                    assert!(matches!(
                        reply,
                        Reply::Write { result: Err(ChangeError::Media(_)), .. }
                    ));
                }
                1 => assert_eq!(refused(&reply), Some(Refused::OtherVersion { version })),
                2 => assert!(made(&reply).is_some()),
                _ => assert_eq!(refused(&reply), Some(Refused::OtherChain { chain: 1 })),
            }
        }
        assert_eq!(chain(&core), Some(1));
    }
}

/// The versions that a store gives, one after another, over a restart.
fn versions(version_seed: u64) -> Vec<u64> {
    let medium = medium(11);
    let config = CoreConfig { version_seed, ..CONFIG };
    let mut versions = Vec::new();
    for _ in 0..2 {
        // The seed is for a new store alone.
        let config = if versions.is_empty() { config } else { CONFIG };
        let mut core = open_as(&medium, &config).expect("it opens");
        for chunk in [1, 2].map(ChunkId) {
            if core.stat(chunk).is_none() {
                versions.push(done(&mut core, create_request(chunk)));
            }
            versions.push(done(&mut core, write_request(chunk, 0, &[1; 100])));
        }
        checkpoint(&mut core);
    }
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    versions
}

#[test]
fn stores_that_were_made_apart_give_no_version_twice_and_have_numbers_left() {
    let mut prng = Prng::new(12);
    let mut seen = std::collections::HashSet::new();
    for seed in [0, u64::MAX].into_iter().chain((0..20).map(|_| prng.next_u64())) {
        let versions = versions(seed);
        let (first, last) = (versions[0], versions[versions.len() - 1]);
        assert!(first >= 1 && last < (1 << 61) + 100, "{first} to {last}");
        assert!(versions.into_iter().all(|version| seen.insert(version)), "seed {seed}");
        assert_eq!(self::versions(seed)[0], first, "the same seed gives the same versions");
    }
}
