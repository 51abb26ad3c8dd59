//! What the libraries of others send when they connect, byte for byte, and what they are answered.
//!
//! All but go-redis were recorded between the library, with its defaults, and a server: redis-py
//! 8.1.0, valkey-py 6.2.0, valkey-glide for Python, node-redis 6.3.1, ioredis 6.0.0, iovalkey
//! 0.4.0, redis-cli 7.0.15. What go-redis 9 sends was put together from its source: Debian does not
//! have that version, and its modules come from a registry that our machines do not reach.

mod common;

use common::resp::{all_of, ask, connect, dialogue, serve, table};
use std::io::Write as _;
use std::net::Shutdown;
use towpath_base::Time;
use towpath_kv::serve::{Dialogue as _, Next, ServerConfig};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The reply to HELLO 3 of the first connection.
fn hello3() -> String {
    let version = format!("${}\r\n{VERSION}\r\n", VERSION.len());
    format!(
        "%7\r\n$6\r\nserver\r\n$10\r\ntowpath-kv\r\n$7\r\nversion\r\n{version}$5\r\nproto\r\n:3\r\n\
         $2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
         $7\r\nmodules\r\n*0\r\n"
    )
}

/// What a server answers to these bytes, all of which it takes.
fn answered(bytes: &str) -> String {
    let mut out = Vec::new();
    let taken = dialogue(&table(1 << 30)).take(bytes.as_bytes(), Time::ZERO, &mut out);
    assert_eq!((taken.used, taken.next), (bytes.len(), Next::More { needed: 1 }));
    String::from_utf8(out).expect("text")
}

/// Of a server that tells nobody to move elsewhere.
const NO_NOTIFICATIONS: &str = "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'\r\n";
const SET: &str = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n\
                   *2\r\n$3\r\nGET\r\n$4\r\nnone\r\n";

#[test]
fn redis_py_is_answered() {
    let hello = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n\
         *5\r\n$6\r\nCLIENT\r\n$19\r\nMAINT_NOTIFICATIONS\r\n$2\r\nON\r\n\
         $20\r\nmoving-endpoint-type\r\n$13\r\ninternal-fqdn\r\n\
         *4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$8\r\nredis-py\r\n\
         *4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n8.1.0\r\n";
    // A pipeline, which is a transaction unless asked otherwise.
    let pipeline = "*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n\
         *3\r\n$6\r\nINCRBY\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n\
         *3\r\n$6\r\nEXPIRE\r\n$1\r\na\r\n$3\r\n100\r\n*2\r\n$3\r\nTTL\r\n$1\r\na\r\n\
         *1\r\n$4\r\nEXEC\r\n";
    let queued = "+QUEUED\r\n".repeat(5);
    assert_eq!(
        answered(&[hello, SET, pipeline].concat()),
        hello3()
            + NO_NOTIFICATIONS
            + "+OK\r\n+OK\r\n+OK\r\n$1\r\nv\r\n_\r\n+OK\r\n"
            + &queued
            + "*5\r\n+OK\r\n:2\r\n$1\r\n2\r\n:1\r\n:100\r\n"
    );
}

#[test]
fn valkey_py_is_answered() {
    let hello = "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$9\r\nvalkey-py\r\n\
         *4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n6.2.0\r\n";
    assert_eq!(answered(&[hello, SET].concat()), "+OK\r\n+OK\r\n+OK\r\n$1\r\nv\r\n$-1\r\n");
}

#[test]
fn valkey_glide_is_answered() {
    let hello = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n\
         *4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$7\r\nGlidePy\r\n\
         *4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n0.1.0\r\n\
         *2\r\n$4\r\nINFO\r\n$11\r\nREPLICATION\r\n";
    let answer = answered(&[hello, SET].concat());
    let begin = hello3() + "+OK\r\n+OK\r\n=";
    assert!(answer.starts_with(&begin), "{answer}");
    assert!(answer.contains("\r\ntxt:# Server\r\n") && answer.contains("\r\nrole:master\r\n"));
    assert!(answer.ends_with("\r\n+OK\r\n$1\r\nv\r\n_\r\n"), "{answer}");
}

#[test]
fn node_redis_is_answered() {
    let hello = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n\
         *4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n6.3.1\r\n\
         *4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$10\r\nnode-redis\r\n\
         *5\r\n$6\r\nCLIENT\r\n$19\r\nMAINT_NOTIFICATIONS\r\n$2\r\nON\r\n\
         $20\r\nmoving-endpoint-type\r\n$11\r\nexternal-ip\r\n";
    assert_eq!(
        answered(&[hello, SET].concat()),
        hello3() + "+OK\r\n+OK\r\n" + NO_NOTIFICATIONS + "+OK\r\n$1\r\nv\r\n_\r\n"
    );
}

