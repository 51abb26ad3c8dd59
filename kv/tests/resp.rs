//! The front that others' clients speak: what they are answered, and what they cannot make it hold.

mod common;

use common::resp::{all_of, ask, command, connect, dialogue, serve, table};
use common::seeds;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use towpath_base::{Nanos, Prng, Time};
use towpath_clock::Clock;
use towpath_kv::limits::{REPLY_BYTES_MAX, STORE_BYTES_MIN, VALUE_BYTES_MAX};
use towpath_kv::resp::TOO_MANY_CONNECTIONS;
use towpath_kv::serve::{Counters, Dialogue, Front, Next, Server, ServerConfig, Taken};

#[test]
fn commands_are_answered_as_other_servers_answer_them() {
    let mut dialogue = dialogue(&table(1 << 30));
    for (line, answer) in [
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("ECHO x", "$1\r\nx\r\n"),
        ("GET k", "$-1\r\n"),
        ("SET k v", "+OK\r\n"),
        ("SET k w NX", "$-1\r\n"),
        ("GET k", "$1\r\nv\r\n"),
        ("SET k 41 XX", "+OK\r\n"),
        ("SET other 1 XX", "$-1\r\n"),
        ("INCR k", ":42\r\n"),
        ("INCR fresh", ":1\r\n"),
        ("SET text abc", "+OK\r\n"),
        ("INCR text", "-ERR value is not an integer or out of range\r\n"),
        ("SET big 9223372036854775807", "+OK\r\n"),
        ("INCR big", "-ERR increment or decrement would overflow\r\n"),
        ("MGET k none text", "*3\r\n$2\r\n42\r\n$-1\r\n$3\r\nabc\r\n"),
        ("EXISTS k k none", ":2\r\n"),
        ("DEL k k none", ":1\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("COMMAND COUNT", ":48\r\n"),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET appendonly", "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"),
        ("CONFIG GET maxmemory", "*2\r\n$9\r\nmaxmemory\r\n$10\r\n1073741824\r\n"),
        ("CONFIG GET other", "*0\r\n"),
        ("CONFIG SET save x", "-ERR unknown subcommand 'SET'\r\n"),
        ("KEYS *", "-ERR unknown command 'KEYS'\r\n"),
    ] {
        assert_eq!(ask(&mut dialogue, line, Time::ZERO), answer, "{line}");
    }
    let info = ask(&mut dialogue, "INFO", Time::ZERO);
    assert!(info.contains("\r\ndb0:keys=3\r\n") && info.contains("maxclients:7\r\n"), "{info}");
    let commands = ask(&mut dialogue, "COMMAND", Time::ZERO);
    let get = "*6\r\n$3\r\nget\r\n:2\r\n*0\r\n:1\r\n:1\r\n:1\r\n";
    assert!(commands.starts_with(&format!("*48\r\n{get}")), "{commands}");
    let docs = ask(&mut dialogue, "COMMAND DOCS", Time::ZERO);
    assert!(docs.starts_with("*96\r\n$3\r\nget\r\n*0\r\n$3\r\nset\r\n"), "{docs}");
}

#[test]
fn a_value_with_a_time_is_gone_after_it() {
    let mut dialogue = dialogue(&table(1 << 30));
    assert_eq!(ask(&mut dialogue, "SET k v EX 2", Time::ZERO), "+OK\r\n");
    assert_eq!(ask(&mut dialogue, "SET p v PX 5", Time::ZERO), "+OK\r\n");
    let just_before = Time(1_999_999_999);
    assert_eq!(ask(&mut dialogue, "EXISTS k p", just_before), ":1\r\n");
    assert_eq!(ask(&mut dialogue, "GET k", just_before), "$1\r\nv\r\n");
    assert_eq!(ask(&mut dialogue, "GET k", Time(2_000_000_000)), "$-1\r\n");
    assert_eq!(ask(&mut dialogue, "SET k v NX", Time(2_000_000_000)), "+OK\r\n");
    assert_eq!(ask(&mut dialogue, "SET k v", Time(2_000_000_001)), "+OK\r\n");
    assert_eq!(ask(&mut dialogue, "GET k", Time(u64::MAX - 1)), "$1\r\nv\r\n", "no time any more");
}

