//! Transactions of others' clients: what is queued, carried out, refused, and what nobody sees.

mod common;

use common::resp::{ask, command, dialogue, table};
use common::{seeds, stores};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use towpath_base::{Prng, Time};
use towpath_kv::limits::{
    KEY_BYTES_MAX, REPLY_BYTES_MAX, STORE_BYTES_MIN, TRANSACTION_COMMANDS_MAX, VALUE_BYTES_MAX,
    WATCHED_KEYS_MAX,
};
use towpath_kv::resp::RespDialogue;
use towpath_kv::serve::Dialogue as _;
use towpath_kv::{Evict, Put, Store, Table};

const NOW: Time = Time::ZERO;

fn said(dialogue: &mut RespDialogue, lines: &[(&str, &str)]) {
    for (line, answer) in lines {
        assert_eq!(ask(dialogue, line, NOW), *answer, "{line}");
    }
}

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";

#[test]
fn what_is_queued_is_carried_out_by_exec_and_not_before() {
    for store in stores(1 << 30) {
        let (mut one, mut other) = (dialogue(&store), dialogue(&store));
        said(
            &mut one,
            &[
                ("MULTI", "+OK\r\n"),
                ("SET k 41", "+QUEUED\r\n"),
                ("INCR k", "+QUEUED\r\n"),
                ("GET none", "+QUEUED\r\n"),
            ],
        );
        said(&mut other, &[("GET k", "$-1\r\n")]);
        said(
            &mut one,
            &[
                ("EXEC", "*3\r\n+OK\r\n:42\r\n$-1\r\n"),
                ("GET k", "$2\r\n42\r\n"),
                ("MULTI", "+OK\r\n"),
                ("DEL k", "+QUEUED\r\n"),
                ("DISCARD", "+OK\r\n"),
                ("GET k", "$2\r\n42\r\n"),
                ("MULTI", "+OK\r\n"),
                ("EXEC", "*0\r\n"),
                ("EXEC", "-ERR EXEC without MULTI\r\n"),
                ("DISCARD", "-ERR DISCARD without MULTI\r\n"),
            ],
        );
    }
}

#[test]
fn an_error_while_it_is_queued_aborts_and_one_while_it_is_carried_out_does_not() {
    for store in stores(1 << 30) {
        let mut dialogue = dialogue(&store);
        for wrong in ["HGETALL k", "GET", "EVALSHA x 0", "CLIENT KILL all"] {
            said(&mut dialogue, &[("MULTI", "+OK\r\n"), ("SET k v", "+QUEUED\r\n")]);
            assert!(ask(&mut dialogue, wrong, NOW).starts_with("-ERR"), "{wrong}");
            said(
                &mut dialogue,
                &[("SET k w", "+QUEUED\r\n"), ("EXEC", ABORTED), ("GET k", "$-1\r\n")],
            );
        }
        said(
            &mut dialogue,
            &[
                ("MULTI", "+OK\r\n"),
                ("SET k v", "+QUEUED\r\n"),
                ("INCR k", "+QUEUED\r\n"),
                ("SET k v OTHER", "+QUEUED\r\n"),
                ("SET other w", "+QUEUED\r\n"),
                ("MULTI", "-ERR MULTI calls can not be nested\r\n"),
                ("WATCH k", "-ERR WATCH inside MULTI is not allowed\r\n"),
                (
                    "EXEC",
                    "*4\r\n+OK\r\n-ERR value is not an integer or out of range\r\n\
                 -ERR syntax error\r\n+OK\r\n",
                ),
                ("GET other", "$1\r\nw\r\n"),
            ],
        );
    }
}

