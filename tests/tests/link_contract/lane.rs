//! One-sided operations: what they do, what is refused, and what a revocation and the loss of a
//! queue pair make of them; each way between the two ends.

use crate::pair::{Maker, Node, Pair, pattern};
use std::ops::Range;
use std::sync::atomic::Ordering;
use towpath_memory::{Region, SharedMemory};
use towpath_proto::{Denied, Grant, GrantId, OpError, OpOutcome, Rights};
use towpath_transport::{Endpoint, Event, LaneError, OpOptions, Place, Served};
use towpath_verbs::{Device, QpState};

const MEMORY_BYTES: usize = 1 << 17;

/// What is granted: not all of it, so that there is something before and behind.
const GRANTED: Range<usize> = 4096..MEMORY_BYTES - 4096;

/// Operations under way: more than a device answers at a time.
const DEPTH: u64 = 64;

/// Which end grants memory; the other asks.
#[derive(Clone, Copy)]
enum Owner {
    Far,
    Near,
}

const WAYS: [Owner; 2] = [Owner::Far, Owner::Near];

impl Owner {
    fn end<D: Device<Memory = Region>>(self, pair: &mut Pair<D>) -> &mut Node<D> {
        if matches!(self, Self::Far) { pair.far() } else { &mut pair.near }
    }

    fn asker<D: Device<Memory = Region>>(self, pair: &mut Pair<D>) -> &mut Node<D> {
        if matches!(self, Self::Far) { &mut pair.near } else { pair.far() }
    }

    fn ask<D: Device<Memory = Region>>(self, pair: &mut Pair<D>) -> &mut Endpoint<D> {
        &mut self.asker(pair).endpoint
    }

    /// Grants a range, and waits until the asker knows.
    fn share<D: Device<Memory = Region>>(
        self,
        pair: &mut Pair<D>,
        (memory, range): (&SharedMemory, Range<usize>),
        rights: Rights,
    ) -> GrantId {
        let byte_len = range.len() as u32;
        let owner = self.end(pair);
        let link = owner.link();
        let id = owner.endpoint.grant(link, memory, range, rights).expect("room");
        let is_it = move |event: &Event| match event {
            Event::Granted { grant, .. } if grant.id == id => Some(*grant),
            _ => None,
        };
        let told = pair.until(|pair| self.asker(pair).take(is_it));
        assert_eq!(told, Grant { id, byte_len, rights });
        id
    }

    /// What the asker did to the owner's memory; none where the device does not count.
    fn served<D: Device<Memory = Region>>(self, pair: &mut Pair<D>) -> Option<Served> {
        let owner = self.end(pair);
        let served = owner.endpoint.served(owner.link());
        // Without real NICs all count.
        assert!(served.is_some() || cfg!(feature = "verbs"));
        served
    }

    fn place<D: Device<Memory = Region>>(
        self,
        pair: &mut Pair<D>,
        grant: GrantId,
        offset: u32,
    ) -> Place {
        Place { link: self.asker(pair).link(), grant, offset }
    }

    /// What an operation came to: its outcome, its word, its bytes.
    fn done<D: Device<Memory = Region>>(self, pair: &mut Pair<D>, wanted: u64) -> Done {
        pair.until(|pair| {
            self.asker(pair).take(|event| match event {
                Event::OpDone { token, outcome, word, buf, .. } if *token == wanted => {
                    Some((*outcome, *word, buf.as_ref().map(|buf| buf.to_vec())))
                }
                _ => None,
            })
        })
    }
}

type Done = (OpOutcome, Option<u64>, Option<Vec<u8>>);

/// Memory whose bytes tell where they belong.
fn memory() -> SharedMemory {
    let memory = SharedMemory::new(MEMORY_BYTES).expect("memory for a test");
    memory.write(0, &pattern(MEMORY_BYTES, 9)).expect("it fits");
    memory
}

fn bytes_of(memory: &SharedMemory) -> Vec<u8> {
    let mut bytes = vec![0; MEMORY_BYTES];
    memory.read(0, &mut bytes).expect("it fits");
    bytes
}

fn word_of(memory: &SharedMemory, at: usize) -> u64 {
    memory.word(at).expect("aligned").load(Ordering::Relaxed)
}

