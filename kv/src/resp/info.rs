//! What HELLO, INFO, COMMAND and CONFIG GET tell.

use super::reply::{Form, Replies};
use crate::serve::Counted;
use crate::store::Figures;
use std::borrow::Cow;
use std::fmt::Write as _;

/// A command as COMMAND describes it.
pub(super) struct Described {
    pub(super) name: &'static str,
    /// Words with the name, and negative: at least so many.
    pub(super) arity: i64,
    /// Where its keys are: the first, the last (negative: from the end), and every how many words.
    pub(super) keys: [i64; 3],
}

const fn command(name: &'static str, arity: i64, keys: [i64; 3]) -> Described {
    Described { name, arity, keys }
}

/// All commands.
pub(super) const COMMANDS: [Described; 48] = [
    command("get", 2, [1, 1, 1]),
    command("set", -3, [1, 1, 1]),
    command("setnx", 3, [1, 1, 1]),
    command("setex", 4, [1, 1, 1]),
    command("psetex", 4, [1, 1, 1]),
    command("getset", 3, [1, 1, 1]),
    command("getdel", 2, [1, 1, 1]),
    command("getex", -2, [1, 1, 1]),
    command("append", 3, [1, 1, 1]),
    command("strlen", 2, [1, 1, 1]),
    command("getrange", 4, [1, 1, 1]),
    command("substr", 4, [1, 1, 1]),
    command("del", -2, [1, -1, 1]),
    command("unlink", -2, [1, -1, 1]),
    command("exists", -2, [1, -1, 1]),
    command("touch", -2, [1, -1, 1]),
    command("type", 2, [1, 1, 1]),
    command("mget", -2, [1, -1, 1]),
    command("mset", -3, [1, -1, 2]),
    command("msetnx", -3, [1, -1, 2]),
    command("incr", 2, [1, 1, 1]),
    command("decr", 2, [1, 1, 1]),
    command("incrby", 3, [1, 1, 1]),
    command("decrby", 3, [1, 1, 1]),
    command("expire", -3, [1, 1, 1]),
    command("pexpire", -3, [1, 1, 1]),
    command("persist", 2, [1, 1, 1]),
    command("ttl", 2, [1, 1, 1]),
    command("pttl", 2, [1, 1, 1]),
    command("dbsize", 1, [0, 0, 0]),
    command("flushall", -1, [0, 0, 0]),
    command("flushdb", -1, [0, 0, 0]),
    command("multi", 1, [0, 0, 0]),
    command("exec", 1, [0, 0, 0]),
    command("discard", 1, [0, 0, 0]),
    command("watch", -2, [1, -1, 1]),
    command("unwatch", 1, [0, 0, 0]),
    command("hello", -1, [0, 0, 0]),
    command("auth", -2, [0, 0, 0]),
    command("client", -2, [0, 0, 0]),
    command("reset", 1, [0, 0, 0]),
    command("ping", -1, [0, 0, 0]),
    command("echo", 2, [0, 0, 0]),
    command("info", -1, [0, 0, 0]),
    command("command", -1, [0, 0, 0]),
    command("config", -2, [0, 0, 0]),
    command("select", 2, [0, 0, 0]),
    command("quit", -1, [0, 0, 0]),
];

/// The command of this name.
pub(super) fn find(name: &[u8]) -> Option<&'static Described> {
    COMMANDS.iter().find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
}

/// What HELLO tells of the server and the connection.
pub(super) fn hello(replies: &mut Replies<'_>, id: u64) {
    let proto = if replies.form == Form::Resp3 { 3 } else { 2 };
    let id = i64::try_from(id).unwrap_or(i64::MAX);
    let text = |replies: &mut Replies<'_>, name: &str, value: &str| {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    };
    replies.map(7);
    text(replies, "server", "towpath-kv");
    text(replies, "version", env!("CARGO_PKG_VERSION"));
    for (name, number) in [("proto", proto), ("id", id)] {
        replies.bulk(name.as_bytes());
        replies.number(number);
    }
    text(replies, "mode", "standalone");
    text(replies, "role", "master");
    replies.bulk(b"modules");
    replies.list(0);
}

/// Each command as a list: name, arity, no flags, where its keys are. None is told as null.
pub(super) fn describe<'a>(
    commands: impl ExactSizeIterator<Item = Option<&'a Described>>,
    replies: &mut Replies<'_>,
) {
    replies.list(commands.len());
    for command in commands {
        let Some(command) = command else {
            replies.null_list();
            continue;
        };
        replies.list(6);
        replies.bulk(command.name.as_bytes());
        replies.number(command.arity);
        replies.set(0);
        command.keys.iter().for_each(|&at| replies.number(at));
    }
}

/// The names of all commands.
pub(super) fn list(replies: &mut Replies<'_>) {
    replies.list(COMMANDS.len());
    COMMANDS.iter().for_each(|command| replies.bulk(command.name.as_bytes()));
}

/// The name of each of these commands, or of all, and nothing about it: `redis-cli` wants the
/// pairs.
pub(super) fn document(names: &[Cow<'_, [u8]>], replies: &mut Replies<'_>) {
    let all = COMMANDS.iter().filter(|_| names.is_empty());
    let commands: Vec<_> = names.iter().filter_map(|name| find(name)).chain(all).collect();
    replies.map(commands.len());
    for command in commands {
        replies.bulk(command.name.as_bytes());
        replies.map(0);
    }
}

/// The text of INFO, in the form that other servers have: sections, and lines of name and value.
pub(super) fn text(figures: &Figures, counted: &Counted) -> String {
    let mut text = String::new();
    let mut section = |name: &str, lines: &[(&str, u64)]| {
        let _ = write!(text, "# {name}\r\n");
        for (name, value) in lines {
            let _ = write!(text, "{name}:{value}\r\n");
        }
        text.push_str("\r\n");
    };
    section("Server", &[("process_id", u64::from(std::process::id()))]);
    section("Persistence", &[("loading", 0)]);
    section(
        "Clients",
        &[("connected_clients", counted.connected), ("maxclients", counted.connected_max)],
    );
    section("Memory", &[("used_memory", figures.bytes), ("maxmemory", figures.bytes_max)]);
    section(
        "Stats",
        &[
            ("total_connections_received", counted.accepted),
            ("total_commands_processed", counted.requests),
            ("rejected_connections", counted.turned_away),
            ("expired_keys", figures.expired),
            ("evicted_keys", figures.evicted),
            ("refused_writes", figures.refused),
            ("malformed_requests", counted.malformed),
            ("slow_clients_closed", counted.slow),
            ("tls_handshakes_failed", counted.tls_failed),
            ("crowded_clients_closed", counted.crowded),
        ],
    );
    // Some clients ask which of several servers takes writes.
    text.push_str("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n");
    let _ = write!(text, "# Keyspace\r\ndb0:keys={}\r\n", figures.keys);
    text
}

/// Of the settings that CONFIG GET names those that there are: what `redis-benchmark` asks for,
/// and the bound.
pub(super) fn settings(names: &[Cow<'_, [u8]>], figures: &Figures, replies: &mut Replies<'_>) {
    let settings = [
        ("save", String::new()),
        ("appendonly", String::from("no")),
        ("maxmemory", figures.bytes_max.to_string()),
    ];
    let is_named =
        |known: &str| names.iter().any(|name| name.eq_ignore_ascii_case(known.as_bytes()));
    let named: Vec<_> = settings.iter().filter(|(known, _)| is_named(known)).collect();
    replies.map(named.len());
    for (name, value) in named {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}