#[test]
fn a_key_that_is_watched_and_changed_forbids_it() {
    for store in stores(1 << 30) {
        let (mut one, mut other) = (dialogue(&store), dialogue(&store));
        said(&mut other, &[("SET k v", "+OK\r\n")]);
        let changes = ["SET k v", "SET k v PX 9", "DEL k", "APPEND k w", "EXPIRE k 9", "FLUSHALL"];
        for change in changes {
            said(&mut other, &[("SET k v", "+OK\r\n")]);
            said(&mut one, &[("WATCH k other", "+OK\r\n"), ("MULTI", "+OK\r\n")]);
            ask(&mut other, change, NOW);
            said(&mut one, &[("SET n 1", "+QUEUED\r\n"), ("EXEC", "*-1\r\n")]);
            said(&mut one, &[("GET n", "$-1\r\n"), ("MULTI", "+OK\r\n"), ("EXEC", "*0\r\n")]);
        }
        // It is there, and gone again: whoever watches may have seen it.
        said(&mut one, &[("WATCH fresh", "+OK\r\n"), ("MULTI", "+OK\r\n")]);
        said(&mut other, &[("SET fresh 1", "+OK\r\n"), ("DEL fresh", ":1\r\n")]);
        said(&mut one, &[("EXEC", "*-1\r\n")]);
        // What changes nothing forbids nothing.
        said(&mut one, &[("WATCH k", "+OK\r\n"), ("MULTI", "+OK\r\n")]);
        said(&mut other, &[("GET k", "$-1\r\n"), ("TTL k", ":-2\r\n"), ("DEL k", ":0\r\n")]);
        said(&mut one, &[("EXEC", "*0\r\n")]);
        for forget in ["UNWATCH", "DISCARD", "RESET"] {
            said(&mut one, &[("WATCH k", "+OK\r\n"), ("MULTI", "+OK\r\n")]);
            said(&mut other, &[("SET k v", "+OK\r\n")]);
            if forget == "UNWATCH" {
                said(&mut one, &[("DISCARD", "+OK\r\n")]);
            }
            ask(&mut one, forget, NOW);
            said(&mut one, &[("MULTI", "+OK\r\n"), ("EXEC", "*0\r\n")]);
        }
    }
}

#[test]
fn a_key_that_is_watched_and_expires_forbids_it() {
    for store in stores(1 << 30) {
        let mut dialogue = dialogue(&store);
        for (until, answer) in [(4_999_999, "*0\r\n"), (5_000_000, "*-1\r\n")] {
            said(&mut dialogue, &[("SET k v PX 5", "+OK\r\n"), ("WATCH k", "+OK\r\n")]);
            said(&mut dialogue, &[("MULTI", "+OK\r\n")]);
            assert_eq!(ask(&mut dialogue, "EXEC", Time(until)), answer);
        }
    }
}

#[test]
fn what_a_connection_queues_and_watches_is_bounded() {
    let mut dialogue = dialogue(&table(1 << 30));
    let keys: Vec<_> = (0..=WATCHED_KEYS_MAX).map(|key| format!("WATCH {key}")).collect();
    let (last, others) = keys.split_last().expect("some");
    others.iter().for_each(|line| assert_eq!(ask(&mut dialogue, line, NOW), "+OK\r\n"));
    assert!(ask(&mut dialogue, last, NOW).starts_with("-ERR a connection watches at most"));
    assert_eq!(ask(&mut dialogue, "WATCH 0", NOW), "+OK\r\n", "one that is watched");
    let long = "x".repeat(KEY_BYTES_MAX + 1);
    let held = dialogue.held_bytes();
    assert_eq!(ask(&mut dialogue, &format!("WATCH {long}"), NOW), "+OK\r\n");
    assert_eq!(dialogue.held_bytes(), held, "it is never there");
    assert_eq!(ask(&mut dialogue, "UNWATCH", NOW), "+OK\r\n");
    assert_eq!(dialogue.held_bytes(), 0);
    assert_eq!(ask(&mut dialogue, "MULTI", NOW), "+OK\r\n");
    for _ in 0..TRANSACTION_COMMANDS_MAX {
        assert_eq!(ask(&mut dialogue, "PING", NOW), "+QUEUED\r\n");
    }
    assert!(dialogue.held_bytes() >= TRANSACTION_COMMANDS_MAX * 14 && dialogue.is_begun());
    assert!(ask(&mut dialogue, "PING", NOW).starts_with("-ERR a transaction has at most"));
    assert_eq!((ask(&mut dialogue, "EXEC", NOW).as_str(), dialogue.held_bytes()), (ABORTED, 0));
    assert!(!dialogue.is_begun());
}

#[test]
fn replies_that_are_too_long_together_are_refused_one_by_one() {
    let mut dialogue = dialogue(&table(1 << 30));
    let value = vec![b'x'; VALUE_BYTES_MAX];
    dialogue.take(&command(&[b"SET", b"k", &value]), NOW, &mut Vec::new());
    said(&mut dialogue, &[("MULTI", "+OK\r\n")]);
    let gets = REPLY_BYTES_MAX / VALUE_BYTES_MAX + 2;
    for _ in 0..gets {
        said(&mut dialogue, &[("GET k", "+QUEUED\r\n"), ("INCR n", "+QUEUED\r\n")]);
    }
    let answer = ask(&mut dialogue, "EXEC", NOW);
    assert!(answer.starts_with(&format!("*{}\r\n$1048576\r\n", 2 * gets)));
    let end = format!("-ERR the reply is too long, ask for fewer keys at a time\r\n:{gets}\r\n");
    assert!(answer.ends_with(&end) && answer.len() < REPLY_BYTES_MAX + 10_000);
}