pub(crate) fn operations<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    for owner in WAYS {
        let memory = memory();
        let grant = owner.share(&mut pair, (&memory, GRANTED), Rights::ALL);
        let mut expected = bytes_of(&memory);
        // Of one byte, of some packets and a piece, and of all that is granted.
        let ranges = [(1, 1), (4099, 50_001), (0, GRANTED.len() as u32)];
        for ((offset, length), token) in ranges.into_iter().zip(0..) {
            let place = owner.place(&mut pair, grant, offset);
            let bytes = pattern(length as usize, token);
            let options = OpOptions::new().token(2 * token);
            let end = owner.ask(&mut pair);
            let buf = end.copy(&bytes).expect("a free buffer");
            end.write(place, buf, options).expect("allowed");
            let (outcome, _, back) = owner.done(&mut pair, 2 * token);
            assert_eq!(outcome, OpOutcome::Executed);
            assert!(back.is_some_and(|back| back == bytes), "the buffer comes back as it was");
            let start = GRANTED.start + offset as usize;
            expected[start..start + bytes.len()].copy_from_slice(&bytes);
            assert!(bytes_of(&memory) == expected, "{length} bytes at {offset}, and no others");

            let end = owner.ask(&mut pair);
            let buf = end.alloc(bytes.len()).expect("a free buffer");
            end.read(place, length, buf, options.token(2 * token + 1)).expect("allowed");
            let (outcome, _, read) = owner.done(&mut pair, 2 * token + 1);
            assert_eq!(outcome, OpOutcome::Executed);
            assert!(read.is_some_and(|read| read == bytes), "{length} bytes at {offset}");
        }
        let all: u64 = ranges.iter().map(|&(_, length)| u64::from(length)).sum();
        if let Some(served) = owner.served(&mut pair) {
            assert_eq!(
                (served.read_bytes - served.read_again_bytes, served.write_bytes),
                (all, all)
            );
            assert!(served.reads >= 3 && served.writes >= 3 && served.atomics == 0);
        }
    }
}

pub(crate) fn words<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    for owner in WAYS {
        let memory = memory();
        let grant = owner.share(&mut pair, (&memory, GRANTED), Rights::ALL);
        let place = owner.place(&mut pair, grant, 64);
        let options = OpOptions::new().token(100);
        owner.ask(&mut pair).write_word(place, 40, options).expect("allowed");
        assert_eq!(owner.done(&mut pair, 100).0, OpOutcome::Executed);
        assert_eq!(word_of(&memory, GRANTED.start + 64), 40);
        for (compare, swap, was) in [(40, 7, 40), (40, 9, 7)] {
            owner.ask(&mut pair).cmp_swap(place, (compare, swap), options).expect("allowed");
            let (outcome, word, _) = owner.done(&mut pair, 100);
            assert_eq!((outcome, word), (OpOutcome::Executed, Some(was)));
        }
        // Many at a time, each after the one before.
        for token in 0..4 * DEPTH {
            let options = OpOptions::new().token(200 + token);
            owner.ask(&mut pair).fetch_add(place, 1, options).expect("allowed");
        }
        for token in 0..4 * DEPTH {
            let (outcome, word, _) = owner.done(&mut pair, 200 + token);
            assert_eq!((outcome, word), (OpOutcome::Executed, Some(7 + token)));
        }
        assert_eq!(word_of(&memory, GRANTED.start + 64), 7 + 4 * DEPTH);
        let (writes, write_bytes, atomics) = (1, 8, 2 + 4 * DEPTH);
        let expected = Served { writes, write_bytes, atomics, ..Served::default() };
        assert!(owner.served(&mut pair).is_none_or(|served| served == expected));
    }
}

pub(crate) fn refused<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    for owner in WAYS {
        let memory = memory();
        let before = bytes_of(&memory);
        let grant = owner.share(&mut pair, (&memory, GRANTED), Rights::READ);
        let byte_len = GRANTED.len() as u32;
        let options = OpOptions::new();
        let place = owner.place(&mut pair, grant, 0);
        let rights = Err(LaneError::Op(OpError::Rights { rights: Rights::READ }));
        assert_eq!(owner.ask(&mut pair).write_word(place, 1, options), rights);
        assert_eq!(owner.ask(&mut pair).fetch_add(place, 1, options), rights);
        assert_eq!(owner.ask(&mut pair).cmp_swap(place, (1, 2), options), rights);
        for (offset, length) in [(byte_len, 1), (byte_len - 7, 8), (u32::MAX, 2), (0, 0)] {
            let buf = owner.ask(&mut pair).alloc(64).expect("a free buffer");
            let place = Place { offset, ..place };
            let refused = owner.ask(&mut pair).read(place, length, buf, options);
            let error = refused.expect_err("it leaves the grant").error;
            assert_eq!(error, LaneError::Op(OpError::Range { byte_len }), "{offset} {length}");
        }
        let unknown = Place { grant: GrantId(77), ..place };
        let refused = owner.ask(&mut pair).write_word(unknown, 1, options);
        assert_eq!(refused, Err(LaneError::Op(OpError::NoSuchGrant)));
        assert!(bytes_of(&memory) == before);
        assert!(owner.served(&mut pair).is_none_or(|served| served == Served::default()));
    }
}