#[test]
fn a_full_store_refuses_writes_and_answers_reads() {
    let mut dialogue = dialogue(&table(STORE_BYTES_MIN));
    let value = vec![b'x'; VALUE_BYTES_MAX];
    let mut out = Vec::new();
    for key in [b"1", b"2", b"3", b"4"] {
        dialogue.take(&command(&[b"SET", key, &value]), Time::ZERO, &mut out);
    }
    let out = String::from_utf8(out).expect("text");
    assert!(out.starts_with("+OK\r\n+OK\r\n+OK\r\n-OOM command not allowed"), "{out}");
    assert!(ask(&mut dialogue, "GET 3", Time::ZERO).starts_with("$1048576\r\nxxx"));
    assert_eq!(ask(&mut dialogue, "GET 4", Time::ZERO), "$-1\r\n");
}

#[test]
fn a_reply_longer_than_any_is_refused_whole() {
    let mut dialogue = dialogue(&table(1 << 30));
    let value = vec![b'x'; VALUE_BYTES_MAX];
    dialogue.take(&command(&[b"SET", b"k", &value]), Time::ZERO, &mut Vec::new());
    let line = format!("MGET{}", " k".repeat(REPLY_BYTES_MAX / VALUE_BYTES_MAX));
    assert_eq!(
        ask(&mut dialogue, &line, Time::ZERO),
        "-ERR the reply is too long, ask for fewer keys at a time\r\n"
    );
}

/// Commands at random, some as lines.
fn commands(prng: &mut Prng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..prng.between(1, 60) {
        let key = format!("key{}", prng.below(5)).into_bytes();
        let mut value = vec![0; prng.below(200) as usize];
        prng.fill(&mut value);
        match prng.below(6) {
            0 => bytes.extend_from_slice(b"PING\r\n"),
            1 => bytes.extend_from_slice(&[b"GET \"", &key[..], b"\"\n"].concat()),
            2 => bytes.extend(command(&[b"INCR", &key])),
            3 => bytes.extend(command(&[b"MGET", &key, b"key1", &key])),
            _ => bytes.extend(command(&[b"set", &key, &value])),
        }
    }
    bytes
}

#[test]
fn requests_in_any_pieces_have_the_same_answers() {
    for seed in seeds(200) {
        let mut prng = Prng::new(seed);
        let (bytes, mut whole) = (commands(&mut prng), Vec::new());
        let taken = dialogue(&table(1 << 30)).take(&bytes, Time::ZERO, &mut whole);
        assert_eq!((taken.used, taken.next), (bytes.len(), Next::More { needed: 1 }));
        let (mut dialogue, mut out) = (dialogue(&table(1 << 30)), Vec::new());
        let (mut used, mut needed) = (0, 1);
        for end in 1..=bytes.len() {
            if end - used < needed || (prng.below(3) > 0 && end < bytes.len()) {
                continue;
            }
            let taken = dialogue.take(&bytes[used..end], Time::ZERO, &mut out);
            used += taken.used;
            let Next::More { needed: more } = taken.next else { panic!("{taken:?}") };
            needed = more;
        }
        assert!(out == whole, "in pieces: {:?}", String::from_utf8_lossy(&out));
    }
}

#[test]
fn connections_are_served_by_any_number_of_threads_asleep_or_polling() {
    for (workers, polls) in [(1, false), (3, false), (2, true)] {
        let config = ServerConfig { workers, polls, ..ServerConfig::default() };
        let (server, address) = serve(config, 100, 1 << 30);
        let streams: Vec<_> = (0..10).map(|_| connect(address)).collect();
        let threads: Vec<_> = streams
            .into_iter()
            .map(|stream| thread::spawn(move || all_of(stream, &b"INCR n\r\n".repeat(1_000))))
            .collect();
        let mut sums: Vec<u64> = Vec::new();
        for thread in threads {
            let answer = String::from_utf8(thread.join().expect("no panic")).expect("text");
            let lines = answer.lines().map(|line| line[1..].parse::<u64>().expect("a sum"));
            let own: Vec<_> = lines.collect();
            assert!(own.is_sorted() && own.len() == 1_000);
            sums.extend(own);
        }
        sums.sort_unstable();
        assert!(sums.into_iter().eq(1..=10_000), "each sum once");
        assert_eq!(server.counters().counted().requests, 10_000);
        server.stop().expect("no thread failed");
    }
}