/// Threads move amounts between keys by transactions, and read all keys by MGET and by EXEC: the
/// sum is always the same.
#[test]
fn nobody_sees_a_part_of_a_transaction() {
    const KEYS: u64 = 4;
    const TOTAL: i64 = 1_000;
    for seed in seeds(3) {
        for store in stores(1 << 30) {
            let total = TOTAL.to_string();
            store.set(b"0", total.as_bytes(), Put::ALWAYS, NOW).expect("room");
            let is_over = AtomicBool::new(false);
            let moves = |thread: u64| {
                let (mut prng, mut dialogue) = (Prng::new(seed << 8 | thread), dialogue(&store));
                for _ in 0..2_000 {
                    let (from, to, by) = (prng.below(KEYS), prng.below(KEYS), prng.below(100));
                    let lines =
                        format!("MULTI\r\nDECRBY {from} {by}\r\nINCRBY {to} {by}\r\nEXEC\r\n");
                    dialogue.take(lines.as_bytes(), NOW, &mut Vec::new());
                }
            };
            let reads = || {
                let mut dialogue = dialogue(&store);
                while !is_over.load(Relaxed) {
                    for line in [
                        "MGET 0 1 2 3\r\n",
                        "MULTI\r\nGET 0\r\nGET 1\r\nGET 2\r\nGET 3\r\nEXEC\r\n",
                    ] {
                        let mut out = Vec::new();
                        dialogue.take(line.as_bytes(), NOW, &mut out);
                        let text = String::from_utf8(out).expect("text");
                        let sum: i64 =
                            text.lines().filter_map(|line| line.parse::<i64>().ok()).sum();
                        assert_eq!(sum, TOTAL, "{text}");
                    }
                }
            };
            thread::scope(|scope| {
                let readers = [(); 2].map(|()| scope.spawn(reads));
                let moves = &moves;
                let movers = [1, 2, 3].map(|number| scope.spawn(move || moves(number)));
                movers.into_iter().for_each(|mover| mover.join().expect("no panic"));
                is_over.store(true, Relaxed);
                readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
            });
        }
    }
}

/// Threads add 1 by WATCH, GET, MULTI, SET and EXEC, and try again where it is forbidden: nothing
/// is lost.
#[test]
fn a_change_that_was_watched_for_is_never_lost() {
    const THREADS: u64 = 4;
    const TIMES: u64 = 500;
    for store in stores(1 << 30) {
        let add = || {
            let mut dialogue = dialogue(&store);
            let mut done = 0;
            while done < TIMES {
                ask(&mut dialogue, "WATCH n", NOW);
                let had = ask(&mut dialogue, "GET n", NOW);
                let had: u64 = had.lines().nth(1).map_or(0, |had| had.parse().expect("a number"));
                ask(&mut dialogue, "MULTI", NOW);
                ask(&mut dialogue, &format!("SET n {}", had + 1), NOW);
                done += u64::from(ask(&mut dialogue, "EXEC", NOW) == "*1\r\n+OK\r\n");
            }
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(add);
            }
        });
        let sum = ask(&mut dialogue(&store), "GET n", NOW);
        assert_eq!(sum.lines().nth(1), Some((THREADS * TIMES).to_string().as_str()));
    }
}

#[test]
fn what_was_evicted_since_it_was_watched_forbids_it() {
    let store: std::sync::Arc<dyn Store> =
        std::sync::Arc::new(Table::new(STORE_BYTES_MIN, Evict::LeastRecentlyUsed));
    let (mut one, mut other) = (dialogue(&store), dialogue(&store));
    said(&mut other, &[("SET k v", "+OK\r\n")]);
    said(&mut one, &[("WATCH k", "+OK\r\n"), ("MULTI", "+OK\r\n")]);
    let value = vec![b'x'; VALUE_BYTES_MAX];
    for key in [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"] {
        other.take(&command(&[b"SET", key, &value]), NOW, &mut Vec::new());
    }
    said(&mut other, &[("EXISTS k", ":0\r\n")]);
    said(&mut one, &[("EXEC", "*-1\r\n")]);
}
