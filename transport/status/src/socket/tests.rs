//! Processes that are asked, that are not there, and that do not come by.

use super::*;
use crate::{AskError, LinkStatus, PoolStatus, WorkerStatus, ask};
use std::time::Duration;

fn room() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("room for a directory");
    let path = dir.path().join("status");
    (dir, path)
}

fn status(name: &str) -> ProcessStatus {
    ProcessStatus { program: name.to_owned(), ..ProcessStatus::default() }
}

/// Asks from another thread while this one comes by.
fn ask_beside(
    socket: &mut StatusSocket,
    mut tell: impl FnMut() -> ProcessStatus,
) -> Result<ProcessStatus, AskError> {
    let path = socket.path().to_owned();
    let asking = thread::spawn(move || ask(&path));
    while !asking.is_finished() {
        socket.answer_when_asked(&mut tell);
        thread::sleep(Duration::from_micros(100));
    }
    asking.join().expect("no panic")
}

#[test]
fn each_who_asks_gets_a_status_of_that_moment() {
    let (_dir, path) = room();
    let mut socket = StatusSocket::bind(&path).expect("a fresh path");
    let mut told = 0;
    for round in 1..=5 {
        let answer = ask_beside(&mut socket, || {
            told += 1;
            ProcessStatus { link_count: told, ..status("me") }
        });
        assert_eq!(answer.expect("an answer").link_count, round, "built once for each");
    }
}

#[test]
fn nobody_asks_and_nothing_is_gathered() {
    let (_dir, path) = room();
    let mut socket = StatusSocket::bind(&path).expect("a fresh path");
    for _ in 0..100 {
        socket.answer_when_asked(|| panic!("nobody has asked"));
    }
}