#[test]
fn what_has_no_meaning_is_told_and_ends_the_connection() {
    let (server, address) = serve(ServerConfig::default(), 100, 1 << 30);
    let bad = b"PING\r\n*1\r\n:5\r\nPING\r\n";
    let answer = String::from_utf8(all_of(connect(address), bad)).expect("text");
    assert_eq!(answer, "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n");
    assert_eq!(all_of(connect(address), b"QUIT\r\nPING\r\n"), b"+OK\r\n");
    assert_eq!(server.counters().counted().malformed, 1);
}

#[test]
fn connections_beyond_the_bound_are_told_so() {
    let (server, address) = serve(ServerConfig::default(), 2, 1 << 30);
    let mut first = [connect(address), connect(address)];
    for stream in &mut first {
        stream.write_all(b"PING\r\n").expect("it reads");
        stream.read_exact(&mut [0; 7]).expect("an answer");
    }
    let mut told = Vec::new();
    connect(address).read_to_end(&mut told).expect("it ends");
    assert_eq!(told, TOO_MANY_CONNECTIONS);
    drop(first);
    let counted = server.counters().counted();
    assert_eq!((counted.accepted, counted.turned_away), (2, 1));
    // There is room again when the server has seen that they are gone.
    while all_of(connect(address), b"PING\r\n") != b"+PONG\r\n" {}
}

#[test]
fn a_client_that_reads_late_is_waited_for_and_gets_all_in_order() {
    let (server, address) = serve(ServerConfig::default(), 100, 1 << 30);
    let value = vec![b'x'; VALUE_BYTES_MAX];
    let mut stream = connect(address);
    stream.write_all(&command(&[b"SET", b"k", &value])).expect("it reads");
    stream.read_exact(&mut [0; 5]).expect("an answer");
    const GETS: usize = 50;
    stream.write_all(&b"GET k\r\nINCR n\r\n".repeat(GETS)).expect("it is little");
    // Another client is served meanwhile, and sees how little the server has done for the first.
    let info = String::from_utf8(all_of(connect(address), b"INFO\r\n")).expect("text");
    let requests = info.split("total_commands_processed:").nth(1).expect("a line");
    let requests: usize = requests.lines().next().expect("it ends").parse().expect("a number");
    assert!(requests < GETS, "{requests} requests before the client read a reply");
    for number in 1..=GETS {
        let mut reply = vec![0; 10 + VALUE_BYTES_MAX + 2];
        stream.read_exact(&mut reply).expect("a value");
        assert!(reply[10..].starts_with(&value));
        let sum = format!(":{number}\r\n");
        let mut reply = vec![0; sum.len()];
        stream.read_exact(&mut reply).expect("a sum");
        assert_eq!(reply, sum.as_bytes());
    }
    assert_eq!(server.counters().counted().slow, 0);
}

#[test]
fn a_client_that_does_not_go_on_is_closed_and_one_with_nothing_to_say_is_not() {
    let config = ServerConfig { stall: Nanos::from_millis(100), ..ServerConfig::default() };
    let (server, address) = serve(config, 100, 1 << 30);
    let mut idle = connect(address);
    let mut half = connect(address);
    half.write_all(b"*2\r\n$3\r\nGET\r\n$1").expect("it reads");
    assert_eq!(half.read(&mut [0; 9]).expect("it ends"), 0);
    let value = vec![b'x'; VALUE_BYTES_MAX];
    let mut deaf = connect(address);
    deaf.write_all(&command(&[b"SET", b"k", &value])).expect("it reads");
    deaf.write_all(&b"GET k\r\n".repeat(40)).expect("it is little");
    while server.counters().counted().slow < 2 {
        thread::yield_now();
    }
    idle.write_all(b"PING\r\n").expect("it is open");
    idle.read_exact(&mut [0; 7]).expect("an answer");
}