#[test]
fn ioredis_and_iovalkey_are_answered() {
    let hello = "*2\r\n$5\r\nhello\r\n$1\r\n3\r\n\
         *4\r\n$6\r\nclient\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n6.0.0\r\n\
         *4\r\n$6\r\nclient\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$7\r\nioredis\r\n";
    let info = "*1\r\n$4\r\ninfo\r\n";
    let transaction = "*1\r\n$5\r\nmulti\r\n*3\r\n$3\r\nset\r\n$1\r\na\r\n$1\r\n1\r\n\
         *2\r\n$3\r\nget\r\n$1\r\na\r\n*1\r\n$4\r\nexec\r\n";
    let (old, new) = (answered(info), answered(&[hello, info, transaction].concat()));
    assert!(new.starts_with(&(hello3() + "+OK\r\n+OK\r\n=")), "{new}");
    let done = "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\n1\r\n";
    assert!(new.ends_with(done), "{new}");
    assert!(old.starts_with('$') && old.contains("\r\nloading:0\r\n"), "{old}");
}

#[test]
fn go_redis_is_answered() {
    let hello = "*2\r\n$5\r\nhello\r\n$1\r\n3\r\n\
         *4\r\n$6\r\nclient\r\n$7\r\nsetinfo\r\n$8\r\nLIB-NAME\r\n$19\r\ngo-redis(,go1.24.0)\r\n\
         *4\r\n$6\r\nclient\r\n$7\r\nsetinfo\r\n$7\r\nLIB-VER\r\n$5\r\n9.7.0\r\n";
    assert_eq!(
        answered(&[hello, SET].concat()),
        hello3() + "+OK\r\n+OK\r\n+OK\r\n$1\r\nv\r\n_\r\n"
    );
    // Asked by later versions, which go on without where it is refused.
    let notifications = "*5\r\n$6\r\nclient\r\n$19\r\nmaint_notifications\r\n$2\r\non\r\n\
         $20\r\nmoving-endpoint-type\r\n$11\r\ninternal-ip\r\n";
    let refused = "-ERR unknown subcommand 'maint_notifications'\r\n";
    assert_eq!(answered(notifications), refused);
}

#[test]
fn redis_cli_is_answered() {
    let docs = answered("*2\r\n$7\r\nCOMMAND\r\n$4\r\nDOCS\r\n");
    assert!(docs.starts_with("*96\r\n$3\r\nget\r\n*0\r\n"), "{docs}");
    let docs = answered("HELLO 3\r\n*2\r\n$7\r\nCOMMAND\r\n$4\r\nDOCS\r\n");
    assert!(docs.contains("\r\n*0\r\n%48\r\n$3\r\nget\r\n%0\r\n"), "{docs}");
    let one = answered("COMMAND DOCS mget none\r\n");
    assert_eq!(one, "*2\r\n$4\r\nmget\r\n*0\r\n");
    let info = answered("COMMAND INFO get none\r\n");
    assert_eq!(info, "*2\r\n*6\r\n$3\r\nget\r\n:2\r\n*0\r\n:1\r\n:1\r\n:1\r\n*-1\r\n");
}