#[test]
fn a_network_thread_that_does_not_come_by_is_told_of_and_its_late_answer_goes_to_nobody() {
    let (_dir, path) = room();
    let mut socket = StatusSocket::bind(&path).expect("a fresh path");
    let error = ask(&path).expect_err("nobody comes by");
    let AskError::Silent { waited_ms } = error else { panic!("{error}") };
    assert_eq!(u128::from(waited_ms), OWNER_WAIT.as_millis());
    // As one that has seen the flag just before the wait was over.
    let desk = socket.desk.as_ref().expect("not dropped");
    desk.answers.try_send((0, status("late"))).expect("room for one");
    let answer = ask_beside(&mut socket, || status("fresh"));
    assert_eq!(answer.expect("an answer").program, "fresh");
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_or_a_file_is_left_alone() {
    let (_dir, path) = room();
    drop(UnixListener::bind(&path).expect("a fresh path"));
    assert!(path.exists(), "as a process that was killed leaves it");
    let mut socket = StatusSocket::bind(&path).expect("nobody is there");
    let error = StatusSocket::bind(&path).expect_err("somebody is there");
    assert!(matches!(error, SocketError::Taken(_)), "{error}");
    assert!(ask_beside(&mut socket, || status("me")).is_ok(), "unharmed");
    let file = path.with_extension("txt");
    fs::write(&file, "precious").expect("a file");
    let error = StatusSocket::bind(&file).expect_err("a file is there");
    assert!(matches!(error, SocketError::NoSocket(_)), "{error}");
    assert_eq!(fs::read(&file).expect("it is there"), b"precious");
    let long = path.with_file_name("a".repeat(200));
    let error = StatusSocket::bind(&long).expect_err("too long for a socket");
    assert!(matches!(error, SocketError::Bind { .. }), "{error}");
}

#[test]
fn only_the_user_may_ask_and_the_socket_goes_with_its_owner() {
    let (_dir, path) = room();
    let socket = StatusSocket::bind(&path).expect("a fresh path");
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(socket);
    assert!(!path.exists());
    let error = ask(&path).expect_err("nobody is there");
    assert!(matches!(error, AskError::Connect { .. }), "{error}");
}

#[test]
fn an_owner_that_goes_away_while_it_is_asked_is_not_waited_for() {
    let (_dir, path) = room();
    let socket = StatusSocket::bind(&path).expect("a fresh path");
    let asking = thread::spawn(move || ask(&path));
    while socket.flags.asked.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    drop(socket);
    assert!(asking.join().expect("no panic").is_err());
}

#[test]
fn what_one_side_does_not_know_is_no_error() {
    let old = r#"{"program":"p","new":{"a":1},"links":[{"peer":"10.0.0.1:4791","newer":2}]}"#;
    let told: ProcessStatus = serde_json::from_str(old).expect("fields may be added");
    let peer = Some("10.0.0.1:4791".parse().expect("an address"));
    let links = vec![LinkStatus { peer, ..LinkStatus::default() }];
    assert_eq!(told, ProcessStatus { links, ..status("p") });
}

#[test]
fn what_is_in_use_comes_over_as_it_was_told() {
    let (_dir, path) = room();
    let mut socket = StatusSocket::bind(&path).expect("a fresh path");
    let told = ProcessStatus {
        cpu_ns: u64::MAX,
        per_worker: vec![WorkerStatus {
            cpu_ns: 1,
            links: 2,
            links_max: 3,
            qps: 4,
            qps_max: 5,
            receives_posted: 6,
            receives_wanted: 7,
            receive_buffers: 8,
            receive_buffers_max: 9,
            send_buffers_out: 10,
            send_buffers_max: 11,
            pools: vec![PoolStatus {
                name: String::from("send 256"),
                out: 12,
                max: 13,
                most_link: Some(14),
                most_peer: Some(([10, 0, 0, 9], 4791).into()),
                most_held: 15,
            }],
            worker: 0,
        }],
        links: vec![LinkStatus {
            qps: 1,
            channels: 2,
            channels_max: 3,
            credit_given: 4,
            credit_given_max: 5,
            credit_left: 6,
            sends: 7,
            sends_max: 8,
            messages_queued: 9,
            queued_bytes: 10,
            in_flight_bytes: 11,
            window_bytes: 12,
            ..LinkStatus::default()
        }],
        workers: 1,
        ..status("me")
    };
    let answer = ask_beside(&mut socket, || told.clone());
    assert_eq!(answer.expect("an answer"), told);
}

#[test]
fn bytes_that_are_no_status_are_an_error() {
    let (_dir, path) = room();
    let listener = UnixListener::bind(&path).expect("a fresh path");
    for bytes in [&b"{}"[..], b"", b"[[[[", b"{\"status\":3}", b"\xff\xfe", b"null\n"] {
        let asking = thread::spawn({
            let path = path.clone();
            move || ask(&path)
        });
        let (mut stream, _) = listener.accept().expect("somebody asks");
        stream.write_all(bytes).expect("room");
        drop(stream);
        let error = asking.join().expect("no panic").expect_err("no status");
        assert!(matches!(error, AskError::Malformed { .. } | AskError::Read { .. }), "{error}");
    }
}

#[test]
fn several_owners_answer_as_one_and_who_does_not_is_counted() {
    let (_dir, path) = room();
    let (mut socket, mut desks) = StatusSocket::bind_for(&path, 3).expect("a fresh path");
    let link = |index, state: &str| LinkStatus {
        index,
        paths: vec![crate::PathStatus { state: state.to_owned(), ..Default::default() }],
        ..Default::default()
    };
    let of = |links: Vec<LinkStatus>| {
        let cpu_ns = 10 + links.len() as u64;
        let per_worker = vec![WorkerStatus { cpu_ns, ..WorkerStatus::default() }];
        ProcessStatus { cpu_ns, link_count: 7, links, per_worker, ..status("me") }
    };
    let mut last = desks.pop().expect("two");
    let mut middle = desks.pop().expect("two");
    let answer = ask_beside(&mut socket, || {
        // The others come by while the first one does.
        last.answer_when_asked(|| of(vec![link(0, "dead"), link(1, "good")]));
        middle.answer_when_asked(|| of(vec![link(0, "good")]));
        of(vec![link(5, "good")])
    });
    let all = answer.expect("an answer");
    assert_eq!((all.workers, all.workers_silent, all.link_count), (3, 0, 21));
    let spent: Vec<_> = all.per_worker.iter().map(|of| (of.worker, of.cpu_ns)).collect();
    assert_eq!((spent, all.cpu_ns), (vec![(0, 11), (1, 11), (2, 12)], 12), "the last reading");
    let links: Vec<_> = all.links.iter().map(|link| (link.worker, link.index)).collect();
    assert_eq!(links, [(2, 0), (0, 5), (1, 0), (2, 1)], "the one that is not well first");

    drop(middle);
    let answer = ask_beside(&mut socket, || {
        last.answer_when_asked(|| of(Vec::new()));
        of(Vec::new())
    });
    let some = answer.expect("an answer");
    assert_eq!((some.workers, some.workers_silent, some.link_count), (3, 1, 14));
    for owners in [0, OWNERS_MAX + 1] {
        let error = StatusSocket::bind_for(&path, owners).expect_err("no such number");
        assert!(matches!(error, SocketError::Owners { wanted } if wanted == owners), "{error}");
    }
}