#[test]
fn who_needs_more_memory_than_there_is_for_all_is_closed() {
    let config = ServerConfig { buffers_bytes_max: 4 << 20, ..ServerConfig::default() };
    let (server, address) = serve(config, 100, 1 << 30);
    let value = vec![b'x'; VALUE_BYTES_MAX];
    let mut whole = command(&[b"SET", b"k", &value]);
    whole.truncate(VALUE_BYTES_MAX - 1);
    let mut streams: Vec<_> = (0..8).map(|_| connect(address)).collect();
    for stream in &mut streams {
        // Some are closed while they write.
        let _ = stream.write_all(&whole);
    }
    while server.counters().counted().crowded < 4 {
        thread::yield_now();
    }
    assert_eq!(all_of(connect(address), b"PING\r\n"), b"+PONG\r\n");
    assert!(server.counters().counted().crowded < 8, "some fit");
}

/// A client sends all of a value that is too long before it reads why that was refused.
#[test]
fn an_error_is_read_by_a_client_that_still_sends() {
    let (server, address) = serve(ServerConfig::default(), 100, 1 << 30);
    let value = vec![b'x'; 16 * VALUE_BYTES_MAX];
    for begin in ["*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16777216\r\n", "QUIT\r\n"] {
        let mut stream = connect(address);
        stream.write_all(begin.as_bytes()).expect("it reads");
        stream.write_all(&value).expect("it is thrown away");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("no reset");
        let expected = if begin.starts_with('*') {
            "-ERR Protocol error: invalid bulk length\r\n"
        } else {
            "+OK\r\n"
        };
        assert_eq!(answer, expected);
    }
    assert_eq!(server.counters().counted().malformed, 1);
}

#[test]
fn a_client_that_is_turned_away_hears_why_though_it_has_sent_something() {
    let (server, address) = serve(ServerConfig::default(), 1, 1 << 30);
    let mut first = connect(address);
    first.write_all(b"PING\r\n").expect("it reads");
    first.read_exact(&mut [0; 7]).expect("an answer");
    for number in 1..=20 {
        let mut stream = connect(address);
        stream.write_all(&b"HELLO 3\r\n".repeat(1_000)).expect("it is thrown away");
        let mut told = Vec::new();
        stream.read_to_end(&mut told).expect("no reset");
        assert_eq!(told, TOO_MANY_CONNECTIONS);
        assert_eq!(server.counters().counted().turned_away, number);
    }
    assert_eq!(server.counters().counted().connected, 1);
}

/// Others hold all that there is for all: a client within its share is served.
#[test]
fn each_connection_has_a_share_of_the_memory() {
    let config = ServerConfig { buffers_bytes_max: 4 << 20, ..ServerConfig::default() };
    let (server, address) = serve(config, 32, 1 << 30);
    let (share, mut hogs) = ((4 << 20) / 2 / 32, Vec::new());
    let transaction = [&b"MULTI\r\n"[..], &command(&[b"SET", b"k", &[b'x'; 600_000]])].concat();
    for number in 1..=6 {
        let mut hog = connect(address);
        // One is closed while it writes.
        let _ = hog.write_all(&transaction);
        hogs.push(hog);
        // One after the other, each is queued or closed.
        let is_heard = || {
            let counted = server.counters().counted();
            counted.requests >= 2 * number || counted.crowded > 0
        };
        while !is_heard() {
            thread::yield_now();
        }
    }
    assert!(server.counters().counted().crowded > 0, "all is taken");
    for _ in 0..8 {
        let mut small = connect(address);
        let value = vec![b'x'; share / 4];
        small.write_all(&transaction[..7]).expect("it reads");
        small.write_all(&command(&[b"SET", b"k", &value])).expect("it reads");
        let expected = b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n";
        assert_eq!(all_of(small, b"EXEC\r\n"), expected);
    }
}