#[test]
fn a_connection_has_a_form_a_name_and_a_number() {
    let store = table(1 << 30);
    let mut dialogue = dialogue(&store);
    for (line, answer) in [
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT ID", ":1\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("CLIENT NO-EVICT ON", "+OK\r\n"),
        ("CLIENT REPLY OFF", "-ERR unknown subcommand 'REPLY'\r\n"),
        (
            "CONFIG GET save appendonly",
            "*4\r\n$4\r\nsave\r\n$0\r\n\r\n$10\r\nappendonly\r\n$2\r\nno\r\n",
        ),
        ("HELLO 3 SETNAME you", hello3().as_str()),
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO", hello3().as_str()),
        ("CLIENT GETNAME", "$3\r\nyou\r\n"),
        ("GET none", "_\r\n"),
        ("SET none v XX", "_\r\n"),
        ("MGET none", "*1\r\n_\r\n"),
        ("CONFIG GET save", "%1\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("RESET", "+RESET\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
    ] {
        assert_eq!(ask(&mut dialogue, line, Time::ZERO), answer, "{line}");
    }
    let wrong = "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$3\r\na b\r\n";
    assert!(answered(wrong).starts_with("-ERR Client names cannot"));
    assert!(answered("HELLO 3 AUTH default x\r\n").starts_with("-ERR AUTH called without"));
}

#[test]
fn commands_about_values_are_answered_as_other_servers_answer_them() {
    let mut dialogue = dialogue(&table(1 << 30));
    for (line, answer) in [
        ("SETNX k 1", ":1\r\n"),
        ("SETNX k 2", ":0\r\n"),
        ("GETSET k 5", "$1\r\n1\r\n"),
        ("GETSET fresh 5", "$-1\r\n"),
        ("SET k 6 GET", "$1\r\n5\r\n"),
        ("SET k 7 NX GET", "$1\r\n6\r\n"),
        ("SET none 7 XX GET", "$-1\r\n"),
        ("INCRBY k 10", ":16\r\n"),
        ("DECRBY k 20", ":-4\r\n"),
        ("DECR k", ":-5\r\n"),
        ("APPEND k 00", ":4\r\n"),
        ("APPEND text hello", ":5\r\n"),
        ("STRLEN text", ":5\r\n"),
        ("STRLEN none", ":0\r\n"),
        ("GETRANGE text 1 2", "$2\r\nel\r\n"),
        ("GETRANGE text -3 -1", "$3\r\nllo\r\n"),
        ("GETRANGE text 3 99", "$2\r\nlo\r\n"),
        ("GETRANGE text 3 2", "$0\r\n\r\n"),
        ("GETRANGE text -99 0", "$1\r\nh\r\n"),
        ("GETRANGE none 0 -1", "$0\r\n\r\n"),
        ("MSET a 1 b 2", "+OK\r\n"),
        ("MSETNX c 3 b 4", ":0\r\n"),
        ("EXISTS c", ":0\r\n"),
        ("MSETNX c 3 d 4", ":1\r\n"),
        ("MGET a b c d", "*4\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n"),
        ("TOUCH a b none", ":2\r\n"),
        ("UNLINK a b none", ":2\r\n"),
        ("TYPE c", "+string\r\n"),
        ("TYPE a", "+none\r\n"),
        ("GETDEL c", "$1\r\n3\r\n"),
        ("GETDEL c", "$-1\r\n"),
        ("DBSIZE", ":4\r\n"),
        ("FLUSHDB ASYNC", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
    ] {
        assert_eq!(ask(&mut dialogue, line, Time::ZERO), answer, "{line}");
    }
}

#[test]
fn commands_about_times_are_answered_as_other_servers_answer_them() {
    let mut dialogue = dialogue(&table(1 << 30));
    for (line, answer) in [
        ("TTL k", ":-2\r\n"),
        ("EXPIRE k 5", ":0\r\n"),
        ("SETEX k 5 v", "+OK\r\n"),
        ("TTL k", ":5\r\n"),
        ("PSETEX k 1400 v", "+OK\r\n"),
        ("TTL k", ":1\r\n"),
        ("PTTL k", ":1400\r\n"),
        ("SET k w KEEPTTL", "+OK\r\n"),
        ("APPEND k x", ":2\r\n"),
        ("PTTL k", ":1400\r\n"),
        ("PERSIST k", ":1\r\n"),
        ("PERSIST k", ":0\r\n"),
        ("TTL k", ":-1\r\n"),
        ("EXPIRE k 9 XX", ":0\r\n"),
        ("EXPIRE k 9 GT", ":0\r\n"),
        ("EXPIRE k 9 LT", ":1\r\n"),
        ("EXPIRE k 9 NX", ":0\r\n"),
        ("PEXPIRE k 9001 GT", ":1\r\n"),
        ("PEXPIRE k 9001 LT", ":0\r\n"),
        ("GETEX k PERSIST", "$2\r\nwx\r\n"),
        ("TTL k", ":-1\r\n"),
        ("GETEX k EX 3", "$2\r\nwx\r\n"),
        ("GETEX k", "$2\r\nwx\r\n"),
        ("TTL k", ":3\r\n"),
        ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command\r\n"),
        ("SETEX k 0 v", "-ERR invalid expire time in 'setex' command\r\n"),
        ("EXPIRE k -1", ":1\r\n"),
        ("EXISTS k", ":0\r\n"),
    ] {
        assert_eq!(ask(&mut dialogue, line, Time::ZERO), answer, "{line}");
    }
    ask(&mut dialogue, "PSETEX k 10 v", Time::ZERO);
    assert_eq!(ask(&mut dialogue, "PTTL k", Time(9_999_999)), ":1\r\n");
    assert_eq!(ask(&mut dialogue, "PTTL k", Time(10_000_000)), ":-2\r\n");
}

/// A page of any site may have a browser send such a request to a server that the page itself
/// cannot reach: the commands in its body must not be carried out.
#[test]
fn a_request_of_http_ends_the_connection_before_its_body() {
    let (server, address) = serve(ServerConfig::default(), 100, 1 << 30);
    let body = "\r\nSET k v\r\n";
    for begin in ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", "Post x\r\n"] {
        let answer = all_of(connect(address), [begin, body].concat().as_bytes());
        let answer = String::from_utf8(answer).expect("text");
        assert!(answer.ends_with("-ERR this is no HTTP server\r\n"), "{answer}");
    }
    let words = "MULTI\r\n*1\r\n$4\r\nPOST\r\nSET k v\r\nEXEC\r\n";
    assert!(all_of(connect(address), words.as_bytes()).ends_with(b"no HTTP server\r\n"));
    assert_eq!(all_of(connect(address), b"EXISTS k\r\n"), b":0\r\n");
    assert_eq!(server.counters().counted().malformed, 4);
    let mut quiet = connect(address);
    quiet.write_all(b"GET Host:\r\nSET host: v\r\n").expect("it reads");
    quiet.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(all_of(quiet, b""), b"$-1\r\n+OK\r\n", "as a key it is one");
}
