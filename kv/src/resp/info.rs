//! What INFO, COMMAND and CONFIG GET tell.

use crate::serve::Counted;
use crate::store::Figures;
use std::fmt::Write as _;

/// A command as COMMAND describes it.
pub(super) struct Described {
    pub(super) name: &'static str,
    /// Words with the name, and negative: at least so many.
    pub(super) arity: i64,
    /// Where its keys are: the first, the last (negative: from the end), and every how many words.
    pub(super) keys: [i64; 3],
}

const fn describe(name: &'static str, arity: i64, keys: [i64; 3]) -> Described {
    Described { name, arity, keys }
}

/// All commands.
pub(super) const COMMANDS: [Described; 13] = [
    describe("get", 2, [1, 1, 1]),
    describe("set", -3, [1, 1, 1]),
    describe("del", -2, [1, -1, 1]),
    describe("exists", -2, [1, -1, 1]),
    describe("mget", -2, [1, -1, 1]),
    describe("incr", 2, [1, 1, 1]),
    describe("ping", -1, [0, 0, 0]),
    describe("echo", 2, [0, 0, 0]),
    describe("info", -1, [0, 0, 0]),
    describe("command", -1, [0, 0, 0]),
    describe("config", -2, [0, 0, 0]),
    describe("select", 2, [0, 0, 0]),
    describe("quit", -1, [0, 0, 0]),
];

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
            ("crowded_clients_closed", counted.crowded),
        ],
    );
    let _ = write!(text, "# Keyspace\r\ndb0:keys={}\r\n", figures.keys);
    text
}

/// The settings that CONFIG GET names: those that `redis-benchmark` asks for, and the bound.
pub(super) fn setting(name: &[u8], figures: &Figures) -> Option<(&'static str, String)> {
    let settings = [
        ("save", String::new()),
        ("appendonly", String::from("no")),
        ("maxmemory", figures.bytes_max.to_string()),
    ];
    settings.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()))
}