#[test]
fn a_transaction_that_is_begun_and_not_ended_is_closed() {
    let config = ServerConfig { stall: Nanos::from_millis(100), ..ServerConfig::default() };
    let (server, address) = serve(config, 100, 1 << 30);
    let mut stream = connect(address);
    stream.write_all(b"MULTI\r\nSET k v\r\n").expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends");
    assert_eq!(answer, b"+OK\r\n+QUEUED\r\n");
    assert_eq!(server.counters().counted().slow, 1);
    assert_eq!(all_of(connect(address), b"EXISTS k\r\n"), b":0\r\n");
}

/// Notes what time it is told, and lets time pass.
#[derive(Debug)]
struct Timed {
    clock: Clock,
    gate: Arc<Mutex<()>>,
    times: Sender<(Time, Time)>,
}

impl Dialogue for Timed {
    fn take(&mut self, input: &[u8], now: Time, _: &mut Vec<u8>) -> Taken {
        drop(self.gate.lock());
        self.times.send((now, self.clock.now())).expect("a test");
        while self.clock.now() <= now {}
        Taken { used: input.len(), requests: 1, next: Next::More { needed: 1 } }
    }
}

/// What expired for a client that was told so must have for what it sends then, whichever thread
/// reads that, and in whichever batch.
#[test]
fn each_request_is_carried_out_at_a_time_after_it_was_read() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (gate, (times, told)) = (Arc::new(Mutex::new(())), channel());
    let (clock, held) = (Clock::start(), Arc::clone(&gate));
    let of_dialogue = clock.clone();
    let dialogue = Box::new(move || {
        let (clock, gate, times) = (of_dialogue.clone(), Arc::clone(&gate), times.clone());
        Box::new(Timed { clock, gate, times }) as Box<dyn Dialogue>
    });
    let front = Front { listener, dialogue, turned_away: TOO_MANY_CONNECTIONS, tls: None };
    let (config, counters) = (ServerConfig::default(), Arc::new(Counters::new(100)));
    let _server = Server::start(vec![front], config, counters, &clock).expect("it starts");
    let mut streams: Vec<_> = (0..9).map(|_| connect(address)).collect();
    // Each is known to the worker.
    for stream in &mut streams {
        stream.write_all(b"x").expect("it reads");
        told.recv().expect("a request");
    }
    let closed = held.lock();
    // The first one holds the worker up: all others come in one batch.
    for stream in &mut streams {
        stream.write_all(b"x").expect("it reads");
    }
    drop(closed);
    let (_, mut before) = told.recv().expect("a request");
    for _ in 1..streams.len() {
        let (now, after) = told.recv().expect("a request");
        assert!(now >= before, "{now:?} was sampled before {before:?}");
        before = after;
    }
}

/// A connection of somebody who knows how to have a thread panic.
#[derive(Debug)]
struct Fatal;

impl Dialogue for Fatal {
    fn take(&mut self, input: &[u8], _: Time, out: &mut Vec<u8>) -> Taken {
        assert_ne!(input, b"die");
        out.extend_from_slice(input);
        Taken { used: input.len(), requests: 1, next: Next::More { needed: 1 } }
    }
}

#[test]
fn nobody_waits_for_a_thread_that_has_ended() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let dialogue = Box::new(|| Box::new(Fatal) as Box<dyn Dialogue>);
    let front = Front { listener, dialogue, turned_away: TOO_MANY_CONNECTIONS, tls: None };
    let config = ServerConfig { workers: 2, ..ServerConfig::default() };
    let counters = Arc::new(Counters::new(100));
    let server = Server::start(vec![front], config, counters, &Clock::start()).expect("it starts");
    let mut first = [connect(address), connect(address)];
    for stream in &mut first {
        stream.write_all(b"x").expect("it reads");
        stream.read_exact(&mut [0]).expect("an answer");
    }
    // The first thread accepts, and is the first to have a connection.
    first[1].write_all(b"die").expect("it reads");
    assert_eq!(first[1].read(&mut [0]).expect("closed, as by others"), 0);
    while server.counters().counted().connected > 1 {
        thread::yield_now();
    }
    for _ in 0..10 {
        assert_eq!(all_of(connect(address), b"x"), b"x");
    }
    assert!(server.stop().is_err(), "it tells");
}
