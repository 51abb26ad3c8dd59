//! What follows the first words of a command: options, times, numbers.

use super::command::{Command, CommandError, shown};
use crate::limits::CLIENT_NAME_BYTES_MAX;
use crate::store::When;
use std::borrow::Cow;

/// When a value expires that is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// When the one before did.
    Keep,
    /// After so many milliseconds.
    AfterMs(u64),
}

/// On which condition a key gets another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireIf {
    /// Whatever it has.
    Always,
    /// NX: it has none.
    HasNone,
    /// XX: it has one.
    HasOne,
    /// GT: the new one is later; none is the latest.
    Later,
    /// LT: the new one is earlier.
    Earlier,
}

/// What HELLO asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// RESP3 (true), RESP2 (false), or as before.
    pub resp3: Option<bool>,
    /// SETNAME.
    pub name: Option<&'a [u8]>,
}

/// What CLIENT asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAsk<'a> {
    /// SETNAME.
    SetName(&'a [u8]),
    /// GETNAME.
    GetName,
    /// ID.
    Id,
    /// SETINFO, NO-EVICT, NO-TOUCH, REPLY ON: nothing is to be done.
    Hint,
}

/// The longest expiry: as others have it, what fits in a signed number of milliseconds; here also
/// in nanoseconds, some 290 years.
const EXPIRE_MS_MAX: u64 = i64::MAX as u64 / 1_000_000;

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// A whole number.
pub(super) fn number(text: &[u8]) -> Result<i64, CommandError> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or(CommandError::NotANumber)
}

/// A time from now on, in units of so many milliseconds.
pub(super) fn after(
    text: &[u8],
    unit_ms: u64,
    command: &'static str,
) -> Result<Expiry, CommandError> {
    let ms = u64::try_from(number(text)?).ok().and_then(|time| time.checked_mul(unit_ms));
    let ms = ms.filter(|ms| (1..=EXPIRE_MS_MAX).contains(ms));
    ms.map(Expiry::AfterMs).ok_or(CommandError::ExpireTime(command))
}

/// The options of SET.
pub(super) fn set<'a>(
    key: &'a [u8],
    value: &'a [u8],
    options: &[Cow<'_, [u8]>],
) -> Result<Command<'a>, CommandError> {
    let (mut when, mut expiry, mut gets) = (When::Always, None, false);
    let mut rest = options;
    while let [option, more @ ..] = rest {
        rest = match more {
            _ if is(option, "NX") && when != When::Present => {
                when = When::Absent;
                more
            }
            _ if is(option, "XX") && when != When::Absent => {
                when = When::Present;
                more
            }
            _ if is(option, "GET") => {
                gets = true;
                more
            }
            _ if is(option, "KEEPTTL") && expiry.is_none() => {
                expiry = Some(Expiry::Keep);
                more
            }
            [time, more @ ..] if is(option, "EX") && expiry.is_none() => {
                expiry = Some(after(time, 1_000, "set")?);
                more
            }
            [time, more @ ..] if is(option, "PX") && expiry.is_none() => {
                expiry = Some(after(time, 1, "set")?);
                more
            }
            _ => return Err(CommandError::Syntax),
        };
    }
    Ok(Command::Set { key, value, when, expiry: expiry.unwrap_or(Expiry::Never), gets })
}

/// The options of GETEX.
pub(super) fn get_ex(options: &[Cow<'_, [u8]>]) -> Result<Expiry, CommandError> {
    match options {
        [] => Ok(Expiry::Keep),
        [option] if is(option, "PERSIST") => Ok(Expiry::Never),
        [option, time] if is(option, "EX") => after(time, 1_000, "getex"),
        [option, time] if is(option, "PX") => after(time, 1, "getex"),
        _ => Err(CommandError::Syntax),
    }
}

/// EXPIRE and PEXPIRE. A time that is over removes the key.
pub(super) fn expire<'a>(
    key: &'a [u8],
    time: &[u8],
    options: &[Cow<'_, [u8]>],
    (unit_ms, command): (i64, &'static str),
) -> Result<Command<'a>, CommandError> {
    let ms = number(time)?.checked_mul(unit_ms);
    let ms = ms.filter(|&ms| ms <= EXPIRE_MS_MAX as i64);
    let ms = ms.ok_or(CommandError::ExpireTime(command))?;
    let when = match options {
        [] => ExpireIf::Always,
        [option] if is(option, "NX") => ExpireIf::HasNone,
        [option] if is(option, "XX") => ExpireIf::HasOne,
        [option] if is(option, "GT") => ExpireIf::Later,
        [option] if is(option, "LT") => ExpireIf::Earlier,
        _ => return Err(CommandError::Syntax),
    };
    Ok(Command::Expire(key, ms, when))
}

/// HELLO, with a version and options or without.
pub(super) fn hello<'a>(words: &'a [Cow<'a, [u8]>]) -> Result<Hello<'a>, CommandError> {
    let [version, options @ ..] = words else { return Ok(Hello { resp3: None, name: None }) };
    let resp3 = match number(version) {
        Ok(2) => false,
        Ok(3) => true,
        _ => return Err(CommandError::Protocol),
    };
    let (mut rest, mut named, mut has_password) = (options, None, false);
    loop {
        rest = match rest {
            [] => break,
            [option, _, _, more @ ..] if is(option, "AUTH") => {
                has_password = true;
                more
            }
            [option, name, more @ ..] if is(option, "SETNAME") => {
                named = Some(client_name(name)?);
                more
            }
            _ => return Err(CommandError::Syntax),
        };
    }
    if has_password {
        return Err(CommandError::Password);
    }
    Ok(Hello { resp3: Some(resp3), name: named })
}

/// CLIENT: what clients say of themselves when they connect.
pub(super) fn client<'a>(
    what: &[u8],
    words: &'a [Cow<'a, [u8]>],
) -> Result<ClientAsk<'a>, CommandError> {
    let is_switch = |word: &[u8]| is(word, "ON") || is(word, "OFF");
    match words {
        [name] if is(what, "SETNAME") => client_name(name).map(ClientAsk::SetName),
        [] if is(what, "GETNAME") => Ok(ClientAsk::GetName),
        [] if is(what, "ID") => Ok(ClientAsk::Id),
        [attribute, value] if is(what, "SETINFO") => {
            if !is(attribute, "LIB-NAME") && !is(attribute, "LIB-VER") {
                return Err(CommandError::Syntax);
            }
            client_name(value).map(|_| ClientAsk::Hint)
        }
        [switch] if (is(what, "NO-EVICT") || is(what, "NO-TOUCH")) && is_switch(switch) => {
            Ok(ClientAsk::Hint)
        }
        [switch] if is(what, "REPLY") && is(switch, "ON") => Ok(ClientAsk::Hint),
        _ => Err(CommandError::Subcommand(shown(what))),
    }
}

fn client_name(name: &[u8]) -> Result<&[u8], CommandError> {
    let is_sound = name.len() <= CLIENT_NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic);
    if is_sound { Ok(name) } else { Err(CommandError::ClientName) }
}