pub(crate) fn revoked<D: Device<Memory = Region>>(maker: Maker<D>) {
    let mut pair = Pair::new(maker);
    for owner in WAYS {
        let memory = memory();
        let grant = owner.share(&mut pair, (&memory, GRANTED), Rights::ALL);
        let place = owner.place(&mut pair, grant, 0);
        // Words that count on, many under way, until it is revoked in the midst.
        let (mut asked, mut ended) = (0, Vec::new());
        let mut kept = None;
        while kept.is_none() || ended.len() < asked {
            pair.until(|pair| {
                let end = owner.asker(pair);
                while asked - ended.len() < DEPTH as usize && kept.is_none() {
                    let options = OpOptions::new().token(asked as u64);
                    end.endpoint.write_word(place, asked as u64, options).expect("allowed");
                    asked += 1;
                }
                end.take(|event| match event {
                    Event::OpDone { token, outcome, .. } => Some((*token, *outcome)),
                    _ => None,
                })
                .map(|done| ended.push(done))
            });
            if ended.len() == 200 && kept.is_none() {
                let end = owner.end(&mut pair);
                let link = end.link();
                assert!(end.endpoint.revoke(link, grant));
                assert!(!end.endpoint.revoke(link, grant), "once");
                kept = Some(bytes_of(&memory));
            }
        }
        assert!(kept.is_some_and(|kept| kept == bytes_of(&memory)), "nothing comes after it");
        let last = word_of(&memory, GRANTED.start);
        for &(token, outcome) in &ended {
            let denied = [Denied::Device, Denied::Revoked].map(OpOutcome::Denied);
            match outcome {
                OpOutcome::Executed => assert!(token <= last, "{token} is executed, {last} there"),
                _ if denied.contains(&outcome) => assert_ne!(token, last, "denied, and there"),
                OpOutcome::Unknown => {}
                other => panic!("{token}: {other:?}"),
            }
        }
        assert!(ended.iter().any(|&(_, outcome)| outcome != OpOutcome::Executed));
        pair.until(|pair| {
            owner.asker(pair).take(|event| match event {
                Event::Revoked { grant: id, .. } if *id == grant => Some(()),
                _ => None,
            })
        });
        let refused = owner.ask(&mut pair).write_word(place, 1, OpOptions::new());
        assert_eq!(refused, Err(LaneError::Op(OpError::NoSuchGrant)));

        // Another grant of the same memory works, on a queue pair that was made anew if need be.
        let other = owner.share(&mut pair, (&memory, GRANTED), Rights::ALL);
        let place = owner.place(&mut pair, other, 0);
        let options = OpOptions::new().token(u64::MAX);
        owner.ask(&mut pair).fetch_add(place, 1, options).expect("allowed");
        let (outcome, word, _) = owner.done(&mut pair, u64::MAX);
        assert_eq!((outcome, word), (OpOutcome::Executed, Some(last)));
    }
}

pub(crate) fn broken<D: Device<Memory = Region>>(maker: Maker<D>) {
    const ADDITIONS: u64 = 600;
    let mut pair = Pair::new(maker);
    for owner in WAYS {
        let memory = memory();
        let range = GRANTED.start..GRANTED.start + 8;
        let grant = owner.share(&mut pair, (&memory, range.clone()), Rights::ALL);
        let (first, place) = (word_of(&memory, range.start), owner.place(&mut pair, grant, 0));
        let (mut asked, mut fetched, mut unknown, mut breaks) = (0, Vec::new(), 0, 0);
        while (fetched.len() as u64 + unknown) < ADDITIONS {
            let ended = fetched.len() as u64 + unknown;
            // The queue pair of one end or the other, where there is one.
            if ended >= (breaks + 1) * ADDITIONS / 5 {
                breaks += 1;
                let end =
                    if breaks % 2 == 0 { owner.end(&mut pair) } else { owner.asker(&mut pair) };
                let link = end.link();
                if let Some(qp_num) = end.endpoint.lane(link).and_then(|lane| lane.qp_num) {
                    let device = end.endpoint.device_mut();
                    device.modify_qp(qp_num, QpState::Err).expect("any state may go there");
                }
            }
            let (outcome, word) = pair.until(|pair| {
                let end = owner.asker(pair);
                while asked < ADDITIONS && asked - ended < DEPTH {
                    end.endpoint.fetch_add(place, 1, OpOptions::new()).expect("allowed");
                    asked += 1;
                }
                end.take(|event| match event {
                    Event::OpDone { outcome, word, .. } => Some((*outcome, *word)),
                    _ => None,
                })
            });
            match outcome {
                OpOutcome::Executed => fetched.push(word.expect("what it was") - first),
                OpOutcome::Unknown => unknown += 1,
                other => panic!("{other:?}"),
            }
        }
        let sum = word_of(&memory, range.start) - first;
        let sure = fetched.len() as u64;
        println!("{sum} added, {sure} executed, {unknown} unknown");
        assert!((sure..=sure + unknown).contains(&sum), "{sum}: {sure} and {unknown} perhaps");
        assert!(owner.served(&mut pair).is_none_or(|served| served.atomics == sum));
        assert!(fetched.is_sorted_by(|one, next| one < next), "each saw what the last one left");
        assert!(fetched.iter().all(|&was| was < sum));
    }
}
