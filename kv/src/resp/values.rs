//! What is done for a command about values, and the reply.

use super::answer::REPLY_TOO_LONG;
use super::command::{Command, CommandError};
use super::options::{ExpireIf, Expiry};
use super::reply::Replies;
use crate::limits::REPLY_BYTES_MAX;
use crate::store::{Bytes, Held, IncrError, Pass, Put, Refused, Step, Store, When};
use std::borrow::Cow;
use towpath_base::{Nanos, Time};

/// Keys, or keys and values in turn.
type List<'a> = &'a [Cow<'a, [u8]>];

/// Carries out a command about values; others are none.
pub(super) fn carry_out(
    store: &dyn Store,
    command: &Command<'_>,
    (pass, now): (&mut Pass<'_>, Time),
    replies: &mut Replies<'_>,
) {
    match *command {
        Command::Get(key) => get(store, key, now, replies),
        Command::Set { key, value, when, expiry: Expiry::Never, gets: false } => {
            let put = Put { when, expires: Time::NEVER };
            done(store.set(key, value, put, now), replies);
        }
        Command::Set { key, value, when, expiry, gets } => {
            set(store, (key, value), (when, expiry, gets), now, replies);
        }
        Command::SetAbsent(key, value) => {
            let put = Put { when: When::Absent, expires: Time::NEVER };
            counted(store.set(key, value, put, now).map(i64::from), replies);
        }
        Command::GetDel(key) => take(store, key, now, &mut |_| Step::Remove, replies),
        Command::GetEx(key, Expiry::Keep) => get(store, key, now, replies),
        Command::GetEx(key, expiry) => {
            take(store, key, now, &mut |held| keep(held, expires(expiry, held, now)), replies);
        }
        Command::Append(key, value) => append(store, key, value, now, replies),
        Command::Length(key) => {
            let mut len = 0;
            store.get(key, now, &mut |value| len = value.len());
            replies.number(len as i64);
        }
        Command::Range(key, from, to) => {
            let is_there = store.get(key, now, &mut |value| replies.bulk(part(value, from, to)));
            if !is_there {
                replies.bulk(b"");
            }
        }
        Command::Del(keys) => replies.number(count(keys, |key| store.del(key, now))),
        Command::Exists(keys) => {
            replies.number(count(keys, |key| store.get(key, now, &mut |_| ())));
        }
        Command::MGet(keys) => several(store, keys, now, replies),
        Command::MSet(pairs) => {
            let put = pass.alone(|_| put_all(store, pairs, now));
            done(put.map(|()| true), replies);
        }
        Command::MSetAbsent(pairs) => {
            let put = pass.alone(|_| {
                let is_there = |pair: List<'_>| store.get(&pair[0], now, &mut |_| ());
                let are_absent = !pairs.chunks_exact(2).any(is_there);
                if are_absent { put_all(store, pairs, now).map(|()| 1) } else { Ok(0) }
            });
            counted(put, replies);
        }
        Command::Incr(key, by) => match store.incr(key, by, now) {
            Ok(sum) => replies.number(sum),
            Err(IncrError::Refused(refused)) => replies.refused(&refused),
            Err(IncrError::NotANumber) => replies.error(&CommandError::NotANumber),
            Err(IncrError::Overflow) => {
                replies.error(&"ERR increment or decrement would overflow");
            }
        },
        Command::Type(key) => {
            let is_there = store.get(key, now, &mut |_| ());
            replies.word(if is_there { "string" } else { "none" });
        }
        Command::Size => replies.number(store.figures().keys as i64),
        Command::Clear => {
            pass.alone(|_| store.clear());
            replies.ok();
        }
        ref other => time(store, other, now, replies),
    }
}

/// Carries out a command about the time that a key has.
fn time(store: &dyn Store, command: &Command<'_>, now: Time, replies: &mut Replies<'_>) {
    match *command {
        Command::Expire(key, ms, when) => {
            let after = u64::try_from(ms).ok().filter(|&ms| ms > 0);
            let expires = after.map(|ms| now + Nanos::from_millis(ms));
            let made = change(store, key, now, &mut |held| {
                let new = expires.unwrap_or(now);
                let holds = match when {
                    ExpireIf::Always => true,
                    ExpireIf::HasNone => held.expires == Time::NEVER,
                    ExpireIf::HasOne => held.expires != Time::NEVER,
                    ExpireIf::Later => new > held.expires,
                    ExpireIf::Earlier => new < held.expires,
                };
                match (holds, expires) {
                    (false, _) => Step::Leave,
                    (true, None) => Step::Remove,
                    (true, Some(expires)) => keep(held, expires),
                }
            });
            counted(made.map(i64::from), replies);
        }
        Command::Persist(key) => {
            let made = change(store, key, now, &mut |held| match held.expires {
                Time::NEVER => Step::Leave,
                _ => keep(held, Time::NEVER),
            });
            counted(made.map(i64::from), replies);
        }
        Command::TimeLeft(key, unit_ms) => {
            let mut left = -2;
            // Nothing is refused of what changes nothing.
            let _ = change(store, key, now, &mut |held| {
                let unit = Nanos::from_millis(unit_ms).0;
                left = match held.expires {
                    Time::NEVER => -1,
                    // Of a second the nearer one is told, as by others.
                    expires if unit_ms > 1 => ((expires.since(now).0 + unit / 2) / unit) as i64,
                    expires => expires.since(now).0.div_ceil(unit) as i64,
                };
                Step::Leave
            });
            replies.number(left);
        }
        // The caller has carried out all others.
        _ => replies.error(&CommandError::Syntax),
    }
}

/// Lets `decide` say what becomes of a key that is there; whether anything did.
fn change(
    store: &dyn Store,
    key: &[u8],
    now: Time,
    decide: &mut dyn FnMut(Held<'_>) -> Step,
) -> Result<bool, Refused> {
    let mut is_made = false;
    store.change(key, now, &mut |held| {
        let step = held.map_or(Step::Leave, &mut *decide);
        is_made = step != Step::Leave;
        step
    })?;
    Ok(is_made)
}

/// The value that is there, until another time.
fn keep(held: Held<'_>, expires: Time) -> Step {
    Step::Put { value: held.value.into(), expires }
}

/// When what replaces it expires.
fn expires(expiry: Expiry, held: Held<'_>, now: Time) -> Time {
    match expiry {
        Expiry::Never => Time::NEVER,
        Expiry::Keep => held.expires,
        Expiry::AfterMs(ms) => now + Nanos::from_millis(ms),
    }
}

fn get(store: &dyn Store, key: &[u8], now: Time, replies: &mut Replies<'_>) {
    if !store.get(key, now, &mut |value| replies.bulk(value)) {
        replies.null();
    }
}

/// Tells the value of a key, and does something with the key.
fn take(
    store: &dyn Store,
    key: &[u8],
    now: Time,
    decide: &mut dyn FnMut(Held<'_>) -> Step,
    replies: &mut Replies<'_>,
) {
    let mut old = None;
    let made = store.change(key, now, &mut |held| {
        old = held.map(|held| Bytes::from(held.value));
        held.map_or(Step::Leave, &mut *decide)
    });
    match (made, old) {
        (Err(refused), _) => replies.refused(&refused),
        (Ok(()), Some(old)) => replies.bulk(&old),
        (Ok(()), None) => replies.null(),
    }
}

/// SET with a time or with GET.
fn set(
    store: &dyn Store,
    (key, value): (&[u8], &[u8]),
    (when, expiry, gets): (When, Expiry, bool),
    now: Time,
    replies: &mut Replies<'_>,
) {
    let (mut is_put, mut old) = (false, None);
    let made = store.change(key, now, &mut |held| {
        old = held.filter(|_| gets).map(|held| Bytes::from(held.value));
        is_put = match when {
            When::Always => true,
            When::Absent => held.is_none(),
            When::Present => held.is_some(),
        };
        let nothing = Held { value: b"", expires: Time::NEVER };
        let expires = expires(expiry, held.unwrap_or(nothing), now);
        if is_put { Step::Put { value: value.into(), expires } } else { Step::Leave }
    });
    match (made, old) {
        (Err(refused), _) => replies.refused(&refused),
        (Ok(()), Some(old)) => replies.bulk(&old),
        (Ok(()), None) if gets => replies.null(),
        (Ok(()), None) => done(Ok(is_put), replies),
    }
}

fn append(store: &dyn Store, key: &[u8], more: &[u8], now: Time, replies: &mut Replies<'_>) {
    let mut len = 0;
    let made = store.change(key, now, &mut |held| {
        let (old, expires) =
            held.map_or((&b""[..], Time::NEVER), |held| (held.value, held.expires));
        let value: Bytes = [old, more].concat().into();
        len = value.len() as i64;
        Step::Put { value, expires }
    });
    counted(made.map(|()| len), replies);
}

/// Puts values, one after the other; those before one that is refused stay.
fn put_all(store: &dyn Store, pairs: List<'_>, now: Time) -> Result<(), Refused> {
    for pair in pairs.chunks_exact(2) {
        store.set(&pair[0], &pair[1], Put::ALWAYS, now)?;
    }
    Ok(())
}

/// The bytes from one place to another, each counted from the end where it is negative.
fn part(value: &[u8], from: i64, to: i64) -> &[u8] {
    let len = value.len() as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (from, to) = (place(from), place(to).saturating_add(1).min(len));
    // Both are within the value where they are in order.
    if from < to { &value[from as usize..to as usize] } else { b"" }
}

/// The values of several keys, unless those are more than a reply may be.
fn several(store: &dyn Store, keys: List<'_>, now: Time, replies: &mut Replies<'_>) {
    let before = replies.out.len();
    replies.list(keys.len());
    for key in keys {
        get(store, key, now, replies);
        if replies.out.len() - before > REPLY_BYTES_MAX {
            replies.out.truncate(before);
            return replies.error(&REPLY_TOO_LONG);
        }
    }
}

/// How many of the keys something holds for.
fn count(keys: List<'_>, holds: impl Fn(&[u8]) -> bool) -> i64 {
    keys.iter().map(|key| i64::from(holds(key))).sum()
}

/// Whether the condition of a change held, as SET tells it.
fn done(made: Result<bool, Refused>, replies: &mut Replies<'_>) {
    match made {
        Ok(true) => replies.ok(),
        Ok(false) => replies.null(),
        Err(refused) => replies.refused(&refused),
    }
}

fn counted(made: Result<i64, Refused>, replies: &mut Replies<'_>) {
    match made {
        Ok(number) => replies.number(number),
        Err(refused) => replies.refused(&refused),
    }
}
