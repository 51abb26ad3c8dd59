//! What is done for a command, and the reply as bytes.

use super::command::Command;
use super::info;
use super::parse::{Parsed, Words, parse};
use crate::limits::{OUTPUT_PAUSE_BYTES, REPLY_BYTES_MAX};
use crate::serve::{Counters, Dialogue, Next, Taken};
use crate::store::{IncrError, Put, Store};
use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;
use towpath_base::{Nanos, Time};

/// What a client is told when there are as many connections as may be.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"-ERR max number of clients reached\r\n";

/// One connection of RESP2.
#[derive(Debug)]
pub struct RespDialogue {
    store: Arc<dyn Store>,
    counters: Arc<Counters>,
}

impl RespDialogue {
    /// Serves this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, counters: Arc<Counters>) -> Self {
        Self { store, counters }
    }

    /// Carries out a command; false where the connection ends.
    fn answer(&self, words: &Words<'_>, now: Time, out: &mut Vec<u8>) -> bool {
        match Command::of(words) {
            Ok(Command::Quit) => {
                out.extend_from_slice(b"+OK\r\n");
                return false;
            }
            Ok(command) => self.carry_out(&command, now, out),
            Err(error) => error_reply(&error, out),
        }
        true
    }

    fn carry_out(&self, command: &Command<'_>, now: Time, out: &mut Vec<u8>) {
        match *command {
            Command::Get(key) => self.value(key, now, out),
            Command::Set { key, value, when, expire_ms } => {
                let after = |ms| now + Nanos::from_millis(ms);
                let put = Put { when, expires: expire_ms.map_or(Time::NEVER, after) };
                match self.store.set(key, value, put, now) {
                    Ok(true) => out.extend_from_slice(b"+OK\r\n"),
                    Ok(false) => out.extend_from_slice(b"$-1\r\n"),
                    Err(refused) => refusal(&refused, out),
                }
            }
            Command::Del(keys) => {
                number(count(keys, |key| self.store.del(key, now)), out);
            }
            Command::Exists(keys) => {
                number(count(keys, |key| self.store.get(key, now, &mut |_| ())), out);
            }
            Command::MGet(keys) => self.values(keys, now, out),
            Command::Incr(key) => match self.store.incr(key, 1, now) {
                Ok(sum) => number(sum, out),
                Err(IncrError::Refused(refused)) => refusal(&refused, out),
                Err(IncrError::NotANumber) => {
                    out.extend_from_slice(b"-ERR value is not an integer or out of range\r\n");
                }
                Err(IncrError::Overflow) => {
                    out.extend_from_slice(b"-ERR increment or decrement would overflow\r\n");
                }
            },
            Command::Ping(None) => out.extend_from_slice(b"+PONG\r\n"),
            Command::Ping(Some(text)) | Command::Echo(text) => bulk(text, out),
            Command::Info => {
                let text = info::text(&self.store.figures(), &self.counters.counted());
                bulk(text.as_bytes(), out);
            }
            Command::CommandCount => number(info::COMMANDS.len() as i64, out),
            Command::Commands => describe_all(out),
            Command::CommandDocs => document_all(out),
            Command::ConfigGet(name) => match info::setting(name, &self.store.figures()) {
                Some((name, value)) => list([name, &value].into_iter(), out),
                None => out.extend_from_slice(b"*0\r\n"),
            },
            Command::Select | Command::Quit => out.extend_from_slice(b"+OK\r\n"),
        }
    }

    fn value(&self, key: &[u8], now: Time, out: &mut Vec<u8>) {
        if !self.store.get(key, now, &mut |value| bulk(value, out)) {
            out.extend_from_slice(b"$-1\r\n");
        }
    }

    /// The values of several keys, unless those are more than a reply may be.
    fn values(&self, keys: &[Cow<'_, [u8]>], now: Time, out: &mut Vec<u8>) {
        let before = out.len();
        let _ = write!(out, "*{}\r\n", keys.len());
        for key in keys {
            self.value(key, now, out);
            if out.len() - before > REPLY_BYTES_MAX {
                out.truncate(before);
                error_reply(&"ERR the reply is too long, ask for fewer keys at a time", out);
                return;
            }
        }
    }
}

impl Dialogue for RespDialogue {
    fn take(&mut self, input: &[u8], now: Time, out: &mut Vec<u8>) -> Taken {
        let mut taken = Taken { used: 0, requests: 0, next: Next::Paused };
        while out.len() < OUTPUT_PAUSE_BYTES {
            let (words, len) = match parse(&input[taken.used..]) {
                Ok(Parsed::Words { words, len }) => (words, len),
                Ok(Parsed::More { needed }) => {
                    return Taken { next: Next::More { needed }, ..taken };
                }
                Err(error) => {
                    error_reply(&format_args!("ERR Protocol error: {error}"), out);
                    return Taken { next: Next::Malformed, ..taken };
                }
            };
            taken.used += len;
            if words.is_empty() {
                continue;
            }
            taken.requests += 1;
            if !self.answer(&words, now, out) {
                return Taken { next: Next::Close, ..taken };
            }
        }
        taken
    }
}

/// Each command as a list: name, arity, no flags, where its keys are.
fn describe_all(out: &mut Vec<u8>) {
    let _ = write!(out, "*{}\r\n", info::COMMANDS.len());
    for command in &info::COMMANDS {
        out.extend_from_slice(b"*6\r\n");
        bulk(command.name.as_bytes(), out);
        number(command.arity, out);
        out.extend_from_slice(b"*0\r\n");
        command.keys.iter().for_each(|&at| number(at, out));
    }
}

/// Each command's name, and nothing about it: `redis-cli` wants the pairs.
fn document_all(out: &mut Vec<u8>) {
    let _ = write!(out, "*{}\r\n", 2 * info::COMMANDS.len());
    for command in &info::COMMANDS {
        bulk(command.name.as_bytes(), out);
        out.extend_from_slice(b"*0\r\n");
    }
}

/// How many of the keys something holds for.
fn count(keys: &[Cow<'_, [u8]>], holds: impl Fn(&[u8]) -> bool) -> i64 {
    keys.iter().map(|key| i64::from(holds(key))).sum()
}

fn error_reply(error: &dyn std::fmt::Display, out: &mut Vec<u8>) {
    // A Vec takes everything.
    let _ = write!(out, "-{error}\r\n");
}

fn refusal(refused: &crate::store::Refused, out: &mut Vec<u8>) {
    match refused {
        crate::store::Refused::Full => {
            error_reply(&"OOM command not allowed when used memory > 'maxmemory'.", out);
        }
        other => error_reply(&format_args!("ERR {other}"), out),
    }
}

fn number(number: i64, out: &mut Vec<u8>) {
    let _ = write!(out, ":{number}\r\n");
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    let len = bytes.len();
    out.push(b'$');
    // Most values have lengths of few digits, which `write!` takes several times as long for.
    match u8::try_from(len) {
        Ok(short @ 0..10) => out.push(b'0' + short),
        Ok(short @ 10..100) => out.extend_from_slice(&[b'0' + short / 10, b'0' + short % 10]),
        _ => drop(write!(out, "{len}")),
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn list<'a>(words: impl ExactSizeIterator<Item = &'a str>, out: &mut Vec<u8>) {
    let _ = write!(out, "*{}\r\n", words.len());
    words.for_each(|word| bulk(word.as_bytes(), out));
}
